/* Large jobs are proven too: 192 ranks, and 1024 if each rank has few steps. With an argument
 * always 1024 ranks; then the time of each proof and the peak memory are printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "tests/support/schedules.h"
#include "worker/base/clock.h"

enum { RANKS = 1024, FEWER_RANKS = 192, HOSTS = 32, STEPS_MAX = 256 };

static bool all; /* every row on RANKS */

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

/* The steps of the busiest rank; 0 if the algorithm does not fit. */
static size_t prove(size_t algorithm, uint32_t ranks)
{
    struct muster_topology topology = test_topology_even(ranks, HOSTS);
    bool in_all = muster_algorithms[algorithm].collective == MUSTER_ALLREDUCE;
    struct muster_plan plan =
        test_plan(algorithm, &topology, in_all ? 2 * ranks + 1 : 1, ranks / 3);
    size_t steps = 0;
    if (test_fits(algorithm, &plan)) {
        int64_t start_ns = muster_clock_ns();
        struct test_job job = test_job_create(algorithm, &plan, false);
        assert_true(test_prove(&job).proven);
        if (all) {
            print(&job, (double)(muster_clock_ns() - start_ns) / 1e9);
        }
        steps = steps_of(&job);
        test_job_finish(&job);
    }
    muster_topology_finish(&topology);
    return steps;
}

static void every_algorithm_is_proven_for_many_ranks(void **state)
{
    (void)state;
    size_t largest = 0;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        size_t steps = prove(algorithm, FEWER_RANKS);
        if (all || steps <= STEPS_MAX) {
            (void)prove(algorithm, RANKS);
            largest++;
        }
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
