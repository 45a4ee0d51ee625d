/* The cache of registrations, case by case, with a simulated device, address space and watch. */
#include "tests/support/registrations_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_memory_is_registered_in_blocks_clipped_to_the_usable_range(void **state)
{
    (void)state;
    model_begin(UINT64_MAX, true);
    struct muster_usable_range usable = model_memory(100, BLOCK + 5000);
    uintptr_t space = (uintptr_t)usable.base - 100;
    assert_int_equal(model_hold(&usable, 10, usable.size_bytes - 10), BLOCK - 110);
    assert_int_equal(model.regions[0]->begin, space);
    assert_int_equal(model.regions[0]->end, space + BLOCK);
    assert_int_equal(model_hold(&usable, BLOCK - 100, 5000), 5000);
    assert_int_equal(model.regions[1]->begin, space + BLOCK);
    assert_int_equal(model.regions[1]->end, space + BLOCK + 2 * model.page);
    assert_int_equal(model_hold(&usable, BLOCK - 100, 5000), 5000); /* held twice */
    assert_int_equal(model.region_count, 2);
    model_finish();
}

static void test_only_watched_memory_stays_registered_after_its_transfer(void **state)
{
    (void)state;
    model_begin(UINT64_MAX, true);
    struct muster_usable_range watched = model_memory(0, 3 * BLOCK / 2);
    struct muster_usable_range other = model_memory(2 * BLOCK, BLOCK / 2);
    for (int round = 0; round < 3; round++) {
        struct muster_usable_range ranges[] = {watched, other};
        assert_true(model_hold(&ranges[0], 0, BLOCK / 2) > 0);
        assert_true(model_hold(&ranges[1], 0, BLOCK / 2) > 0);
        model_release(0);
        model_release(0);
        model_end(&ranges[0]);
        model_end(&ranges[1]);
    }
    struct muster_registrations_figures figures = muster_registrations_figures(model.registrations);
    assert_int_equal(figures.misses, 1 + 3);
    assert_int_equal(figures.hits, 2);
    assert_int_equal(figures.count, 1);
    assert_int_equal(figures.evictions, 0);
    model_finish();
}

static void test_without_a_watch_nothing_stays_registered(void **state)
{
    (void)state;
    model_begin(UINT64_MAX, false);
    struct muster_usable_range usable = model_memory(0, BLOCK);
    assert_true(model_hold(&usable, 0, BLOCK) > 0);
    struct muster_usable_range ended = usable;
    model_end(&ended);
    assert_int_equal(model.region_count, 1); /* held */
    model_unmap(0, 1);
    assert_true(model_hold(&usable, 0, BLOCK) >
                0); /* a new one: the old one is not of the present memory */
    assert_int_equal(model.region_count, 2);
    model_release(0);
    assert_int_equal(model.region_count, 1);
    model_finish();
}

static void test_an_allocation_is_registered_once_until_it_is_freed(void **state)
{
    (void)state;
    model_begin(UINT64_MAX, true);
    assert_int_equal(muster_alloc(PIECE_BYTES, &model.pieces[0].memory), MUSTER_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < PIECE_BYTES; at += 10000) {
            size_t size = PIECE_BYTES - at < 10000 ? PIECE_BYTES - at : 10000;
            struct muster_usable_range usable = {.base = (char *)model.pieces[0].memory + at,
                                                 .size_bytes = size};
            for (size_t done = 0; done < size;) {
                size_t covered = model_hold(&usable, done, size - done);
                assert_true(covered > 0);
                done += covered;
                model_release(0);
            }
            model_end(&usable);
        }
    }
    /* It lies in up to four blocks. */
    assert_true(model.region_count >= 3 && model.region_count <= 4);
    assert_int_equal(muster_registrations_figures(model.registrations).misses, model.region_count);
    muster_free(model.pieces[0].memory);
    model.pieces[0].memory = NULL;
    struct muster_usable_range other = model_memory(0, 1);
    assert_int_equal(model_hold(&other, 0, 1), 1);
    assert_int_equal(model.region_count, 1);
    model_finish();
}

static void test_the_least_recently_held_registration_is_evicted(void **state)
{
    (void)state;
    model_begin(2 * BLOCK, true);
    struct muster_usable_range ranges[] = {model_memory(0, BLOCK), model_memory(BLOCK, BLOCK),
                                           model_memory(2 * BLOCK, BLOCK)};
    assert_true(model_hold(&ranges[0], 0, 1) > 0);
    assert_true(model_hold(&ranges[1], 0, 1) > 0);
    assert_true(model_hold(&ranges[2], 0, 1) == 0); /* both are held */
    model_release(1);
    model_release(0);
    assert_true(model_hold(&ranges[2], 0, 1) > 0); /* the second one was evicted */
    assert_true(model_hold(&ranges[0], 0, 1) > 0);
    struct muster_registrations_figures figures = muster_registrations_figures(model.registrations);
    assert_int_equal(figures.hits, 1);
    assert_int_equal(figures.evictions, 1);
    assert_int_equal(figures.refused, 1);
    model_finish();
}

static void test_a_device_without_memory_gets_some_back(void **state)
{
    (void)state;
    model_begin(4 * BLOCK, true);
    struct muster_usable_range ranges[] = {model_memory(0, BLOCK), model_memory(BLOCK, BLOCK),
                                           model_memory(2 * BLOCK, BLOCK)};
    model.limit_bytes = 2 * BLOCK;
    for (int i = 0; i < 3; i++) {
        assert_true(model_hold(&ranges[i], 0, 1) > 0);
        model_release(0);
    }
    assert_int_equal(muster_registrations_figures(model.registrations).evictions, 1);
    model.limit_bytes = UINT64_MAX;
    model.refusal = EFAULT; /* eviction would not help */
    assert_true(model_hold(&ranges[0], 0, 1) == 0);
    assert_int_equal(model.region_count, 2);
    model_finish();
}

static void test_the_bound_is_a_share_of_what_may_be_locked_and_of_the_memory(void **state)
{
    (void)state;
    assert_int_equal(muster_registrations_bound(8 << 20, (uint64_t)64 << 30), 4 << 20);
    assert_int_equal(muster_registrations_bound(UINT64_MAX, (uint64_t)64 << 30),
                     (uint64_t)16 << 30);
    assert_int_equal(muster_registrations_bound((uint64_t)64 << 30, (uint64_t)64 << 30),
                     (uint64_t)16 << 30);
    assert_int_equal(muster_registrations_bound(0, (uint64_t)64 << 30), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_registered_in_blocks_clipped_to_the_usable_range),
        cmocka_unit_test(test_only_watched_memory_stays_registered_after_its_transfer),
        cmocka_unit_test(test_without_a_watch_nothing_stays_registered),
        cmocka_unit_test(test_an_allocation_is_registered_once_until_it_is_freed),
        cmocka_unit_test(test_the_least_recently_held_registration_is_evicted),
        cmocka_unit_test(test_a_device_without_memory_gets_some_back),
        cmocka_unit_test(test_the_bound_is_a_share_of_what_may_be_locked_and_of_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
