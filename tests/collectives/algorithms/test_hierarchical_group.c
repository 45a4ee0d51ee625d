/* Group steps within hosts beside messages between them: hierarchical(local=group) on all small
 * shapes, with every exchange between hosts, in pieces, with leaders, with racks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/hierarchy.h"
#include "collectives/schedule/group_step.h"
#include "collectives/select/select.h"
#include "tests/support/interpreter.h"

static const struct muster_memory_reach reach = {.staging_bytes = 256 << 10, .buffers = true};

static size_t variant_of(unsigned cross, unsigned leaders, unsigned doublings)
{
    size_t algorithm = 0;
    uint32_t variant = MUSTER_HIERARCHY(MUSTER_EXCHANGE_GROUP, cross, 0, leaders, 0) |
                       MUSTER_HIERARCHY_PIECES(doublings);
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "hierarchical", &algorithm),
                     MUSTER_OK);
    return algorithm + (size_t)variant * MUSTER_ALGORITHM_ROWS_MAX;
}

static bool is_within_host(const struct muster_topology *topology, uint32_t one, uint32_t other)
{
    return muster_topology_locate(topology, one).host ==
           muster_topology_locate(topology, other).host;
}

/* All group steps are of hosts, and no message stays within one, but for those of a closing round.
 */
static void check_steps(const struct test_job *job, bool closes)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        const struct muster_schedule *schedule = &job->schedules[rank];
        const struct muster_topology *topology = job->plans[rank].topology;
        size_t groups = 0;
        for (size_t i = 0; i < schedule->step_count; i++) {
            const struct muster_step *step = &schedule->steps[i];
            groups += muster_step_is_group(step) ? 1 : 0;
            assert_true(!muster_step_is_group(step) || step->scope == MUSTER_STEP_OVER_HOST);
            assert_false(!closes && muster_step_is_message(step) &&
                         is_within_host(topology, rank, step->peer));
        }
        assert_true((groups > 0) == (muster_topology_locate(topology, rank).local_size > 1));
    }
}

static void prove_promises(size_t algorithm, const struct muster_plan *plan, bool uneven,
                           uint64_t *random)
{
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    char why[MUSTER_CHECK_TEXT_MAX];
    struct muster_formula formula;
    struct test_job job = test_job_create(algorithm, plan, uneven);
    const struct muster_check_result result = test_prove(&job);
    muster_algorithm_print(algorithm, name, sizeof name);
    muster_algorithm_formula(algorithm, &job.plans[0], &formula);
    check_steps(&job, plan->finish_together);
    if (!result.proven || (!plan->keep_input && result.rounds != formula.rounds) ||
        result.elements_sent_max != formula.elements) {
        fail_msg(
            "%s %s on %u hosts of %u.. ranks, count %llu, root %u: %s; %u rounds of %u, %llu "
            "of %llu",
            muster_collective_name(plan->collective), name, plan->topology->hosts,
            plan->topology->host_sizes[0], (unsigned long long)plan->count, plan->root, result.why,
            result.rounds, formula.rounds, (unsigned long long)result.elements_sent_max,
            (unsigned long long)formula.elements);
    }
    if (!test_execute(&job, job.schedules, false, random, why) ||
        !test_execute(&job, job.schedules, true, random, why)) {
        fail_msg("%s %s: %s", muster_collective_name(plan->collective), name, why);
    }
    test_job_finish(&job);
}

/* With each promise, too. */
static void prove_call(size_t algorithm, const struct muster_plan *plan, bool uneven,
                       uint64_t *random)
{
    for (unsigned i = 0; i < 4; i++) {
        struct muster_plan promising = *plan;
        promising.keep_input = (i & 1) != 0;
        promising.in_place = promising.keep_input;
        promising.finish_together = (i & 2) != 0;
        prove_promises(algorithm, &promising, uneven, random);
    }
}

static void prove(size_t algorithm, const struct muster_topology *topology, uint64_t count,
                  uint64_t *random)
{
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = topology, .count = count, .memory = &reach};
    prove_call(algorithm, &plan, false, random);
}

static void prove_variants(const struct muster_topology *topology, uint64_t *random)
{
    static const uint64_t counts[] = {0, 1, 23};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (unsigned leaders = 0; leaders <= 2; leaders++) {
            for (unsigned doublings = 0; doublings <= 4; doublings += 2) {
                prove(variant_of(0, leaders, doublings), topology, counts[i], random);
            }
        }
    }
    for (unsigned cross = 1; cross < MUSTER_EXCHANGE_GROUP; cross++) {
        prove(variant_of(cross, 0, 0), topology, 61, random);
        if (muster_exchange_of(cross)->steady) {
            prove(variant_of(cross, 0, 3), topology, 61, random);
            prove(variant_of(cross, 1, 1), topology, 4, random);
        }
    }
}

static void all_shapes_of_up_to_three_hosts_by_three_ranks_are_proven(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t shape = 0; shape < 4 * 4 * 4; shape++) {
        const uint32_t sizes[] = {shape % 4, shape / 4 % 4, shape / 16};
        uint32_t hosts = sizes[2] == 0 ? 2 : 3;
        if (sizes[0] == 0 || sizes[1] == 0) {
            continue;
        }
        struct muster_topology topology = test_topology(hosts, sizes);
        prove_variants(&topology, &random);
        muster_topology_finish(&topology);
    }
}

static void racks_are_proven(void **state)
{
    (void)state;
    static const uint32_t racks[] = {2, 2, 1};
    const uint32_t sizes[] = {2, 3, 2, 2, 4};
    uint64_t random = test_seed();
    struct muster_topology topology = test_topology(5, sizes);
    assert_int_equal(muster_topology_set_racks(&topology, 3, racks), MUSTER_OK);
    prove_variants(&topology, &random);
    muster_topology_finish(&topology);
}

/* The rows of the other collectives, with every root, and with blocks of one size and of several.
 */
static void prove_row(enum muster_collective collective, const struct muster_topology *topology,
                      uint64_t *random)
{
    static const uint64_t counts[] = {0, 1, 23};
    size_t algorithm = 0;
    bool rooted = collective == MUSTER_BROADCAST || collective == MUSTER_REDUCE;
    bool uneven = collective == MUSTER_REDUCE_SCATTER || collective == MUSTER_ALLGATHERV;
    assert_int_equal(muster_algorithm_find(collective, "hierarchical_group", &algorithm),
                     MUSTER_OK);
    for (uint32_t i = 0; i < 3 * (rooted ? topology->ranks : uneven ? 2 : 1); i++) {
        const struct muster_plan plan = {.collective = collective,
                                         .topology = topology,
                                         .root = rooted ? i / 3 : 0,
                                         .count = collective == MUSTER_BARRIER ? 0 : counts[i % 3],
                                         .memory = &reach};
        prove_call(algorithm, &plan, i >= 3, random);
    }
}

static void the_rows_of_all_other_collectives_are_proven(void **state)
{
    (void)state;
    static const enum muster_collective collectives[] = {MUSTER_BROADCAST,      MUSTER_REDUCE,
                                                         MUSTER_BARRIER,        MUSTER_ALLGATHER,
                                                         MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHERV};
    static const uint32_t racks[] = {2, 1};
    uint64_t random = test_seed();
    for (uint32_t shape = 0; shape < 3 * 3 * 4 * 2; shape++) {
        const uint32_t sizes[] = {1 + shape % 3, 1 + shape / 3 % 3, shape / 9 % 4};
        uint32_t hosts = sizes[2] == 0 ? 2 : 3;
        struct muster_topology topology = test_topology(hosts, sizes);
        if (shape >= 36 && hosts == 3) {
            assert_int_equal(muster_topology_set_racks(&topology, 2, racks), MUSTER_OK);
        }
        for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
            prove_row(collectives[i], &topology, &random);
        }
        muster_topology_finish(&topology);
    }
}

static size_t group_steps_of(size_t algorithm, struct muster_plan plan)
{
    struct muster_schedule schedule;
    assert_int_equal(muster_schedule_generate(algorithm, &plan, &schedule), MUSTER_OK);
    size_t groups = (size_t)muster_schedule_total(&schedule).group_steps;
    muster_schedule_finish(&schedule);
    return groups;
}

static void ranks_that_share_no_memory_use_messages(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(4, 2);
    struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = 100, .memory = &reach};
    assert_int_equal(group_steps_of(variant_of(0, 0, 0), plan), 2);
    assert_int_equal(group_steps_of(variant_of(0, 0, 1), plan), 4);
    assert_int_equal(group_steps_of(variant_of(MUSTER_EXCHANGE_BCUBE, 0, 1), plan), 0);
    plan.memory = NULL;
    assert_int_equal(group_steps_of(variant_of(0, 0, 0), plan), 0);
    muster_topology_finish(&topology);
}

/* By the figures of an ordinary machine, in messages for which the group steps pay. */
static void selection_takes_the_rows_where_they_are_predicted_to_be_the_fastest(void **state)
{
    (void)state;
    static const enum muster_collective collectives[] = {MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER};
    struct muster_topology topology = test_topology_even(8, 2);
    for (size_t i = 0; i < 2; i++) {
        struct muster_plan plan = {
            .collective = collectives[i], .topology = &topology, .count = 8192, .memory = &reach};
        size_t algorithm = 0;
        assert_int_equal(muster_select(&plan, 4, &muster_cost_model_default, &algorithm),
                         MUSTER_OK);
        assert_string_equal(muster_algorithms[algorithm].name, "hierarchical_group");
        assert_true(group_steps_of(algorithm, plan) > 0);
        plan.memory = NULL;
        assert_int_equal(group_steps_of(algorithm, plan), 0);
    }
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes_of_up_to_three_hosts_by_three_ranks_are_proven),
        cmocka_unit_test(racks_are_proven),
        cmocka_unit_test(the_rows_of_all_other_collectives_are_proven),
        cmocka_unit_test(selection_takes_the_rows_where_they_are_predicted_to_be_the_fastest),
        cmocka_unit_test(ranks_that_share_no_memory_use_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
