/* Large jobs in the simulator. Prints the time of each and the peak memory so far; with an argument
 * also runs the job that takes long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

static void simulate(enum muster_collective collective, const char *name, uint32_t ranks)
{
    struct muster_topology topology = test_topology_even(ranks, ranks / 8);
    const struct muster_plan plan = {
        .collective = collective, .topology = &topology, .count = 1000};
    size_t algorithm = 0;
    double predicted_us = 0;
    int64_t start_ns = muster_clock_ns();
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    assert_int_equal(
        muster_simulate_us(algorithm, &plan, 4, &muster_cost_model_default, 0, &predicted_us),
        MUSTER_OK);
    double took_s = (double)(muster_clock_ns() - start_ns) / 1e9;
    struct rusage usage = {0};
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    (void)printf("%s %s, P = %u on %u hosts: %.0f us predicted in %.1f s, at most %ld MiB\n",
                 muster_collective_name(collective), name, ranks, topology.hosts, predicted_us,
                 took_s, usage.ru_maxrss / 1024);
    /* No message is faster than its latency, and a tree is this deep. */
    assert_true(predicted_us > 10 * muster_cost_model_default.links[MUSTER_LEVEL_RACK].latency_us);
    muster_topology_finish(&topology);
}

static void jobs_of_many_ranks_are_simulated(void **state)
{
    (void)state;
    simulate(MUSTER_ALLREDUCE, "halving_doubling", 16384);
    simulate(MUSTER_BROADCAST, "binomial", 100000);
}

static void allreduces_of_100000_ranks_are_simulated(void **state)
{
    (void)state;
    simulate(MUSTER_ALLREDUCE, "double_tree", 100000);
    simulate(MUSTER_ALLREDUCE, "hierarchical", 100000);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_of_many_ranks_are_simulated)};
    const struct CMUnitTest long_tests[] = {
        cmocka_unit_test(allreduces_of_100000_ranks_are_simulated)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return argc > 1 ? failed + cmocka_run_group_tests(long_tests, NULL, NULL) : failed;
}
