/* Selection: the selected algorithms, and that every rank selects the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/select/select.h"
#include "collectives/simulate/simulate.h"
#include "tests/support/schedules.h"

static const char *choice(enum muster_collective collective, uint32_t ranks, uint32_t hosts,
                          uint64_t count, const struct muster_cost_model *model)
{
    struct muster_topology topology = test_topology_even(ranks, hosts);
    size_t algorithm = SIZE_MAX;
    for (uint32_t rank = 0; rank<ranks; rank += ranks> 40 ? 37 : 1) {
        struct muster_plan plan = {
            .collective = collective, .topology = &topology, .rank = rank, .count = count};
        size_t mine = 0;
        assert_int_equal(muster_select(&plan, 4, model, &mine), MUSTER_OK);
        assert_true(algorithm == SIZE_MAX || mine == algorithm); /* the same on every rank */
        algorithm = mine;
    }
    muster_topology_finish(&topology);
    return muster_algorithms[algorithm].name;
}

static const char *usual(uint32_t ranks, uint32_t hosts, uint64_t count)
{
    return choice(MUSTER_ALLREDUCE, ranks, hosts, count, &muster_cost_model_default);
}

/* Of an allreduce on one host. */
static struct muster_formula formula_of(const char *name, uint32_t ranks, uint64_t count)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm), MUSTER_OK);
    struct muster_topology topology = test_topology_even(ranks, 1);
    struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    struct muster_formula formula;
    muster_algorithms[algorithm].generator->formula(&plan, &formula);
    muster_topology_finish(&topology);
    return formula;
}

static void small_allreduces_take_few_rounds(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 3, 4, 7, 8, 16, 33, 64, 1000};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        assert_true(formula_of(usual(ranks[i], 1, 1), ranks[i], 1).local.messages <=
                    formula_of("recursive_doubling", ranks[i], 1).local.messages);
    }
}

static void large_allreduces_send_few_bytes(void **state)
{
    (void)state;
    const uint32_t ranks[] = {2, 3, 4, 7, 8, 16, 33, 64};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        const char *name = usual(ranks[i], 1, 64 << 20);
        assert_true(formula_of(name, ranks[i], 64 << 20).elements <= 2 * UINT64_C(64) << 20);
    }
}

static void large_calls_between_hosts_are_hierarchical(void **state)
{
    (void)state;
    struct muster_cost_model slow = muster_cost_model_default;
    slow.links[MUSTER_LEVEL_RACK].bandwidth_GBps = 0.1;
    slow.links[MUSTER_LEVEL_RACK].shared_GBps = 0.1;
    const char *name = choice(MUSTER_ALLREDUCE, 18, 3, 1 << 20, &slow);
    assert_true(strncmp(name, "hierarchical", 12) == 0);
    assert_true(strncmp(choice(MUSTER_ALLREDUCE, 120, 5, 4 << 20, &slow), "hierarchical", 12) == 0);
}

static void small_broadcasts_use_a_tree_and_large_ones_a_chain(void **state)
{
    (void)state;
    const struct muster_cost_model *model = &muster_cost_model_default;
    assert_string_equal(choice(MUSTER_BROADCAST, 8, 1, 10, model), "binomial");
    assert_string_equal(choice(MUSTER_BROADCAST, 8, 1, 16 << 20, model), "pipelined");
    assert_string_equal(choice(MUSTER_BROADCAST, 64, 8, 10, model), "hierarchical");
    assert_string_equal(choice(MUSTER_BROADCAST, 64, 8, 64 << 20, model), "pipelined");
}

static void no_choice_depends_on_fixed_sizes(void **state)
{
    (void)state;
    /* If only latency matters, even large calls use few messages after each other. */
    struct muster_cost_model far = muster_cost_model_default;
    far.links[MUSTER_LEVEL_HOST].latency_us = 1e6;
    const char *name = choice(MUSTER_ALLREDUCE, 8, 1, 1 << 20, &far);
    assert_true(formula_of(name, 8, 1 << 20).local.messages <
                formula_of("halving_doubling", 8, 1 << 20).local.messages);
    /* If latency is 0, even small calls send few bytes. */
    struct muster_cost_model near = muster_cost_model_default;
    near.links[MUSTER_LEVEL_HOST].latency_us = 0;
    near.links[MUSTER_LEVEL_HOST].posting_us = 0;
    assert_string_not_equal(choice(MUSTER_ALLREDUCE, 8, 1, 64, &near), "recursive_doubling");
}

static double simulated_us(size_t algorithm, const struct muster_plan *plan,
                           const struct muster_cost_model *model)
{
    double us = 0;
    assert_int_equal(muster_simulate_us(algorithm, plan, 4, model, 0, &us), MUSTER_OK);
    return us;
}

/* Candidates that were not simulated to their end would not have been faster. */
static void no_algorithm_is_much_faster_than_the_selected_one(void **state)
{
    (void)state;
    const uint32_t shapes[][2] = {{3, 1}, {8, 1}, {8, 4}, {12, 3}, {16, 1}};
    const enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_BROADCAST,
                                                  MUSTER_REDUCE_SCATTER};
    for (size_t i = 0; i < 5 * 3 * 8; i++) {
        const uint32_t *shape = shapes[i % 5];
        struct muster_topology topology = test_topology_even(shape[0], shape[1]);
        const struct muster_plan plan = {.collective = collectives[i / 5 % 3],
                                         .topology = &topology,
                                         .count = UINT64_C(1) << 3 * (i / 15)};
        struct muster_cost_model model = muster_cost_model_default;
        model.core.cores = i % 2 == 0 ? 0 : 2;
        size_t chosen = 0;
        assert_int_equal(muster_select(&plan, 4, &model, &chosen), MUSTER_OK);
        double chosen_us = simulated_us(chosen, &plan, &model);
        for (size_t row = 0; row < muster_algorithm_count; row++) {
            if (muster_algorithms[row].collective == plan.collective && test_fits(row, &plan)) {
                assert_true(chosen_us <= 1.04 * simulated_us(row, &plan, &model));
            }
        }
        muster_topology_finish(&topology);
    }
}

static void every_collective_has_an_algorithm_for_every_shape(void **state)
{
    (void)state;
    for (int collective = MUSTER_ALLREDUCE; collective <= MUSTER_BARRIER; collective++) {
        for (uint32_t ranks = 1; ranks <= 36; ranks++) {
            uint64_t count = collective == MUSTER_BARRIER ? 0 : ranks * 100;
            (void)choice((enum muster_collective)collective, ranks, 1, count,
                         &muster_cost_model_default);
        }
    }
}

/* Formula and simulation differ by less than a factor of three where jobs begin to be large.
 * (Formulas assume that all ranks of a host use its memory at the same time, so it is fast enough
 * for all here.)
 */
static void formulas_and_simulations_agree_roughly(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(MUSTER_SELECT_SIMULATED_RANKS_MAX, 1);
    const uint64_t counts[] = {1, 1000, 1000000, 100000000};
    struct muster_cost_model model = muster_cost_model_default;
    model.links[MUSTER_LEVEL_HOST].shared_GBps = 1000;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct muster_plan plan = test_plan(algorithm, &topology, counts[i], 0);
            uint64_t bounds[MUSTER_SELECT_SIMULATED_RANKS_MAX + 1];
            bool needed = muster_collective_needs_bounds(plan.collective);
            for (uint32_t rank = 0; rank <= topology.ranks; rank++) {
                bounds[rank] = rank * counts[i];
            }
            plan.output_bounds = needed ? bounds : NULL;
            plan.input_bounds = plan.collective == MUSTER_ALLTOALLV ? bounds : NULL;
            if (!test_fits(algorithm, &plan)) {
                continue;
            }
            double us = simulated_us(algorithm, &plan, &model);
            double formula_us = muster_cost_formula_us(algorithm, &plan, 4, &model);
            if (!(formula_us < 3 * us && us < 3 * formula_us)) {
                print_error("%s, count %llu: formula %g us, simulated %g us\n",
                            muster_algorithms[algorithm].name, (unsigned long long)counts[i],
                            formula_us, us);
            }
            assert_true(formula_us < 3 * us && us < 3 * formula_us);
        }
    }
    muster_topology_finish(&topology);
}

/* Links between racks are slower than within a rack: a formula that ignored racks would be far off.
 */
static void formulas_tell_hosts_and_racks_apart(void **state)
{
    (void)state;
    static const char *const names[] = {
        "ring",  "ring_chunked", "halving_doubling",     "recursive_doubling",
        "bcube", "hierarchical", "hierarchical_leaders", "hierarchical_doubling"};
    const uint32_t racks[] = {4, 4, 4, 4};
    struct muster_topology topology = test_topology_even(64, 16);
    assert_int_equal(muster_topology_set_racks(&topology, 4, racks), MUSTER_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t algorithm = 0;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, names[i], &algorithm), MUSTER_OK);
        for (uint64_t count = 1; count <= 1 << 24; count *= 64) {
            const struct muster_plan plan = {
                .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
            double us = 0;
            assert_int_equal(
                muster_simulate_us(algorithm, &plan, 4, &muster_cost_model_default, 0, &us),
                MUSTER_OK);
            double formula_us =
                muster_cost_formula_us(algorithm, &plan, 4, &muster_cost_model_default);
            if (!(formula_us < 3 * us && us < 3 * formula_us)) {
                fail_msg("%s, count %llu: formula %g us, simulated %g us", names[i],
                         (unsigned long long)count, formula_us, us);
            }
        }
    }
    muster_topology_finish(&topology);
}

static void an_algorithm_that_does_not_fit_is_refused_with_those_that_do(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(4, 1);
    struct muster_plan plan = {.collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 9};
    size_t hierarchical = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "hierarchical", &hierarchical),
                     MUSTER_OK);
    struct muster_schedule schedule = {.rank = 77};
    assert_int_equal(muster_schedule_generate(hierarchical, &plan, &schedule), MUSTER_INVALID);
    assert_int_equal(schedule.rank, 77);
    assert_non_null(strstr(muster_last_error(), "at least 2 hosts"));
    assert_non_null(strstr(muster_last_error(), "these fit: ring, "));
    double cost_us = 0;
    assert_int_equal(
        muster_select_cost_us(hierarchical, &plan, 4, &muster_cost_model_default, &cost_us),
        MUSTER_INVALID);
    muster_topology_finish(&topology);
}

static void impossible_plans_are_refused(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(4, 2);
    const struct muster_plan right = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 9};
    struct muster_plan wrong = right;
    wrong.rank = 4;
    assert_int_equal(muster_plan_check(0, &wrong), MUSTER_INVALID);
    wrong = right;
    wrong.root = 1;
    assert_int_equal(muster_plan_check(0, &wrong), MUSTER_INVALID);
    wrong = right;
    wrong.collective = MUSTER_BROADCAST;
    assert_int_equal(muster_plan_check(0, &wrong), MUSTER_INVALID);
    wrong = right;
    wrong.count = UINT64_MAX;
    assert_int_equal(muster_plan_check(0, &wrong), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "over the limit"));
    assert_int_equal(muster_plan_check(muster_algorithm_count, &right), MUSTER_INVALID);
    size_t index = 99;
    assert_int_equal(muster_algorithm_find(MUSTER_BARRIER, "ring", &index), MUSTER_INVALID);
    assert_int_equal(index, 99);
    assert_non_null(strstr(muster_last_error(), "dissemination"));
    muster_topology_finish(&topology);
}

static void names_are_unique_within_a_collective(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        size_t found = SIZE_MAX;
        assert_int_equal(muster_algorithm_find(muster_algorithms[i].collective,
                                               muster_algorithms[i].name, &found),
                         MUSTER_OK);
        assert_int_equal(found, i);
    }
}

/* Several ------------------------------------------------------------------------------------- */

enum { LISTED_MAX = 8 };

/* Of allreduces of floats; the slack is that of autotune runs. */
static uint32_t list_on(const struct muster_topology *topology, uint64_t count,
                        const struct muster_cost_model *model, size_t favourite,
                        struct muster_prediction ret_list[LISTED_MAX])
{
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = topology, .count = count};
    uint32_t listed = 0;
    assert_int_equal(
        muster_select_several(&plan, 4, model, 25e3, favourite, LISTED_MAX, ret_list, &listed),
        MUSTER_OK);
    assert_in_range(listed, 1, LISTED_MAX);
    for (uint32_t i = 1; i < listed; i++) {
        assert_true(ret_list[i].us >= ret_list[i - 1].us);
    }
    return listed;
}

static bool is_listed(const struct muster_prediction *list, uint32_t listed, const char *name)
{
    for (uint32_t i = 0; i < listed; i++) {
        if (strcmp(muster_algorithms[list[i].algorithm].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The two messages of all_to_one, one after the other, take as long as the two pairs of messages of
 * halving_doubling. halving_doubling and swing are the same for two ranks. */
static void algorithms_of_equal_time_are_listed_but_equal_algorithms_once(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    struct muster_prediction list[LISTED_MAX];
    static const char *const doubles[] = {"ring", "halving_doubling", "swing", "bcube"};
    static const char *const others[] = {"recursive_doubling", "all_to_one", "double_tree"};
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        size_t favourite = 0;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, doubles[i], &favourite),
                         MUSTER_OK);
        uint32_t listed = list_on(&topology, 1, &muster_cost_model_default, favourite, list);
        for (size_t j = 0; j < sizeof doubles / sizeof doubles[0]; j++) {
            assert_true(is_listed(list, listed, doubles[j]) == (i == j));
        }
        for (size_t j = 0; j < sizeof others / sizeof others[0]; j++) {
            assert_true(is_listed(list, listed, others[j]));
        }
    }
    muster_topology_finish(&topology);
}

/* Four ranks on two cores over loopback, small and middle calls: which algorithm is fastest depends
 * on times that the model has only roughly. */
static void servers_butterflies_and_trees_are_listed_where_ranks_share_cores(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(4, 1);
    struct muster_cost_model model = muster_cost_model_default;
    model.core = (struct muster_core_figures){.reduce_GBps = 25, .copy_GBps = 25, .cores = 2};
    model.links[MUSTER_LEVEL_HOST] =
        (struct muster_link_figures){.latency_us = 12, .bandwidth_GBps = 8, .shared_GBps = 8};
    static const char *const shapes[] = {"all_to_one", "halving_doubling", "double_tree"};
    for (int posting_us = 1; posting_us <= 4; posting_us *= 2) {
        model.links[MUSTER_LEVEL_HOST].posting_us = posting_us;
        for (uint64_t count = 1; count <= 1 << 16; count *= 16) {
            struct muster_prediction list[LISTED_MAX];
            uint32_t listed = list_on(&topology, count, &model, 0, list);
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                if (!is_listed(list, listed, shapes[i])) {
                    fail_msg("posting %d us, count %llu: %s is not listed", posting_us,
                             (unsigned long long)count, shapes[i]);
                }
            }
        }
    }
    muster_topology_finish(&topology);
}

static void large_jobs_have_a_list_by_the_formulas(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(32, 1);
    struct muster_prediction list[LISTED_MAX];
    for (int swings = 0; swings < 2; swings++) {
        size_t favourite = 0;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE,
                                               swings == 1 ? "swing" : "halving_doubling",
                                               &favourite),
                         MUSTER_OK);
        uint32_t listed = list_on(&topology, 1 << 16, &muster_cost_model_default, favourite, list);
        assert_true(is_listed(list, listed, "swing") == (swings == 1));
        assert_true(is_listed(list, listed, "halving_doubling") == (swings == 0));
    }
    muster_topology_finish(&topology);
}

static double cost_us(const char *name, const struct muster_plan *plan)
{
    size_t algorithm = 0;
    double us = 0;
    assert_int_equal(muster_algorithm_find(plan->collective, name, &algorithm), MUSTER_OK);
    assert_int_equal(muster_select_cost_us(algorithm, plan, 4, &muster_cost_model_default, &us),
                     MUSTER_OK);
    return us;
}

static void promises_have_a_price(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(8, 2);
    struct muster_plan allreduce = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 1 << 20, .in_place = true};
    double ring_us = cost_us("ring", &allreduce);
    double whole_us = cost_us("ring_whole", &allreduce);
    allreduce.keep_input = true;
    /* A ring only reduces elsewhere; the other one ends with a copy of all elements. */
    double copy_us = muster_cost_bytes_us(1 << 20, 4, muster_cost_model_default.core.copy_GBps);
    assert_true(cost_us("ring", &allreduce) >= ring_us * 0.999);
    assert_true(cost_us("ring", &allreduce) < ring_us * 1.02);
    assert_true(cost_us("ring_whole", &allreduce) > whole_us + copy_us / 2);
    struct muster_plan broadcast = {
        .collective = MUSTER_BROADCAST, .topology = &topology, .count = 1};
    double small_us = cost_us("binomial", &broadcast);
    broadcast.finish_together = true;
    /* Three rounds beside the data's three. */
    assert_true(cost_us("binomial", &broadcast) > small_us);
    assert_true(cost_us("binomial", &broadcast) < 3 * small_us);
    muster_topology_finish(&topology);
}

static void promises_change_no_choice_of_other_calls(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 40; ranks += 3) {
        struct muster_topology topology = test_topology_even(ranks, ranks > 4 ? 2 : 1);
        for (uint64_t count = 1; count <= 1 << 22; count *= 8) {
            size_t chosen[3];
            for (size_t i = 0; i < 3; i++) {
                struct muster_plan plan = {.collective = MUSTER_ALLREDUCE,
                                           .topology = &topology,
                                           .count = count,
                                           .in_place = i == 1,
                                           .keep_input = i == 2,
                                           .finish_together = i > 0};
                assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &chosen[i]),
                                 MUSTER_OK);
            }
            /* It finishes together anyway, and out of place it keeps its input anyway. */
            assert_int_equal(chosen[0], chosen[1]);
            assert_int_equal(chosen[0], chosen[2]);
        }
        muster_topology_finish(&topology);
    }
}

/* Whether steps of a device are selected for data in its memory. */
static bool selects_device(const struct muster_group_prices *prices, uint64_t count)
{
    struct muster_topology topology = test_topology_even(8, 2);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count, .device = prices};
    size_t algorithm = 0;
    assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &algorithm), MUSTER_OK);
    double us = 0;
    assert_int_equal(muster_select_cost_us(algorithm, &plan, 4, &muster_cost_model_default, &us),
                     MUSTER_OK);
    assert_true(us >= (muster_algorithm_is_of_device(algorithm) ? prices->fixed_us[MUSTER_ALLREDUCE]
                                                                : prices->staging_us));
    muster_topology_finish(&topology);
    return muster_algorithm_is_of_device(algorithm);
}

static void a_device_is_selected_where_it_is_faster_than_the_way_through_the_host(void **state)
{
    const uint64_t small = 1;
    const uint64_t large = 1 << 24;
    (void)state;
    struct muster_group_prices prices = {.fixed_us = {[MUSTER_ALLREDUCE] = 20},
                                         .GBps = {[MUSTER_ALLREDUCE] = 100},
                                         .staging_us = 300,
                                         .staging_GBps = 10};
    assert_true(selects_device(&prices, small));
    assert_true(selects_device(&prices, large));
    prices.fixed_us[MUSTER_ALLREDUCE] = 5000; /* a slow start: only large calls are worth it */
    assert_false(selects_device(&prices, small));
    assert_true(selects_device(&prices, large));
    prices.GBps[MUSTER_ALLREDUCE] = 0.01;
    assert_false(selects_device(&prices, large));
    prices.staging_GBps = 0.001; /* the way through the host is slower still */
    assert_true(selects_device(&prices, large));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_allreduces_take_few_rounds),
        cmocka_unit_test(large_allreduces_send_few_bytes),
        cmocka_unit_test(large_calls_between_hosts_are_hierarchical),
        cmocka_unit_test(small_broadcasts_use_a_tree_and_large_ones_a_chain),
        cmocka_unit_test(no_choice_depends_on_fixed_sizes),
        cmocka_unit_test(no_algorithm_is_much_faster_than_the_selected_one),
        cmocka_unit_test(every_collective_has_an_algorithm_for_every_shape),
        cmocka_unit_test(formulas_and_simulations_agree_roughly),
        cmocka_unit_test(formulas_tell_hosts_and_racks_apart),
        cmocka_unit_test(an_algorithm_that_does_not_fit_is_refused_with_those_that_do),
        cmocka_unit_test(impossible_plans_are_refused),
        cmocka_unit_test(names_are_unique_within_a_collective),
        cmocka_unit_test(algorithms_of_equal_time_are_listed_but_equal_algorithms_once),
        cmocka_unit_test(servers_butterflies_and_trees_are_listed_where_ranks_share_cores),
        cmocka_unit_test(large_jobs_have_a_list_by_the_formulas),
        cmocka_unit_test(promises_have_a_price),
        cmocka_unit_test(a_device_is_selected_where_it_is_faster_than_the_way_through_the_host),
        cmocka_unit_test(promises_change_no_choice_of_other_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
