/* The set of ranges against a table of bytes, by seed; MUSTER_SEED=N runs that seed alone. */
#include "worker/memory/range_set.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 40, SEEDS = 200, STEPS = 200 };

static uint64_t state_of_random;

static uint32_t below(uint32_t bound)
{
    uint64_t z = (state_of_random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % bound);
}

static void check(const struct muster_range_set *set, const bool *table)
{
    for (uintptr_t begin = 0; begin < BYTES; begin++) {
        bool all = true;
        for (uintptr_t end = begin; end <= BYTES; end++) {
            all = all && (end == begin || table[end - 1]);
            assert_int_equal(
                muster_range_set_contains(set, (struct muster_address_range){begin, end}), all);
        }
    }
    for (size_t i = 0; i < set->count; i++) {
        assert_true(set->ranges[i].begin < set->ranges[i].end);
        assert_true(i == 0 || set->ranges[i - 1].end < set->ranges[i].begin);
    }
}

static void test_it_has_what_a_table_of_bytes_has(void **state)
{
    (void)state;
    static struct muster_range_set set;
    const char *only = getenv("MUSTER_SEED");
    uint64_t seed = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t seed_end = only != NULL ? seed + 1 : seed + SEEDS;
    print_message("MUSTER_SEED=%" PRIu64 " and following\n", seed);
    for (; seed < seed_end; seed++) {
        bool table[BYTES] = {0};
        state_of_random = seed;
        set.count = 0;
        for (int i = 0; i < STEPS; i++) {
            uintptr_t begin = below(BYTES);
            struct muster_address_range range = {begin,
                                                 begin + below((uint32_t)(BYTES - begin) + 1)};
            bool add = below(2) == 0;
            if (add) {
                assert_true(muster_range_set_add(&set, range));
            } else {
                muster_range_set_remove(&set, range);
            }
            memset(table + begin, add, range.end - begin);
            check(&set, table);
        }
    }
}

static void test_a_full_set_takes_no_more_and_loses_rather_than_breaks(void **state)
{
    (void)state;
    static struct muster_range_set set;
    set.count = 0;
    for (uintptr_t i = 0; i < MUSTER_RANGE_SET_MAX; i++) {
        assert_true(muster_range_set_add(&set, (struct muster_address_range){10 * i, 10 * i + 6}));
    }
    uintptr_t end = (uintptr_t)10 * MUSTER_RANGE_SET_MAX;
    assert_false(muster_range_set_add(&set, (struct muster_address_range){end, end + 1}));
    assert_int_equal(set.count, MUSTER_RANGE_SET_MAX);
    assert_true(muster_range_set_add(
        &set, (struct muster_address_range){3, 8})); /* it only widens a range */
    muster_range_set_remove(&set, (struct muster_address_range){13, 14});
    assert_int_equal(set.count, MUSTER_RANGE_SET_MAX);
    assert_true(muster_range_set_contains(&set, (struct muster_address_range){10, 13}));
    assert_false(muster_range_set_contains(&set, (struct muster_address_range){14, 15}));
    assert_true(muster_range_set_contains(&set, (struct muster_address_range){20, 26}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_has_what_a_table_of_bytes_has),
        cmocka_unit_test(test_a_full_set_takes_no_more_and_loses_rather_than_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
