/* Every algorithm of the table is proven, and its schedules come to what its formula says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

enum { RANKS_MAX = 64, COUNTS = 8 };

static void counts_for(uint32_t ranks, uint64_t counts[COUNTS])
{
    const uint64_t all[COUNTS] = {0, 1, ranks - 1, ranks, ranks + 1, 3 * ranks + 2, 5003, 1000003};
    for (size_t i = 0; i < COUNTS; i++) {
        counts[i] = all[i];
    }
}

/* The formula of the busiest rank. In an alltoallv the plan of a rank knows only the rank's own
 * sizes, so all plans are compared; in other collectives one plan gives it. */
static struct muster_formula formula_of(const struct test_job *job)
{
    struct muster_formula formula;
    muster_algorithm_formula(job->algorithm, &job->plans[0], &formula);
    bool all_alike = job->plans[0].collective != MUSTER_ALLTOALLV;
    for (uint32_t rank = 1; !all_alike && rank < job->ranks; rank++) {
        struct muster_formula other;
        muster_algorithm_formula(job->algorithm, &job->plans[rank], &other);
        formula.rounds = other.rounds > formula.rounds ? other.rounds : formula.rounds;
        formula.elements = other.elements > formula.elements ? other.elements : formula.elements;
    }
    return formula;
}

static void prove_one(size_t algorithm, const struct muster_plan *plan, bool uneven)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct muster_check_result result = test_prove(&job);
    assert_true(result.proven);
    struct muster_formula formula = formula_of(&job);
    if (result.rounds != formula.rounds || result.elements_sent_max != formula.elements) {
        print_error("%s %s: %u ranks, %u hosts, count %llu%s\n",
                    muster_collective_name(plan->collective), muster_algorithms[algorithm].name,
                    plan->topology->ranks, plan->topology->hosts, (unsigned long long)plan->count,
                    uneven ? ", uneven" : "");
    }
    assert_int_equal(result.rounds, formula.rounds);
    assert_int_equal(result.elements_sent_max, formula.elements);
    test_job_finish(&job);
}

/* Proves the plan, also in place if that has another schedule, and with uneven blocks if the
 * collective may have them. */
static void prove(size_t algorithm, const struct muster_plan *plan)
{
    if (!test_fits(algorithm, plan)) {
        return;
    }
    prove_one(algorithm, plan, false);
    if (muster_collective_in_place_counts(plan->collective)) {
        struct muster_plan in_place = *plan;
        in_place.in_place = true;
        prove_one(algorithm, &in_place, false);
    }
    if (plan->collective == MUSTER_REDUCE_SCATTER) {
        prove_one(algorithm, plan, true);
    }
}

static void every_algorithm_is_proven_for_1_to_64_ranks_on_one_host(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, 1);
        uint64_t counts[COUNTS];
        counts_for(ranks, counts);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            /* Proofs of large jobs take long: one count for each size, and a different one. */
            for (size_t i = 0; i < (ranks <= 24 ? COUNTS : 1); i++) {
                uint64_t count = counts[(i * 2 + ranks) % COUNTS];
                struct muster_plan plan = test_plan(algorithm, &topology, count, ranks / 3);
                prove(algorithm, &plan);
            }
        }
        muster_topology_finish(&topology);
    }
}

static void every_algorithm_is_proven_for_1_to_64_ranks_on_several_hosts(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
        uint32_t hosts = 2 + ranks % 7 < ranks ? 2 + ranks % 7 : ranks;
        struct muster_topology topology = test_topology_even(ranks, hosts);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            struct muster_plan plan = test_plan(algorithm, &topology, 3 * ranks + 2, ranks - 1);
            prove(algorithm, &plan);
        }
        muster_topology_finish(&topology);
    }
}

static void every_root_is_proven(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 17; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 4 ? 3 : 1);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            if (!muster_collective_has_root(muster_algorithms[algorithm].collective)) {
                continue;
            }
            for (uint32_t root = 0; root < ranks; root++) {
                struct muster_plan plan = test_plan(algorithm, &topology, ranks + 1, root);
                prove(algorithm, &plan);
            }
        }
        muster_topology_finish(&topology);
    }
}

/* In random racks, if `random` is given. */
static void prove_topology(const struct muster_topology *topology, uint64_t count)
{
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        struct muster_plan plan = test_plan(algorithm, topology, count, topology->ranks / 2);
        prove(algorithm, &plan);
    }
}

static void all_ragged_topologies_of_four_hosts_by_three_ranks_are_proven(void **state)
{
    (void)state;
    const uint64_t counts[] = {0, 1, 5, 64};
    for (uint32_t hosts = 1; hosts <= 4; hosts++) {
        uint32_t combinations = 1;
        for (uint32_t host = 0; host < hosts; host++) {
            combinations *= 3;
        }
        for (uint32_t number = 0; number < combinations; number++) {
            uint32_t sizes[4];
            for (uint32_t host = 0, rest = number; host < hosts; host++, rest /= 3) {
                sizes[host] = 1 + rest % 3;
            }
            struct muster_topology topology = test_topology(hosts, sizes);
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                prove_topology(&topology, counts[i]);
            }
            muster_topology_finish(&topology);
        }
    }
}

static void random_ragged_hosts_in_random_racks_are_proven(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 60; i++) {
        struct muster_topology topology = test_topology_random(1, 10, 6, &random);
        test_racks(&topology, &random);
        prove_topology(&topology, test_random_below(&random, 200));
        muster_topology_finish(&topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_proven_for_1_to_64_ranks_on_one_host),
        cmocka_unit_test(every_algorithm_is_proven_for_1_to_64_ranks_on_several_hosts),
        cmocka_unit_test(every_root_is_proven),
        cmocka_unit_test(all_ragged_topologies_of_four_hosts_by_three_ranks_are_proven),
        cmocka_unit_test(random_ragged_hosts_in_random_racks_are_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
