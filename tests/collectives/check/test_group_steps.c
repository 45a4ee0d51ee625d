/*
 * Group steps: right schedules with them are proven, and executed right by the interpreter; wrong
 * ones are named. Mutants of the right ones are rejected, or the interpreter finds that the change
 * makes no difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedule/builder.h"
#include "collectives/schedule/group_step.h"
#include "tests/support/interpreter.h"

enum { RANKS_MAX = 8 };

static const struct muster_memory_reach reach = {.staging_bytes = 256 << 10, .buffers = true};

/* Whole calls ---------------------------------------------------------------------------------- */

static void prove_whole(size_t algorithm, const struct muster_plan *plan, bool uneven,
                        uint64_t *random)
{
    char why[MUSTER_CHECK_TEXT_MAX];
    struct test_job job = test_job_create(algorithm, plan, uneven);
    assert_int_equal(job.schedules[0].step_count, 1);
    assert_true(muster_step_is_group(&job.schedules[0].steps[0]));
    assert_true(test_prove(&job).proven);
    if (!test_execute(&job, job.schedules, false, random, why) ||
        !test_execute(&job, job.schedules, true, random, why)) {
        fail_msg("%s: %s", muster_collective_name(plan->collective), why);
    }
    test_job_finish(&job);
}

static void every_call_in_shared_memory_is_one_group_step(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    size_t rows = 0;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        rows += muster_algorithms[algorithm].memory ? 1 : 0;
        for (uint32_t ranks = 2; ranks <= 17 && muster_algorithms[algorithm].memory; ranks++) {
            struct muster_topology topology = test_topology_even(ranks, 1);
            const uint64_t counts[] = {0, 1, ranks + 1, 1003};
            for (size_t i = 0; i < 4; i++) {
                struct muster_plan plan = test_plan(algorithm, &topology, counts[i], ranks / 2);
                plan.memory = &reach;
                prove_whole(algorithm, &plan, false, &random);
                if (plan.collective == MUSTER_REDUCE_SCATTER) {
                    prove_whole(algorithm, &plan, true, &random);
                }
            }
            muster_topology_finish(&topology);
        }
    }
    assert_int_equal(rows, 7);
}

/* Empty messages of all ranks, and then one group step; nobody is done before all have come. */
static void every_call_on_memory_of_a_device_is_proven(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    struct muster_group_prices prices = {.staging_us = 1};
    size_t rows = 0;
    for (unsigned i = 0; i < MUSTER_COLLECTIVE_END; i++) {
        prices.GBps[i] = 1;
    }
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        rows += muster_algorithms[algorithm].on_device != NULL ? 1 : 0;
        for (uint32_t ranks = 2; ranks <= 17 && muster_algorithms[algorithm].on_device != NULL;
             ranks++) {
            struct muster_topology topology = test_topology_even(ranks, 1);
            struct muster_check_result result;
            char why[MUSTER_CHECK_TEXT_MAX];
            struct muster_plan plan = test_plan(algorithm, &topology, 1003, ranks / 2);
            plan.device = &prices;
            plan.finish_together = true;
            assert_true(muster_device_group_fits(algorithm, &plan));
            struct test_job job = test_job_create(algorithm, &plan, ranks % 2 == 0);
            const struct muster_schedule *first = &job.schedules[0];
            assert_int_equal(muster_schedule_total(first).group_steps, 1);
            assert_int_equal(muster_check_promises(job.shapes, job.schedules, job.ranks, false,
                                                   MUSTER_CHECK_FINISH_TOGETHER, &result),
                             MUSTER_OK);
            assert_true(result.proven);
            assert_true(test_execute(&job, job.schedules, false, &random, why));
            test_job_finish(&job);
            muster_topology_finish(&topology);
        }
    }
    assert_int_equal(rows, 6);
}

/* Then the schedule is one of messages, which others have, too. */
static void a_device_is_not_for_calls_that_it_would_do_otherwise(void **state)
{
    (void)state;
    const uint32_t order[] = {3, 0, 4, 1, 2};
    struct muster_topology topology = test_topology_even(5, 1);
    struct muster_group_prices prices = {.GBps = {[MUSTER_ALLREDUCE] = 1}};
    size_t nccl = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "nccl", &nccl), MUSTER_OK);
    struct muster_plan plan = test_plan(nccl, &topology, 100, 0);
    assert_false(muster_device_group_fits(nccl, &plan));
    plan.device = &prices;
    assert_true(muster_device_group_fits(nccl, &plan));
    plan.reduction_order = order;
    assert_false(muster_device_group_fits(nccl, &plan));
    plan.reduction_order = NULL;
    plan.keep_input = true;
    assert_false(muster_device_group_fits(nccl, &plan));
    plan.keep_input = false;
    plan.count = 0;
    assert_false(muster_device_group_fits(nccl, &plan));
    plan.count = 100;
    prices.GBps[MUSTER_ALLREDUCE] = 0;
    assert_false(muster_device_group_fits(nccl, &plan));
    muster_topology_finish(&topology);
}

static void calls_that_finish_together_and_keep_their_input_are_proven(void **state)
{
    (void)state;
    const unsigned promises = MUSTER_CHECK_INPUT_KEPT | MUSTER_CHECK_FINISH_TOGETHER;
    struct muster_topology topology = test_topology_even(5, 1);
    size_t without = 0;
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (int together = 0; together < 2 && muster_algorithms[algorithm].memory; together++) {
            struct muster_check_result result;
            struct muster_plan plan = test_plan(algorithm, &topology, 100, 2);
            plan.memory = &reach;
            plan.keep_input = true;
            plan.finish_together = together == 1;
            struct test_job job = test_job_create(algorithm, &plan, false);
            assert_int_equal(muster_check_promises(job.shapes, job.schedules, job.ranks, false,
                                                   promises, &result),
                             MUSTER_OK);
            without += together == 0 && !result.proven ? 1 : 0;
            assert_true(together == 0 || result.proven);
            test_job_finish(&job);
        }
    }
    assert_int_equal(without, 2); /* broadcast and reduce: the others wait for all anyway */
    muster_topology_finish(&topology);
}

static void a_reduction_follows_the_order_that_the_call_asks_for(void **state)
{
    (void)state;
    const uint32_t order[] = {3, 0, 4, 1, 2};
    struct muster_topology topology = test_topology_even(5, 1);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        const struct muster_algorithm *row = &muster_algorithms[algorithm];
        if (row->memory && row->reproducible) {
            struct muster_plan plan = test_plan(algorithm, &topology, 100, 2);
            plan.memory = &reach;
            plan.reduction_order = order;
            struct test_job job = test_job_create(algorithm, &plan, false);
            assert_true(test_prove(&job).proven);
            test_job_finish(&job);
        }
    }
    muster_topology_finish(&topology);
}

/* Composed ones ---------------------------------------------------------------------------------
 */

/* An allreduce on even hosts, cut into pieces, one a lane: reduce-scatter in the host, an exchange
 * of the rank's share between hosts (a group step, or messages around a ring), allgather in the
 * host. */
static void add_piece(const struct muster_plan *plan, struct muster_builder *builder,
                      struct muster_span piece, bool by_messages)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_position own = muster_topology_locate(topology, plan->rank);
    struct muster_span share = muster_span_part(piece, own.local_size, own.local_rank);
    muster_builder_group(builder,
                         &(struct muster_group_call){.kind = MUSTER_STEP_GROUP_REDUCE_SCATTER,
                                                     .scope = MUSTER_STEP_OVER_HOST,
                                                     .source = MUSTER_INPUT,
                                                     .target = MUSTER_OUTPUT,
                                                     .span = piece,
                                                     .at = share.offset});
    muster_builder_next_round(builder);
    if (by_messages && topology->hosts == 2) {
        uint32_t peer = muster_topology_rank(topology, 1 - own.host, own.local_rank);
        uint64_t at = muster_builder_reserve(builder, share.count);
        muster_builder_send(builder, peer, MUSTER_OUTPUT, share);
        muster_builder_recv(builder, peer, MUSTER_SCRATCH,
                            (struct muster_span){.offset = at, .count = share.count});
        muster_builder_next_round(builder);
        muster_builder_reduce(builder, MUSTER_SCRATCH,
                              (struct muster_span){.offset = at, .count = share.count},
                              MUSTER_OUTPUT, share.offset);
    } else {
        muster_builder_group(builder,
                             &(struct muster_group_call){.kind = MUSTER_STEP_GROUP_ALLREDUCE,
                                                         .scope = MUSTER_STEP_OVER_CROSS,
                                                         .source = MUSTER_OUTPUT,
                                                         .target = MUSTER_OUTPUT,
                                                         .span = share,
                                                         .at = share.offset});
    }
    muster_builder_next_round(builder);
    muster_builder_group(
        builder, &(struct muster_group_call){.kind = MUSTER_STEP_GROUP_ALLGATHER,
                                             .scope = MUSTER_STEP_OVER_HOST,
                                             .source = MUSTER_OUTPUT,
                                             .target = MUSTER_OUTPUT,
                                             .span = {.offset = share.offset, .count = piece.count},
                                             .at = piece.offset});
}

static struct test_job make_composed(const struct muster_topology *topology, uint64_t count,
                                     uint16_t lanes, bool by_messages)
{
    size_t algorithm;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "ring", &algorithm), MUSTER_OK);
    const struct muster_plan plan = test_plan(algorithm, topology, count, 0);
    struct test_job job = test_job_create(algorithm, &plan, false);
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        struct muster_builder builder;
        muster_schedule_finish(&job.schedules[rank]);
        muster_builder_init(&job.plans[rank], &builder);
        for (uint16_t lane = 0; lane < lanes; lane++) {
            muster_builder_set_lane(&builder, lane);
            add_piece(&job.plans[rank], &builder,
                      muster_span_part((struct muster_span){.count = count}, lanes, lane),
                      by_messages);
        }
        assert_int_equal(muster_builder_finish(&builder, &job.schedules[rank]), MUSTER_OK);
    }
    return job;
}

static void a_hierarchical_allreduce_of_group_steps_is_proven_and_right(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t hosts = 1; hosts <= 4; hosts++) {
        for (uint32_t local = 1; local <= 4; local++) {
            struct muster_topology topology = test_topology_even(hosts * local, hosts);
            for (uint16_t lanes = 1; lanes <= 3; lanes++) {
                for (int by_messages = 0; by_messages < 2; by_messages++) {
                    struct test_job job = make_composed(&topology, 101, lanes, by_messages == 1);
                    assert_true(test_prove(&job).proven);
                    assert_true(test_executes_right(&job, job.schedules, &random));
                    test_job_finish(&job);
                }
            }
            muster_topology_finish(&topology);
        }
    }
}

/* Mutants ---------------------------------------------------------------------------------------
 */

struct counts {
    size_t rejected, equal;
};

static void try_mutant(const struct test_job *job, const struct muster_schedule *mutant,
                       uint64_t *random, struct counts *counts)
{
    if (!test_check(job, mutant).proven) {
        counts->rejected++;
        return;
    }
    assert_true(test_executes_right(job, mutant, random));
    counts->equal++;
}

/* Every field of every step gets other values. */
static void mutate(const struct test_job *job, uint64_t *random, struct counts *counts)
{
    struct muster_schedule *mutant = test_copy_all(job->schedules, job->ranks);
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        for (size_t i = 0; i < mutant[rank].step_count; i++) {
            struct muster_step *step = &mutant[rank].steps[i];
            const struct muster_step original = *step;
            for (uint8_t value = 0; value <= MUSTER_STEP_GROUP_BARRIER + 1; value++) {
                for (int field = 0; field < 10; field++) {
                    *step = original;
                    switch (field) {
                    case 0:
                        step->kind = value;
                        break;
                    case 1:
                        step->source = value;
                        break;
                    case 2:
                        step->target = value;
                        break;
                    case 3:
                        step->scope = value;
                        break;
                    case 4:
                        step->blocks = value;
                        break;
                    case 5:
                        step->peer = value;
                        break;
                    case 6:
                        step->span.offset = original.span.offset + value - 5;
                        break;
                    case 9:
                        step->together = value;
                        break;
                    case 7:
                        step->span.count = original.span.count + value - 5;
                        break;
                    default:
                        step->at = original.at + value - 5;
                        break;
                    }
                    if (memcmp(step, &original, sizeof original) != 0) {
                        try_mutant(job, mutant, random, counts);
                    }
                }
            }
            *step = original;
        }
        for (unsigned scope = 0; scope < MUSTER_STEP_SCOPES; scope++) {
            struct muster_step_group *group = &mutant[rank].groups[scope];
            const struct muster_step_group original = *group;
            for (uint32_t value = 0; value <= 3; value++) {
                *group = (struct muster_step_group){value, original.count, original.stride};
                try_mutant(job, mutant, random, counts);
                *group = (struct muster_step_group){original.first, value, original.stride};
                try_mutant(job, mutant, random, counts);
                *group = (struct muster_step_group){original.first, original.count, value};
                try_mutant(job, mutant, random, counts);
            }
            *group = original;
        }
    }
    test_finish_all(mutant, job->ranks);
}

static void mutants_are_rejected_or_make_no_difference(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    struct counts counts = {0};
    struct muster_topology hosts = test_topology_even(4, 2);
    for (uint16_t lanes = 1; lanes <= 2; lanes++) {
        for (int by_messages = 0; by_messages < 2; by_messages++) {
            struct test_job job = make_composed(&hosts, 10, lanes, by_messages == 1);
            mutate(&job, &random, &counts);
            test_job_finish(&job);
        }
    }
    struct muster_topology host = test_topology_even(3, 1);
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        if (muster_algorithms[algorithm].memory) {
            struct muster_plan plan = test_plan(algorithm, &host, 7, 1);
            plan.memory = &reach;
            struct test_job job = test_job_create(algorithm, &plan, false);
            mutate(&job, &random, &counts);
            test_job_finish(&job);
        }
    }
    muster_topology_finish(&host);
    muster_topology_finish(&hosts);
    print_message("%zu mutants rejected, %zu make no difference\n", counts.rejected, counts.equal);
    assert_true(counts.rejected > 1000);
}

/* By hand ---------------------------------------------------------------------------------------
 */

/* A barrier of two ranks, each with two group steps; `swapped`: the second rank has them in the
 * other order. */
static void group_steps_in_another_order_are_named(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    for (int swapped = 0; swapped < 2; swapped++) {
        struct muster_schedule schedules[2];
        struct muster_shape shapes[2];
        struct muster_check_result result;
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct muster_plan plan = {
                .collective = MUSTER_ALLREDUCE, .topology = &topology, .rank = rank, .count = 4};
            struct muster_builder builder;
            shapes[rank] = muster_plan_shape(&plan);
            muster_builder_init(&plan, &builder);
            for (unsigned i = 0; i < 2; i++) {
                bool reduces = (i == 0) != (swapped == 1 && rank == 1);
                muster_builder_group(&builder, &(struct muster_group_call){
                                                   .kind = reduces ? MUSTER_STEP_GROUP_ALLREDUCE
                                                                   : MUSTER_STEP_GROUP_BARRIER,
                                                   .scope = MUSTER_STEP_OVER_ALL,
                                                   .source = MUSTER_INPUT,
                                                   .target = MUSTER_OUTPUT,
                                                   .span = {.count = reduces ? 4 : 0}});
                muster_builder_next_round(&builder);
            }
            assert_int_equal(muster_builder_finish(&builder, &schedules[rank]), MUSTER_OK);
        }
        assert_int_equal(muster_check(shapes, schedules, 2, false, &result), MUSTER_OK);
        assert_int_equal(result.proven, swapped == 0);
        if (swapped == 1) {
            assert_non_null(strstr(result.why, "another group step than that of rank "));
        }
        muster_schedule_finish(&schedules[0]);
        muster_schedule_finish(&schedules[1]);
    }
    muster_topology_finish(&topology);
}

/* Rank 0 waits in its host before it sends; its neighbour waits for the message first. */
static void a_message_that_waits_for_a_group_step_is_a_deadlock(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    struct muster_schedule schedules[2];
    struct muster_shape shapes[2];
    struct muster_check_result result;
    const struct muster_group_call barrier = {.kind = MUSTER_STEP_GROUP_BARRIER,
                                              .scope = MUSTER_STEP_OVER_HOST};
    const struct muster_span nothing = {0};
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct muster_plan plan = {
            .collective = MUSTER_BARRIER, .topology = &topology, .rank = rank};
        struct muster_builder builder;
        shapes[rank] = muster_plan_shape(&plan);
        muster_builder_init(&plan, &builder);
        if (rank == 0) {
            muster_builder_group(&builder, &barrier);
            muster_builder_next_round(&builder);
            muster_builder_send(&builder, 1, MUSTER_INPUT, nothing);
        } else {
            muster_builder_recv(&builder, 0, MUSTER_OUTPUT, nothing);
            muster_builder_next_round(&builder);
            muster_builder_group(&builder, &barrier);
        }
        assert_int_equal(muster_builder_finish(&builder, &schedules[rank]), MUSTER_OK);
    }
    assert_int_equal(muster_check(shapes, schedules, 2, false, &result), MUSTER_OK);
    assert_false(result.proven);
    assert_non_null(strstr(result.why, "deadlock: waits for its group for ever"));
    muster_schedule_finish(&schedules[0]);
    muster_schedule_finish(&schedules[1]);
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_in_shared_memory_is_one_group_step),
        cmocka_unit_test(every_call_on_memory_of_a_device_is_proven),
        cmocka_unit_test(a_device_is_not_for_calls_that_it_would_do_otherwise),
        cmocka_unit_test(calls_that_finish_together_and_keep_their_input_are_proven),
        cmocka_unit_test(a_reduction_follows_the_order_that_the_call_asks_for),
        cmocka_unit_test(a_hierarchical_allreduce_of_group_steps_is_proven_and_right),
        cmocka_unit_test(mutants_are_rejected_or_make_no_difference),
        cmocka_unit_test(group_steps_in_another_order_are_named),
        cmocka_unit_test(a_message_that_waits_for_a_group_step_is_a_deadlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
