/* Large jobs are proven too: 1024 ranks where each has few steps, else fewer ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

enum { RANKS = 1024, FEWER_RANKS = 192, HOSTS = 32, STEPS_MAX = 128 };

static size_t steps_of(size_t algorithm, const struct muster_plan *plan)
{
    struct muster_plan first = *plan;
    uint64_t bounds[RANKS + 1];
    for (uint32_t rank = 0; rank <= plan->topology->ranks; rank++) {
        bounds[rank] = rank * plan->count;
    }
    if (muster_collective_needs_bounds(plan->collective)) {
        first.output_bounds = bounds;
        first.input_bounds = plan->collective == MUSTER_ALLTOALLV ? bounds : NULL;
    }
    struct muster_schedule schedule;
    assert_int_equal(muster_schedule_generate(algorithm, &first, &schedule), MUSTER_OK);
    size_t steps = schedule.step_count;
    muster_schedule_finish(&schedule);
    return steps;
}

/* True if it was. */
static bool prove_if_few_steps(size_t algorithm, uint32_t ranks, size_t steps_max)
{
    struct muster_topology topology = test_topology_even(ranks, HOSTS);
    struct muster_plan plan = test_plan(algorithm, &topology, 3, ranks / 3);
    bool fits = test_fits(algorithm, &plan);
    bool few = fits && steps_of(algorithm, &plan) <= steps_max;
    if (few) {
        struct test_job job = test_job_create(algorithm, &plan, false);
        assert_true(test_prove(&job).proven);
        test_job_finish(&job);
    }
    muster_topology_finish(&topology);
    return few || !fits;
}

static void every_algorithm_is_proven_for_many_ranks(void **state)
{
    (void)state;
    size_t largest = 0;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        bool proven = prove_if_few_steps(algorithm, RANKS, STEPS_MAX);
        largest += proven ? 1 : 0;
        assert_true(proven || prove_if_few_steps(algorithm, FEWER_RANKS, SIZE_MAX));
    }
    print_message("%zu of %zu algorithms on %d ranks\n", largest, muster_algorithm_count, RANKS);
    assert_true(largest >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_proven_for_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
