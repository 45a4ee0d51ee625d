/* Order statistics against their definitions. */
#include "tests/support/schedules.h"
#include "worker/base/statistics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RUNS = 2000, COUNT_MAX = 40 };

static size_t draw(uint64_t *random, double *ret_values)
{
    size_t count = 1 + test_random_below(random, COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        ret_values[i] = (double)test_random_below(random, 20) - 10; /* often equal ones */
    }
    return count;
}

static size_t count_below(const double *values, size_t count, double limit)
{
    size_t below = 0;
    for (size_t i = 0; i < count; i++) {
        below += values[i] < limit ? 1 : 0;
    }
    return below;
}

static size_t count_above(const double *values, size_t count, double limit)
{
    size_t above = 0;
    for (size_t i = 0; i < count; i++) {
        above += values[i] > limit ? 1 : 0;
    }
    return above;
}

static void half_of_the_values_lie_on_each_side_of_a_median(void **state)
{
    (void)state;
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        double values[COUNT_MAX];
        size_t count = draw(&random, values);
        double low = muster_statistics_median_low(values, count);
        double high = muster_statistics_median_high(values, count);
        assert_true(low <= high);
        assert_true(count % 2 == 0 || low == high);
        assert_true(count_below(values, count, low) <= (count - 1) / 2);
        assert_true(count_above(values, count, low) <= count / 2);
        assert_true(count_below(values, count, high) <= count / 2);
        assert_true(count_above(values, count, high) <= (count - 1) / 2);
    }
}

static void the_medians_of_an_even_count_are_its_two_middle_values(void **state)
{
    (void)state;
    double values[] = {4, 1, 3, 2};
    assert_true(muster_statistics_median_low(values, 4) == 2);
    assert_true(muster_statistics_median_high(values, 4) == 3);
}

static void a_percentile_is_the_smallest_value_that_enough_do_not_exceed(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 1};
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        double values[COUNT_MAX];
        size_t count = draw(&random, values);
        muster_statistics_sort(values, count);
        for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
            double found = muster_statistics_percentile(values, count, shares[i]);
            size_t not_above = count - count_above(values, count, found);
            assert_true((double)not_above >= shares[i] * (double)count);
            assert_true((double)count_below(values, count, found) <= shares[i] * (double)count);
        }
        assert_true(muster_statistics_percentile(values, count, 0) == values[0]);
        assert_true(muster_statistics_percentile(values, count, 1) == values[count - 1]);
        assert_true(muster_statistics_percentile(values, count, 0.5) ==
                    muster_statistics_median_low(values, count));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_values_lie_on_each_side_of_a_median),
        cmocka_unit_test(the_medians_of_an_even_count_are_its_two_middle_values),
        cmocka_unit_test(a_percentile_is_the_smallest_value_that_enough_do_not_exceed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
