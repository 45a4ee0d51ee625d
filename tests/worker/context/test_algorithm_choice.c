/* What a context's calls run with: once chosen for calls of about the same size, and by any member
 * alike. */
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

static size_t made(struct muster_choices *choices, uint64_t count)
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

static void calls_of_about_the_same_size_are_chosen_for_once(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    for (uint64_t count = 1 << 20; count > 15 << 16; count -= 997) {
        (void)made(&choices, count);
    }
    assert_int_equal(choices.made_count, 1);
    (void)made(&choices, 15 << 16);
    assert_int_equal(choices.made_count, 2);
    muster_choices_clear(&choices);
    (void)made(&choices, 1 << 20);
    assert_int_equal(choices.made_count, 1);
}

/* What is chosen for a count is hardly slower for those near it. */
static void the_choice_is_good_for_every_count(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    uint32_t calls = 0;
    for (uint64_t count = 0; count < UINT64_C(1) << 26; count += count / 17 + 1, calls++) {
        const struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
        size_t best = 0;
        assert_int_equal(muster_select(&plan, ELEMENT_BYTES, &choices.model, &best), MUSTER_OK);
        size_t algorithm = made(&choices, count);
        double best_us = cost_us(count, best, &choices.model);
        double us = cost_us(count, algorithm, &choices.model);
        if (us > 1.2 * best_us) {
            fail_msg("count %llu: %s takes %g us, %s %g us", (unsigned long long)count,
                     muster_algorithms[algorithm].name, us, muster_algorithms[best].name, best_us);
        }
    }
    assert_true(choices.made_count < calls);
}

static void sizes_at_the_limit_are_chosen_for_as_they_are(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    uint64_t most = 1;
    for (uint64_t step = UINT64_C(1) << 62; step > 0; step /= 2) {
        const struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = most + step};
        most += muster_plan_check(0, &plan) == MUSTER_OK ? step : 0;
    }
    (void)made(&choices, most);
}

/* More than are kept: the oldest are forgotten, and chosen for again. */
static void the_table_is_bounded(void **state)
{
    (void)state;
    struct muster_choices choices = {.model = muster_cost_model_default};
    for (uint64_t count = 1; count < UINT64_C(1) << 24; count += count / 9 + 1) {
        size_t first = made(&choices, count);
        assert_int_equal(made(&choices, count), first);
    }
    assert_true(choices.made_count > MUSTER_CHOICES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_about_the_same_size_are_chosen_for_once),
        cmocka_unit_test(the_choice_is_good_for_every_count),
        cmocka_unit_test(sizes_at_the_limit_are_chosen_for_as_they_are),
        cmocka_unit_test(the_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, make_topology, finish_topology);
}
