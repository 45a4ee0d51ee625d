/*
 * Every algorithm is executed on integers, out of place and in place, by an interpreter that shares
 * no code with the checker, and the results are compared with sums computed directly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"

static void execute(size_t algorithm, const struct muster_plan *plan, bool in_place, bool uneven,
                    uint64_t *random)
{
    struct muster_plan chosen = *plan;
    chosen.in_place = in_place;
    struct test_job job = test_job_create(algorithm, &chosen, uneven);
    char why[MUSTER_CHECK_TEXT_MAX];
    if (!test_execute(&job, job.schedules, in_place, random, why)) {
        print_error("%s %s, %u ranks, count %llu: %s\n", muster_collective_name(plan->collective),
                    muster_algorithms[algorithm].name, job.ranks, (unsigned long long)plan->count,
                    why);
        fail();
    }
    test_job_finish(&job);
}

static bool may_be_uneven(const struct muster_plan *plan)
{
    return plan->collective == MUSTER_REDUCE_SCATTER ||
           muster_collective_needs_bounds(plan->collective);
}

static void execute_everywhere(bool in_place)
{
    uint64_t random = test_seed();
    const uint32_t hosts[][4] = {{1},    {2},    {3},    {4},         {5},       {7},
                                 {8},    {2, 2}, {4, 4}, {3, 1, 4},   {1, 1, 1}, {2, 3, 2, 1},
                                 {5, 2}, {1, 6}, {13},   {4, 4, 4, 4}};
    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0]; h++) {
        struct muster_topology topology = test_topology(4, hosts[h]);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            const uint64_t counts[] = {1, topology.ranks, 3 * topology.ranks + 2, 9000};
            for (size_t c = 0; c < (topology.ranks > 8 ? 3 : 4); c++) {
                struct muster_plan plan =
                    test_plan(algorithm, &topology, counts[c], (uint32_t)c % topology.ranks);
                if (test_fits(algorithm, &plan)) {
                    execute(algorithm, &plan, in_place, c == 2 && may_be_uneven(&plan), &random);
                }
            }
        }
        muster_topology_finish(&topology);
    }
}

static void all_algorithms_give_the_right_numbers_out_of_place(void **state)
{
    (void)state;
    execute_everywhere(false);
}

static void all_algorithms_give_the_right_numbers_in_place(void **state)
{
    (void)state;
    execute_everywhere(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_algorithms_give_the_right_numbers_out_of_place),
        cmocka_unit_test(all_algorithms_give_the_right_numbers_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
