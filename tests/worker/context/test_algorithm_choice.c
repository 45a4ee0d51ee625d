/* Which algorithm a context's calls run with: chosen once for each size class, and nearly the
 * cheapest for every size in it. */
#include "tests/support/schedules.h"
#include "worker/context/algorithm_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 12, HOSTS = 3, ELEMENT_BYTES = 4 };

static struct muster_topology topology;

static int make_topology(void **state)
{
    (void)state;
    topology = test_topology_even(RANKS, HOSTS);
    return 0;
}

static int finish_topology(void **state)
{
    (void)state;
    muster_topology_finish(&topology);
    return 0;
}

static size_t choose(struct muster_choices *choices, uint64_t count)
{
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    size_t algorithm = SIZE_MAX;
    assert_int_equal(muster_choices_make(choices, &plan, ELEMENT_BYTES, &algorithm), MUSTER_OK);
    return algorithm;
}

static double cost_us(uint64_t count, size_t algorithm, const struct muster_cost_model *model)
{
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    double us = 0;
    assert_int_equal(muster_select_cost_us(algorithm, &plan, ELEMENT_BYTES, model, &us), MUSTER_OK);
    return us;
}

static void the_choice_is_made_once_for_a_size_class(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    for (uint64_t count = 1 << 20; count > 15 << 16; count -= 997) {
        (void)choose(&choices, count);
    }
    assert_int_equal(choices.made_count, 1);
    (void)choose(&choices, 15 << 16);
    assert_int_equal(choices.made_count, 2);
    muster_choices_clear(&choices);
    (void)choose(&choices, 1 << 20);
    assert_int_equal(choices.made_count, 1);
}

/* The choice of a size class costs at most 1.2 times the cheapest algorithm for each count. */
static void the_choice_is_nearly_the_cheapest_for_every_count(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    uint32_t calls = 0;
    for (uint64_t count = 0; count < UINT64_C(1) << 26; count += count / 17 + 1, calls++) {
        const struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
        size_t best = 0;
        assert_int_equal(muster_select(&plan, ELEMENT_BYTES, &choices.model, &best), MUSTER_OK);
        size_t algorithm = choose(&choices, count);
        double best_us = cost_us(count, best, &choices.model);
        double us = cost_us(count, algorithm, &choices.model);
        if (us > 1.2 * best_us) {
            fail_msg("count %llu: %s takes %g us, %s %g us", (unsigned long long)count,
                     muster_algorithms[algorithm].name, us, muster_algorithms[best].name, best_us);
        }
    }
    assert_true(choices.made_count < calls);
}

static void the_largest_count_has_a_choice(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    uint64_t most = 1;
    for (uint64_t step = UINT64_C(1) << 62; step > 0; step /= 2) {
        const struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = most + step};
        most += muster_plan_check(0, &plan) == MUSTER_OK ? step : 0;
    }
    (void)choose(&choices, most);
}

/* More size classes than the table has room for: the oldest are evicted, and chosen again. */
static void choices_work_when_the_table_is_full(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    for (uint64_t count = 1; count < UINT64_C(1) << 24; count += count / 9 + 1) {
        size_t first = choose(&choices, count);
        assert_int_equal(choose(&choices, count), first);
    }
    assert_true(choices.made_count > MUSTER_CHOICES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_made_once_for_a_size_class),
        cmocka_unit_test(the_choice_is_nearly_the_cheapest_for_every_count),
        cmocka_unit_test(the_largest_count_has_a_choice),
        cmocka_unit_test(choices_work_when_the_table_is_full),
    };
    return cmocka_run_group_tests(tests, make_topology, finish_topology);
}
