/* Hierarchical algorithms: all pairs of exchanges of allreduces, all rows, leaders, racks, ragged
 * hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/hierarchy.h"
#include "collectives/call/call.h"
#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"

enum { HOSTS_MAX = 12 };

static size_t numbered(const char *name)
{
    size_t algorithm = 0;
    if (muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    return algorithm;
}

/* Proves the schedules, and compares their rounds and elements with the formula. */
static void prove_plan(size_t algorithm, const struct muster_plan *plan, bool uneven)
{
    struct test_job job = test_job_create(algorithm, plan, uneven);
    struct muster_check_result result = test_prove(&job);
    struct muster_formula formula;
    muster_algorithm_formula(algorithm, &job.plans[0], &formula);
    if (!result.proven || result.rounds != formula.rounds ||
        result.elements_sent_max != formula.elements) {
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        muster_algorithm_print(algorithm, name, sizeof name);
        fail_msg(
            "%s %s on %u hosts in %u racks, count %llu: %u rounds of %u, %llu elements of %llu",
            muster_collective_name(plan->collective), name, plan->topology->hosts,
            plan->topology->racks, (unsigned long long)plan->count, result.rounds, formula.rounds,
            (unsigned long long)result.elements_sent_max, (unsigned long long)formula.elements);
    }
    test_job_finish(&job);
}

static void prove(size_t algorithm, const struct muster_topology *topology, uint64_t count)
{
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = topology, .count = count};
    prove_plan(algorithm, &plan, false);
}

/* All hierarchical rows, each with a random count, root and blocks. */
static void prove_rows(const struct muster_topology *topology, uint64_t *random)
{
    for (size_t row = 0; row < muster_algorithm_count; row++) {
        uint32_t root = test_random_below(random, topology->ranks);
        if (muster_algorithms[row].fits == muster_hierarchical_fits) {
            struct muster_plan plan = test_plan(row, topology, test_random_below(random, 40), root);
            bool uneven =
                plan.collective == MUSTER_REDUCE_SCATTER && test_random_below(random, 2) == 0;
            prove_plan(row, &plan, uneven);
        }
    }
}

/* The number of an allreduce with these parameters. */
static size_t variant_of(unsigned local, unsigned cross, unsigned world, unsigned leaders,
                         unsigned flat)
{
    size_t variant = MUSTER_HIERARCHY(local, cross, world, leaders, flat);
    return numbered("hierarchical") + variant * MUSTER_ALGORITHM_ROWS_MAX;
}

/* The number of the same algorithm in 2^doublings pieces. */
static size_t in_pieces(size_t algorithm, unsigned doublings)
{
    return algorithm + (size_t)MUSTER_HIERARCHY_PIECES(doublings) * MUSTER_ALGORITHM_ROWS_MAX;
}

/* Draws random parameters. */
static size_t any_variant(uint64_t *random)
{
    size_t algorithm = variant_of(test_random_below(random, MUSTER_EXCHANGE_END),
                                  test_random_below(random, MUSTER_EXCHANGE_GROUP),
                                  test_random_below(random, MUSTER_EXCHANGE_GROUP),
                                  test_random_below(random, 4), test_random_below(random, 3) == 0);
    bool whole = test_random_below(random, 2) == 0;
    return whole ? algorithm : in_pieces(algorithm, test_random_below(random, 6));
}

static void all_pairs_of_exchanges_are_proven(void **state)
{
    (void)state;
    static const uint32_t shapes[][4] = {{2, 2, 2, 2}, {3, 1, 4, 0}, {1, 1, 1, 0}, {5, 4, 6, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct muster_topology topology = test_topology(4, shapes[i]);
        for (unsigned local = 1; local < MUSTER_EXCHANGE_END; local++) {
            for (unsigned cross = 1; cross < MUSTER_EXCHANGE_GROUP; cross++) {
                for (unsigned leaders = 0; leaders <= 2; leaders++) {
                    prove(variant_of(local, cross, 0, leaders, 0), &topology, 23);
                }
            }
        }
        muster_topology_finish(&topology);
    }
}

static void all_pairs_of_exchanges_between_hosts_and_racks_are_proven(void **state)
{
    (void)state;
    static const uint32_t shapes[][3] = {{2, 2, 2}, {3, 1, 2}};
    const uint32_t sizes[] = {2, 1, 3, 2, 2, 1};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct muster_topology topology = test_topology(6, sizes);
        assert_int_equal(muster_topology_set_racks(&topology, 3, shapes[i]), MUSTER_OK);
        for (unsigned cross = 1; cross < MUSTER_EXCHANGE_GROUP; cross++) {
            for (unsigned world = 1; world < MUSTER_EXCHANGE_GROUP; world++) {
                prove(variant_of(0, cross, world, 0, 0), &topology, 29);
                prove(variant_of(0, cross, world, 0, 1), &topology, 3);
            }
        }
        muster_topology_finish(&topology);
    }
}

/* The counts are below, at and far above the numbers of pieces. */
static void every_number_of_pieces_is_proven(void **state)
{
    (void)state;
    static const uint32_t shapes[][4] = {{2, 2, 2, 2}, {3, 1, 4, 2}, {1, 1, 1, 1}};
    static const uint64_t counts[] = {0, 1, 3, 16, 61, 1000003};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct muster_topology topology = test_topology(4, shapes[i]);
        for (unsigned doublings = 1; doublings <= 7; doublings++) {
            for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
                prove(in_pieces(numbered("hierarchical"), doublings), &topology, counts[j]);
                prove(in_pieces(variant_of(0, MUSTER_EXCHANGE_RING, 0, 0, 0), doublings), &topology,
                      counts[j]);
            }
        }
        muster_topology_finish(&topology);
    }
}

/* The links between hosts do not wait for the work within hosts. */
static void pieces_hide_the_work_within_hosts(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(8, 4);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 16 << 20};
    struct muster_cost_model model = muster_cost_model_default;
    double whole_us = 0, pieces_us = 0;
    /* 2n bytes are sent within each host and 1.5n between hosts: most of the former is hidden.
     */
    model.links[MUSTER_LEVEL_RACK].bandwidth_GBps = model.links[MUSTER_LEVEL_RACK].shared_GBps =
        0.1;
    model.links[MUSTER_LEVEL_HOST].bandwidth_GBps = model.links[MUSTER_LEVEL_HOST].shared_GBps =
        0.2;
    assert_int_equal(
        muster_simulate_us(numbered("hierarchical_ring"), &plan, 4, &model, 0, &whole_us),
        MUSTER_OK);
    assert_int_equal(
        muster_simulate_us(numbered("hierarchical_pipelined_64"), &plan, 4, &model, 0, &pieces_us),
        MUSTER_OK);
    if (pieces_us > 0.7 * whole_us) {
        fail_msg("%.0f us in pieces, %.0f whole", pieces_us, whole_us);
    }
    muster_topology_finish(&topology);
}

/* Also with racks, and with different parameters each time. */
static void all_ragged_topologies_of_five_hosts_by_four_ranks_are_proven(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t hosts = 2; hosts <= 5; hosts++) {
        for (uint32_t number = 0; number < UINT32_C(1) << 2 * hosts; number++) {
            uint32_t sizes[5];
            for (uint32_t host = 0; host < hosts; host++) {
                sizes[host] = 1 + (number >> 2 * host & 3);
            }
            struct muster_topology topology = test_topology(hosts, sizes);
            if (number % 2 == 1) {
                test_racks(&topology, &random);
            }
            prove_rows(&topology, &random);
            prove(any_variant(&random), &topology, test_random_below(&random, 40));
            muster_topology_finish(&topology);
        }
    }
}

static void random_topologies_are_proven(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 150; i++) {
        struct muster_topology topology = test_topology_random(2, HOSTS_MAX, 6, &random);
        test_racks(&topology, &random);
        for (int j = 0; j < 4; j++) {
            prove(any_variant(&random), &topology, test_random_below(&random, 300));
        }
        muster_topology_finish(&topology);
    }
}

/* The shortest time of all rows of allreduce, or of all parameters with two levels. */
static double fastest_us(const struct muster_plan *plan, bool rows, double limit_us)
{
    double best_us = limit_us;
    for (size_t row = 0; rows && row < muster_algorithm_count; row++) {
        double us = 0;
        if (muster_algorithms[row].collective == MUSTER_ALLREDUCE && test_fits(row, plan)) {
            assert_int_equal(
                muster_simulate_us(row, plan, 4, &muster_cost_model_default, best_us, &us),
                MUSTER_OK);
            best_us = best_us == 0 || us < best_us ? us : best_us;
        }
    }
    for (unsigned number = 0; !rows && number < 3 * MUSTER_EXCHANGE_GROUP * MUSTER_EXCHANGE_GROUP;
         number++) {
        double us = 0;
        unsigned pair = number / 3;
        size_t algorithm = variant_of(pair % MUSTER_EXCHANGE_GROUP, pair / MUSTER_EXCHANGE_GROUP, 0,
                                      number % 3, 0);
        assert_int_equal(
            muster_simulate_us(algorithm, plan, 4, &muster_cost_model_default, best_us, &us),
            MUSTER_OK);
        best_us = us < best_us ? us : best_us;
    }
    return best_us;
}

static void no_variant_is_much_faster_than_the_best_row(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{4, 2}, {8, 2}, {8, 4}, {16, 2}, {15, 3}, {16, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct muster_topology topology = test_topology_even(shapes[i][0], shapes[i][1]);
        for (uint64_t count = 1; count <= 4 << 20; count *= 16) {
            const struct muster_plan plan = {
                .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
            double rows_us = fastest_us(&plan, true, 0);
            double all_us = fastest_us(&plan, false, rows_us);
            if (rows_us > 1.15 * all_us) {
                fail_msg("%u ranks on %u hosts, count %llu: %.1f us, at best %.1f", shapes[i][0],
                         shapes[i][1], (unsigned long long)count, rows_us, all_us);
            }
        }
        muster_topology_finish(&topology);
    }
}

static void a_variant_is_printed_as_it_is_parsed(void **state)
{
    (void)state;
    static const char *const names[] = {
        "hierarchical",
        "hierarchical_ring",
        "hierarchical(cross=swing)",
        "hierarchical(local=ring_whole,cross=halving_doubling,world=binomial)",
        "hierarchical(local=ring,leaders=255,levels=2)",
        "hierarchical(leaders=2)",
        "hierarchical(cross=bcube,leaders=3,levels=2,pieces=128)",
        "hierarchical(pieces=2)",
        "hierarchical_pipelined",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        muster_algorithm_print(numbered(names[i]), name, sizeof name);
        assert_string_equal(name, names[i]);
    }
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(UINT32_MAX, name, sizeof name);
    assert_string_equal(name, "unknown");
    muster_algorithm_print(variant_of(15, 0, 0, 0, 0), name,
                           sizeof name); /* as it may come from the wire */
    assert_string_equal(name, "hierarchical(local=unknown)");
}

static void invalid_parameters_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *expected;
    } wrong[] = {
        {"hierarchical()", "\"\" is none of local=, cross="},
        {"hierarchical(cross=swing", "the closing bracket is missing"},
        {"hierarchical(cross)", "\"cross\" is none of"},
        {"hierarchical(cross=)", "cross=: must be one of pairwise, binomial"},
        {"hierarchical(cross=tree)", "cross=tree: must be one of pairwise, binomial"},
        {"hierarchical(cross=ring,cross=ring)", "cross is given twice"},
        {"hierarchical(cross=group)", "cross=group: group is an exchange within hosts"},
        {"hierarchical(local=group,world=group)", "world=group: group is an exchange within hosts"},
        {"hierarchical(leaders=0)", "leaders=0: must be a number from 1 to 255"},
        {"hierarchical(leaders=256)", "from 1 to 255"},
        {"hierarchical(levels=3)", "levels=3: must be a number from 2 to 2"},
        {"hierarchical(pieces=1)", "pieces=1: must be a number from 2 to 128"},
        {"hierarchical(pieces=129)", "pieces=129: must be a number from 2 to 128"},
        {"hierarchical(pieces=48)", "pieces=48: must be a power of two"},
        {"hierarchical(speed=9)", "\"speed\" is none of"},
        {"ring(cross=swing)", "algorithm ring takes nothing in brackets"},
        {"hierarchical_ring(local=ring)", "takes nothing in brackets"},
        {"hierarchica(local=ring)", "allreduce has no algorithm"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t algorithm = 77;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, wrong[i].name, &algorithm),
                         MUSTER_INVALID);
        assert_int_equal(algorithm, 77);
        if (strstr(muster_last_error(), wrong[i].expected) == NULL) {
            fail_msg("%s: \"%s\" does not contain \"%s\"", wrong[i].name, muster_last_error(),
                     wrong[i].expected);
        }
    }
}

static void members_that_differ_see_both_names(void **state)
{
    (void)state;
    const struct muster_call here = {.collective = MUSTER_ALLREDUCE,
                                     .algorithm = (uint32_t)numbered("hierarchical(cross=swing)")};
    struct muster_call there = here;
    there.algorithm = (uint32_t)numbered("hierarchical(cross=ring,leaders=1)");
    char text[256];
    assert_false(muster_call_matches(&here, &there, text, sizeof text));
    assert_string_equal(text,
                        "algorithm hierarchical(cross=swing) here, "
                        "hierarchical(cross=ring,leaders=1) there");
}

/* No name has such a number: only an error could produce it. */
static void impossible_numbers_are_refused(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(4, 2);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 4};
    const size_t wrong[] = {muster_algorithm_count, variant_of(15, 0, 0, 0, 0),
                            numbered("ring") + MUSTER_ALGORITHM_ROWS_MAX, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(muster_plan_check(wrong[i], &plan), MUSTER_INVALID);
    }
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_of_exchanges_are_proven),
        cmocka_unit_test(all_pairs_of_exchanges_between_hosts_and_racks_are_proven),
        cmocka_unit_test(every_number_of_pieces_is_proven),
        cmocka_unit_test(pieces_hide_the_work_within_hosts),
        cmocka_unit_test(all_ragged_topologies_of_five_hosts_by_four_ranks_are_proven),
        cmocka_unit_test(random_topologies_are_proven),
        cmocka_unit_test(no_variant_is_much_faster_than_the_best_row),
        cmocka_unit_test(a_variant_is_printed_as_it_is_parsed),
        cmocka_unit_test(invalid_parameters_are_refused),
        cmocka_unit_test(members_that_differ_see_both_names),
        cmocka_unit_test(impossible_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
