/* Large jobs are proven too: 1024 ranks, or 192 where each rank has thousands of steps; with an
 * argument always 1024, and how long each took and the most memory so far, for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "tests/support/schedules.h"
#include "worker/base/clock.h"

enum { RANKS = 1024, FEWER_RANKS = 192, HOSTS = 32, STEPS_MAX = 2100 };

static bool all; /* rows on RANKS */

static size_t steps_of(const struct test_job *job)
{
    size_t most = 0;
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        size_t steps = job->schedules[rank].step_count;
        most = steps > most ? steps : most;
    }
    return most;
}

static void print(const struct test_job *job, double took_s)
{
    struct rusage usage = {0};
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    (void)printf("%s %s, P = %u: up to %zu steps a rank, %.2f s, at most %ld MiB\n",
                 muster_collective_name(job->plans[0].collective),
                 muster_algorithms[job->algorithm].name, job->ranks, steps_of(job), took_s,
                 usage.ru_maxrss / 1024);
}

/* False if it has too many steps. */
static bool prove(size_t algorithm, uint32_t ranks, size_t steps_max)
{
    struct muster_topology topology = test_topology_even(ranks, HOSTS);
    bool in_all = muster_algorithms[algorithm].collective == MUSTER_ALLREDUCE;
    struct muster_plan plan =
        test_plan(algorithm, &topology, in_all ? 2 * ranks + 1 : 1, ranks / 3);
    bool few = true;
    if (test_fits(algorithm, &plan)) {
        int64_t start_ns = muster_clock_ns();
        struct test_job job = test_job_create(algorithm, &plan, false);
        few = steps_of(&job) <= steps_max;
        assert_true(!few || test_prove(&job).proven);
        if (all) {
            print(&job, (double)(muster_clock_ns() - start_ns) / 1e9);
        }
        test_job_finish(&job);
    }
    muster_topology_finish(&topology);
    return few;
}

static void every_algorithm_is_proven_for_many_ranks(void **state)
{
    (void)state;
    size_t largest = 0;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        bool proven = prove(algorithm, RANKS, all ? SIZE_MAX : STEPS_MAX);
        largest += proven ? 1 : 0;
        assert_true(proven || prove(algorithm, FEWER_RANKS, SIZE_MAX));
    }
    print_message("%zu of %zu algorithms on %d ranks\n", largest, muster_algorithm_count, RANKS);
    assert_true(largest >= 10);
}

int main(int argc, char **argv)
{
    (void)argv;
    all = argc > 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_proven_for_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
