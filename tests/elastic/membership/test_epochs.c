/* Numbers of generations: the epoch above, a count below; they never fall back. */
#include "tests/elastic/membership/drive.h"
#include "worker/base/epoch.h"

static struct muster_event join_event(const struct drive *d, const char *id, uint64_t generation,
                                      uint32_t epoch)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_JOIN, id);
    event.settings = d->settings;
    event.epoch = epoch;
    event.info.generation = generation;
    (void)snprintf(event.info.id, sizeof event.info.id, "%s", id);
    (void)snprintf(event.info.host, sizeof event.info.host, "a");
    return event;
}

static uint64_t number(const struct drive *d)
{
    return muster_membership_generation(d->membership).number;
}

static void the_number_after_is_higher_in_every_epoch(void **state)
{
    (void)state;
    assert_int_equal(muster_epoch_next(0, 0), 1);
    assert_int_equal(muster_epoch_next(0, 7), (UINT64_C(7) << 32) + 1);
    assert_int_equal(muster_epoch_next((UINT64_C(7) << 32) + 5, 7), (UINT64_C(7) << 32) + 6);
    assert_int_equal(muster_epoch_next((UINT64_C(7) << 32) + 5, 9), (UINT64_C(9) << 32) + 6);
    assert_int_equal(muster_epoch_next((UINT64_C(9) << 32) + 5, 7), (UINT64_C(9) << 32) + 6);
    assert_int_equal(muster_epoch_next((UINT64_C(7) << 32) + UINT32_MAX, 7), UINT64_C(8) << 32);
    assert_int_equal(muster_epoch_limit(10), (UINT64_C(86410) << 32) + UINT32_MAX);
    assert_true(muster_epoch_limit(MUSTER_EPOCH_MAX) == (UINT64_C(0x7fffffff) << 32));
    assert_int_equal(muster_epoch_shown((UINT64_C(9) << 32) + 6), 6);
}

static void a_restart_raises_the_epoch_and_goes_on_counting(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 1, 0);
    struct muster_event event = join_event(&d, "a0", 0, 100);
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    assert_int_equal(number(&d), (UINT64_C(100) << 32) + 1);
    event = drive_make(&d, MUSTER_EVENT_RESTART, "");
    event.epoch = 160;
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    assert_int_equal(number(&d), (UINT64_C(100) << 32) + 1); /* it runs on */
    event = join_event(&d, "a0", number(&d), 160);
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    assert_int_equal(number(&d), (UINT64_C(160) << 32) + 2);
    event = join_event(&d, "a0", number(&d), 0); /* of a server whose clock is behind */
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    assert_int_equal(number(&d), (UINT64_C(160) << 32) + 3);
    drive_finish(&d);
}

/* A server that has lost its store, and one whose clock is behind by up to a day. */
static void a_joiner_raises_the_epoch_by_a_day_at_most(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 1, 0);
    uint64_t known = ((uint64_t)(100 + 86400) << 32) + 7;
    struct muster_event event = join_event(&d, "a0", known + (UINT64_C(1) << 32), 100);
    assert_int_equal(drive_once(&d, &event), MUSTER_INVALID);
    assert_non_null(
        strstr(muster_last_error(), "its epoch 86501 is more than a day after this server's, 100"));
    event = join_event(&d, "a0", known, 100);
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    assert_int_equal(number(&d), known + 1);
    /* What it has raised is no beginning of another day. */
    event = join_event(&d, "a1", known + (UINT64_C(1) << 32), 100);
    assert_int_equal(drive_once(&d, &event), MUSTER_INVALID);
    drive_finish(&d);
}

static void an_epoch_beyond_31_bits_is_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 1, 0);
    struct muster_event event = join_event(&d, "a0", 0, UINT32_MAX);
    assert_int_equal(drive_once(&d, &event), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "epoch 4294967295 is over 2147483647");
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_after_is_higher_in_every_epoch),
        cmocka_unit_test(a_restart_raises_the_epoch_and_goes_on_counting),
        cmocka_unit_test(a_joiner_raises_the_epoch_by_a_day_at_most),
        cmocka_unit_test(an_epoch_beyond_31_bits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
