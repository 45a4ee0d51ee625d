/* What a bundle of paths does with its frames, rule by rule; test_bundle.c has two ends of it. */
#include "worker/fabric/wire/bundle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { WINDOW_BYTES = 1000, FIRST_NUMBER = 1 << 16 };

static struct muster_bundle begin(uint64_t first_number)
{
    const struct muster_bundle_limits limits = {.first_number = first_number,
                                                .window_bytes = WINDOW_BYTES,
                                                .ahead_max = MUSTER_BUNDLE_WINDOW};
    struct muster_bundle bundle;
    muster_bundle_init(&bundle, &limits);
    return bundle;
}

static void paths_take_turns(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(1);
    assert_int_equal(muster_bundle_choose(&bundle, 0), MUSTER_BUNDLE_NO_PATH);
    const uint32_t expected[] = {0, 3, 15, 0, 3, 15};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(muster_bundle_choose(&bundle, 1 << 0 | 1 << 3 | 1 << 15), expected[i]);
    }
    assert_int_equal(muster_bundle_choose(&bundle, 1 << 3), 3);
    assert_int_equal(muster_bundle_choose(&bundle, 1 << 3), 3);
    assert_int_equal(muster_bundle_choose(&bundle, 1 << 3 | 1 << 4), 4);
}

static void the_window_is_bounded_by_frames_and_by_bytes(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(1);
    for (uint64_t i = 1; i <= MUSTER_BUNDLE_WINDOW; i++) {
        assert_true(muster_bundle_has_room(&bundle));
        assert_int_equal(muster_bundle_add(&bundle, 0), i);
    }
    assert_false(muster_bundle_has_room(&bundle));
    bundle = begin(1);
    (void)muster_bundle_add(&bundle, WINDOW_BYTES - 1);
    assert_true(muster_bundle_has_room(&bundle));
    (void)muster_bundle_add(&bundle, WINDOW_BYTES); /* one frame may pass the bound */
    assert_false(muster_bundle_has_room(&bundle));
    uint64_t number = 0;
    assert_true(muster_bundle_acknowledge_before(&bundle, 3));
    assert_true(muster_bundle_retire(&bundle, &number));
    assert_false(muster_bundle_has_room(&bundle));
    assert_true(muster_bundle_retire(&bundle, &number));
    assert_false(muster_bundle_retire(&bundle, &number));
    assert_int_equal(bundle.out_bytes, 0);
    assert_true(muster_bundle_has_room(&bundle));
}

static void what_was_never_sent_is_not_acknowledged(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(1);
    assert_true(muster_bundle_acknowledge_before(&bundle, 0));
    assert_true(muster_bundle_acknowledge_before(&bundle, 1));
    assert_false(muster_bundle_acknowledge_before(&bundle, 2));
    (void)muster_bundle_add(&bundle, 1);
    assert_true(muster_bundle_acknowledge_before(&bundle, 2));
    assert_false(muster_bundle_acknowledge_before(&bundle, UINT64_MAX));
}

static void frames_too_far_ahead_are_refused(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(1);
    assert_int_equal(muster_bundle_arrive(&bundle, 0), MUSTER_BUNDLE_DUPLICATE);
    assert_int_equal(muster_bundle_arrive(&bundle, 1 + MUSTER_BUNDLE_WINDOW),
                     MUSTER_BUNDLE_TOO_FAR);
    assert_int_equal(muster_bundle_arrive(&bundle, UINT64_MAX), MUSTER_BUNDLE_TOO_FAR);
    assert_int_equal(muster_bundle_arrive(&bundle, MUSTER_BUNDLE_WINDOW), MUSTER_BUNDLE_NEW);
    assert_int_equal(muster_bundle_arrive(&bundle, MUSTER_BUNDLE_WINDOW), MUSTER_BUNDLE_DUPLICATE);
    assert_false(muster_bundle_has_next(&bundle));
}

static void an_acknowledgement_is_due_after_a_quarter_of_a_window(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(1);
    for (uint64_t i = 1; i <= MUSTER_BUNDLE_WINDOW / 4; i++) {
        assert_false(bundle.acknowledgement_due);
        assert_int_equal(muster_bundle_arrive(&bundle, i), MUSTER_BUNDLE_NEW);
        muster_bundle_deliver(&bundle, 0);
    }
    assert_true(bundle.acknowledgement_due);
    assert_int_equal(muster_bundle_acknowledgement(&bundle), 1 + MUSTER_BUNDLE_WINDOW / 4);
    assert_false(bundle.acknowledgement_due);
    uint64_t next = bundle.next_in;
    (void)muster_bundle_arrive(&bundle, next);
    muster_bundle_deliver(&bundle, WINDOW_BYTES / 8);
    assert_true(bundle.acknowledgement_due);
    (void)muster_bundle_acknowledgement(&bundle);
    (void)muster_bundle_arrive(&bundle, next); /* twice: the peer does not know */
    assert_true(bundle.acknowledgement_due);
}

static void sixteen_bits_name_the_nearest_number(void **state)
{
    (void)state;
    struct muster_bundle bundle = begin(FIRST_NUMBER);
    const uint64_t next_in[] = {FIRST_NUMBER, FIRST_NUMBER + 1, 2 * FIRST_NUMBER - 1,
                                5 * (uint64_t)FIRST_NUMBER + 40000};
    for (size_t i = 0; i < sizeof next_in / sizeof next_in[0]; i++) {
        bundle.next_in = next_in[i];
        for (int64_t distance = INT16_MIN; distance <= INT16_MAX; distance++) {
            uint64_t number = next_in[i] + (uint64_t)distance;
            assert_int_equal(muster_bundle_number_of(&bundle, (uint16_t)number), number);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_take_turns),
        cmocka_unit_test(the_window_is_bounded_by_frames_and_by_bytes),
        cmocka_unit_test(what_was_never_sent_is_not_acknowledged),
        cmocka_unit_test(frames_too_far_ahead_are_refused),
        cmocka_unit_test(an_acknowledgement_is_due_after_a_quarter_of_a_window),
        cmocka_unit_test(sixteen_bits_name_the_nearest_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
