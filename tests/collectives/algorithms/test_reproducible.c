/* Sums whose order of additions depends on the reduction order only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/select/select.h"
#include "tests/support/schedules.h"

enum { RANKS_MAX = 64 };

/* A random order of ranks. */
static void shuffle(uint32_t *reduction_order, uint32_t ranks, uint64_t *random)
{
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t other = test_random_below(random, i + 1);
        reduction_order[i] = reduction_order[other];
        reduction_order[other] = i;
    }
}

/* With shapes that have a reduction order the checker demands it. */
static void prove_one(size_t algorithm, const struct muster_plan *plan, bool uneven)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct muster_check_result result = test_prove(&job);
    assert_true(result.proven);
    struct muster_formula formula;
    muster_algorithm_formula(algorithm, &job.plans[0], &formula);
    assert_int_equal(result.rounds, formula.rounds);
    assert_int_equal(result.elements_sent_max, formula.elements);
    test_job_finish(&job);
}

static void prove(const struct muster_topology *topology, uint64_t count, uint64_t *random)
{
    uint32_t reduction_order[RANKS_MAX];
    shuffle(reduction_order, topology->ranks, random);
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        uint32_t root = test_random_below(random, topology->ranks);
        struct muster_plan plan = test_plan(i, topology, count, root);
        plan.reduction_order = reduction_order;
        if (test_fits(i, &plan)) {
            assert_true(muster_algorithms[i].reproducible);
            prove_one(i, &plan, false);
            if (plan.collective == MUSTER_REDUCE_SCATTER) {
                prove_one(i, &plan, true);
            }
        }
    }
}

static void a_reproducible_row_is_right_for_any_reduction_order(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct muster_topology topology =
            test_topology_even(ranks, 1 + test_random_below(&random, ranks));
        const uint64_t counts[] = {0, 1, ranks, 3 * ranks + 2};
        for (size_t i = 0; i < (ranks <= 20 ? 4 : 1); i++) {
            prove(&topology, counts[(i + ranks) % 4], &random);
        }
        muster_topology_finish(&topology);
    }
}

static void ragged_hosts_do_not_matter(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 100; i++) {
        struct muster_topology topology = test_topology_random(1, 8, 5, &random);
        prove(&topology, test_random_below(&random, 200), &random);
        muster_topology_finish(&topology);
    }
}

static size_t numbered(enum muster_collective collective, const char *name)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    return algorithm;
}

static const uint32_t natural[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/* Schedules that were made without a reduction order, or for another one. */
static void the_checker_finds_another_order(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(5, 2);
    static const char *const names[] = {"ring", "recursive_doubling", "hierarchical"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t algorithm = numbered(MUSTER_ALLREDUCE, names[i]);
        const struct muster_plan plan = test_plan(algorithm, &topology, 12, 0);
        struct test_job job = test_job_create(algorithm, &plan, false);
        assert_true(test_check(&job, job.schedules).proven);
        for (uint32_t rank = 0; rank < job.ranks; rank++) {
            job.shapes[rank].reduction_order = natural;
        }
        const struct muster_check_result result = test_check(&job, job.schedules);
        assert_false(result.proven);
        if (strstr(result.why, "not reduced in the reduction order") == NULL) {
            fail_msg("%s", result.why);
        }
        test_job_finish(&job);
    }
    muster_topology_finish(&topology);
}

static void other_algorithms_are_refused_and_the_fitting_ones_listed(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(6, 2);
    size_t algorithm = numbered(MUSTER_ALLREDUCE, "hierarchical(cross=swing)");
    struct muster_plan plan = test_plan(numbered(MUSTER_ALLREDUCE, "ring_whole"), &topology, 12, 0);
    assert_int_equal(muster_plan_check(algorithm, &plan), MUSTER_OK);
    plan.reduction_order = natural;
    assert_int_equal(muster_plan_check(algorithm, &plan), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "its order of reduction depends on ranks"));
    assert_non_null(
        strstr(muster_last_error(), "these fit: ring_whole, halving_doubling, ordered_hier"));
    muster_topology_finish(&topology);
}

static void only_reproducible_algorithms_are_selected(void **state)
{
    (void)state;
    static const enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER,
                                                         MUSTER_REDUCE};
    for (uint32_t ranks = 1; ranks <= 13; ranks++) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 3 ? 3 : 1);
        for (uint64_t count = 1; count < 1 << 24; count *= 64) {
            for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
                const struct muster_plan plan = {.collective = collectives[i],
                                                 .topology = &topology,
                                                 .count = count,
                                                 .reduction_order = natural};
                size_t algorithm = 0;
                assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &algorithm),
                                 MUSTER_OK);
                assert_true(muster_algorithms[algorithm].reproducible);
            }
        }
        muster_topology_finish(&topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reproducible_row_is_right_for_any_reduction_order),
        cmocka_unit_test(ragged_hosts_do_not_matter),
        cmocka_unit_test(the_checker_finds_another_order),
        cmocka_unit_test(other_algorithms_are_refused_and_the_fitting_ones_listed),
        cmocka_unit_test(only_reproducible_algorithms_are_selected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
