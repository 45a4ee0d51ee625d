/* Wrong schedules, made by hand: the checker says what is wrong with each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedule/builder.h"
#include "tests/support/schedules.h"

enum { RANKS_MAX = 4 };

/* One schedule for each rank, written with the builder. */
struct job {
    struct muster_topology topology;
    struct muster_shape shapes[RANKS_MAX];
    struct muster_builder builders[RANKS_MAX];
};

static void begin(struct job *job, enum muster_collective collective, uint32_t ranks,
                  uint64_t count)
{
    job->topology = test_topology_even(ranks, 1);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct muster_plan plan = {
            .collective = collective, .topology = &job->topology, .rank = rank, .count = count};
        job->shapes[rank] = muster_plan_shape(&plan);
        muster_builder_init(&plan, &job->builders[rank]);
    }
}

static struct muster_check_result end(struct job *job)
{
    uint32_t ranks = job->topology.ranks;
    struct muster_schedule schedules[RANKS_MAX] = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_int_equal(muster_builder_finish(&job->builders[rank], &schedules[rank]), MUSTER_OK);
    }
    struct muster_check_result result;
    assert_int_equal(muster_check(job->shapes, schedules, ranks, false, &result), MUSTER_OK);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        muster_schedule_finish(&schedules[rank]);
    }
    muster_topology_finish(&job->topology);
    return result;
}

static void expect_rejection(struct job *job, const char *text)
{
    struct muster_check_result result = end(job);
    assert_false(result.proven);
    if (strstr(result.why, text) == NULL) {
        print_error("expected \"%s\" in: %s\n", text, result.why);
    }
    assert_non_null(strstr(result.why, text));
}

/* With buffered sends both would complete. */
static void two_ranks_that_both_send_first_are_a_deadlock(void **state)
{
    (void)state;
    struct job job;
    struct muster_span all = {.count = 4};
    begin(&job, MUSTER_ALLREDUCE, 2, 4);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_builder *builder = &job.builders[rank];
        muster_builder_send(builder, 1 - rank, MUSTER_INPUT, all);
        muster_builder_next_round(builder);
        muster_builder_recv_reduce(builder, 1 - rank, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    }
    expect_rejection(&job, "rank 0 lane 0 round 0: deadlock: sends to rank 1 for ever");
}

static void a_ring_that_receives_first_is_a_deadlock(void **state)
{
    (void)state;
    struct job job;
    begin(&job, MUSTER_BARRIER, 4, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct muster_builder *builder = &job.builders[rank];
        muster_builder_recv(builder, (rank + 3) % 4, MUSTER_OUTPUT, (struct muster_span){0});
        muster_builder_next_round(builder);
        muster_builder_send(builder, (rank + 1) % 4, MUSTER_INPUT, (struct muster_span){0});
    }
    expect_rejection(&job, "deadlock: receives from rank 3 for ever");
}

/* Two ranks exchange their data, with the result in this buffer. */
static void exchange(struct job *job, enum muster_buffer target)
{
    struct muster_span all = {.count = 4};
    begin(job, MUSTER_ALLREDUCE, 2, 4);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_builder *builder = &job->builders[rank];
        uint64_t at = target == MUSTER_SCRATCH ? muster_builder_reserve(builder, 4) : 0;
        muster_builder_send(builder, 1 - rank, MUSTER_INPUT, all);
        muster_builder_recv_reduce(builder, 1 - rank, MUSTER_INPUT, all, target, at);
    }
}

static void a_race_in_place_only_is_found(void **state)
{
    (void)state;
    struct job job;
    exchange(&job, MUSTER_OUTPUT);
    expect_rejection(&job, "writes output[0..4) while lane 0 round 0 reads there (in place)");
}

static void a_race_between_lanes_is_found(void **state)
{
    (void)state;
    struct job job;
    struct muster_span all = {.count = 4};
    exchange(&job, MUSTER_SCRATCH);
    for (uint32_t rank = 0; rank < 2; rank++) {
        /* Lane 1 does not wait for lane 0. */
        muster_builder_set_lane(&job.builders[rank], 1);
        muster_builder_copy(&job.builders[rank], MUSTER_SCRATCH, all, MUSTER_OUTPUT, 0);
    }
    expect_rejection(&job, "lane 0 round 0: writes scratch[0..4) while lane 1 round 0 reads there");
}

static void a_race_of_two_writers_is_found(void **state)
{
    (void)state;
    struct job job;
    exchange(&job, MUSTER_SCRATCH);
    for (uint32_t rank = 0; rank < 2; rank++) {
        muster_builder_copy(&job.builders[rank], MUSTER_INPUT,
                            (struct muster_span){.offset = 3, .count = 1}, MUSTER_SCRATCH, 3);
    }
    expect_rejection(&job, "writes there too");
}

static void a_step_that_overlaps_itself_is_found(void **state)
{
    (void)state;
    struct job job;
    begin(&job, MUSTER_ALLREDUCE, 1, 4);
    muster_builder_copy(&job.builders[0], MUSTER_INPUT, (struct muster_span){.count = 4},
                        MUSTER_OUTPUT, 0);
    muster_builder_next_round(&job.builders[0]);
    muster_builder_copy(&job.builders[0], MUSTER_OUTPUT, (struct muster_span){.count = 3},
                        MUSTER_OUTPUT, 1);
    expect_rejection(&job, "the target output[1..4) overlaps the source");
}

static void the_right_exchange_is_proven(void **state)
{
    (void)state;
    struct job job;
    exchange(&job, MUSTER_SCRATCH);
    for (uint32_t rank = 0; rank < 2; rank++) {
        muster_builder_next_round(&job.builders[rank]);
        muster_builder_copy(&job.builders[rank], MUSTER_SCRATCH, (struct muster_span){.count = 4},
                            MUSTER_OUTPUT, 0);
    }
    struct muster_check_result result = end(&job);
    assert_true(result.proven);
    assert_int_equal(result.rounds, 2);
    assert_int_equal(result.elements_sent_max, 4);
    assert_int_equal(result.messages_sent_max, 1);
}

static void a_result_that_is_missing_is_found(void **state)
{
    (void)state;
    struct job job;
    exchange(&job, MUSTER_SCRATCH);
    expect_rejection(&job, "rank 0: output[0] is not what the collective requires");
}

/* Each rank adds the others' data to its own: right sums, but rounded differently. */
static void sums_in_different_orders_are_found(void **state)
{
    (void)state;
    struct job job;
    struct muster_span all = {.count = 2};
    begin(&job, MUSTER_ALLREDUCE, 3, 2);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct muster_builder *builder = &job.builders[rank];
        muster_builder_send(builder, (rank + 1) % 3, MUSTER_INPUT, all);
        muster_builder_recv_reduce(builder, (rank + 2) % 3, MUSTER_INPUT, all, MUSTER_SCRATCH,
                                   muster_builder_reserve(builder, 2));
        muster_builder_next_round(builder);
        muster_builder_send(builder, (rank + 2) % 3, MUSTER_INPUT, all);
        muster_builder_recv_reduce(builder, (rank + 1) % 3, MUSTER_SCRATCH, all, MUSTER_SCRATCH,
                                   muster_builder_reserve(builder, 2));
        muster_builder_next_round(builder);
        muster_builder_copy(builder, MUSTER_SCRATCH, (struct muster_span){.offset = 2, .count = 2},
                            MUSTER_OUTPUT, 0);
    }
    expect_rejection(&job, "rank 1: output[0] is reduced in another order than on rank 0");
}

static void data_that_is_counted_twice_is_found(void **state)
{
    (void)state;
    struct job job;
    struct muster_span all = {.count = 2};
    begin(&job, MUSTER_ALLREDUCE, 2, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_builder *builder = &job.builders[rank];
        uint64_t scratch = muster_builder_reserve(builder, 2);
        for (int i = 0; i < 2; i++) {
            muster_builder_send(builder, 1 - rank, MUSTER_INPUT, all);
            muster_builder_recv_reduce(builder, 1 - rank, i == 0 ? MUSTER_INPUT : MUSTER_SCRATCH,
                                       all, MUSTER_SCRATCH, scratch);
            muster_builder_next_round(builder);
        }
    }
    expect_rejection(&job, "is counted twice");
}

static void elements_in_the_wrong_place_are_found(void **state)
{
    (void)state;
    struct job job;
    begin(&job, MUSTER_ALLREDUCE, 2, 4);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_builder *builder = &job.builders[rank];
        uint64_t scratch = muster_builder_reserve(builder, 4);
        muster_builder_send(builder, 1 - rank, MUSTER_INPUT,
                            (struct muster_span){.offset = 1, .count = 3});
        muster_builder_recv_reduce(builder, 1 - rank, MUSTER_INPUT,
                                   (struct muster_span){.count = 3}, MUSTER_SCRATCH, scratch);
    }
    expect_rejection(&job, "reduces input element 0 with element 1");
}

static void sending_elements_that_no_step_wrote_is_found(void **state)
{
    (void)state;
    struct job job;
    struct muster_span all = {.count = 4};
    begin(&job, MUSTER_BROADCAST, 2, 4);
    muster_builder_recv(&job.builders[0], 1, MUSTER_OUTPUT, all);
    muster_builder_send(&job.builders[1], 0, MUSTER_INPUT, all); /* the root is 0 */
    expect_rejection(&job, "rank 1 lane 0 round 0: reads input[0], which no step wrote");
}

static void a_barrier_with_one_round_too_few_is_found(void **state)
{
    (void)state;
    struct job job;
    begin(&job, MUSTER_BARRIER, 4, 0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        muster_builder_send(&job.builders[rank], (rank + 1) % 4, MUSTER_INPUT,
                            (struct muster_span){0});
        muster_builder_recv(&job.builders[rank], (rank + 3) % 4, MUSTER_OUTPUT,
                            (struct muster_span){0});
    }
    expect_rejection(&job, "rank 0 finishes before rank 1 has started");
}

/* A message cannot carry what was received in the same round. */
static void knowledge_does_not_travel_two_hops_in_a_round(void **state)
{
    (void)state;
    struct job job;
    struct muster_span nothing = {0};
    begin(&job, MUSTER_BARRIER, 3, 0);
    muster_builder_send(&job.builders[0], 1, MUSTER_INPUT, nothing);
    muster_builder_recv(&job.builders[1], 0, MUSTER_OUTPUT, nothing);
    muster_builder_send(&job.builders[1], 2, MUSTER_INPUT, nothing);
    muster_builder_recv(&job.builders[2], 1, MUSTER_OUTPUT, nothing);
    muster_builder_next_round(&job.builders[0]);
    muster_builder_next_round(&job.builders[1]);
    muster_builder_next_round(&job.builders[2]);
    muster_builder_send(&job.builders[2], 0, MUSTER_INPUT, nothing);
    muster_builder_send(&job.builders[2], 1, MUSTER_INPUT, nothing);
    muster_builder_recv(&job.builders[0], 2, MUSTER_OUTPUT, nothing);
    muster_builder_recv(&job.builders[1], 2, MUSTER_OUTPUT, nothing);
    expect_rejection(&job, "rank 2 finishes before rank 0 has started");
}

static void messages_that_differ_in_number_or_size_are_found(void **state)
{
    (void)state;
    struct job job;
    begin(&job, MUSTER_BROADCAST, 2, 4);
    muster_builder_send(&job.builders[0], 1, MUSTER_INPUT, (struct muster_span){.count = 4});
    muster_builder_recv(&job.builders[1], 0, MUSTER_OUTPUT, (struct muster_span){.count = 3});
    expect_rejection(&job, "rank 0 lane 0: sends 4 elements to rank 1, which receives 3");
    begin(&job, MUSTER_BROADCAST, 2, 4);
    muster_builder_send(&job.builders[0], 1, MUSTER_INPUT, (struct muster_span){.count = 4});
    expect_rejection(&job, "rank 0 lane 0: sends to rank 1 more often than it receives");
    begin(&job, MUSTER_BROADCAST, 2, 4);
    muster_builder_recv(&job.builders[1], 0, MUSTER_OUTPUT, (struct muster_span){.count = 4});
    expect_rejection(&job, "rank 1 lane 0: receives from rank 0 more often than it sends");
}

static void an_unknown_buffer_is_found_even_in_an_empty_step(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(2, 1);
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_BARRIER, "dissemination", &algorithm), MUSTER_OK);
    const struct muster_plan plan = {.collective = MUSTER_BARRIER, .topology = &topology};
    struct test_job job = test_job_create(algorithm, &plan, false);
    assert_true(test_check(&job, job.schedules).proven);
    job.schedules[1].steps[0].source = MUSTER_SCRATCH + 1; /* of the send */
    struct muster_check_result result = test_check(&job, job.schedules);
    assert_false(result.proven);
    assert_non_null(strstr(result.why, "the source is out of bounds"));
    test_job_finish(&job);
    muster_topology_finish(&topology);
}

static void no_ranks_are_no_proof(void **state)
{
    (void)state;
    struct muster_shape shape = {.collective = MUSTER_BARRIER};
    struct muster_schedule none = {0};
    struct muster_check_result result;
    assert_int_equal(muster_check(&shape, &none, 0, false, &result), MUSTER_OK);
    assert_false(result.proven);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_that_both_send_first_are_a_deadlock),
        cmocka_unit_test(a_ring_that_receives_first_is_a_deadlock),
        cmocka_unit_test(a_race_in_place_only_is_found),
        cmocka_unit_test(a_race_between_lanes_is_found),
        cmocka_unit_test(a_race_of_two_writers_is_found),
        cmocka_unit_test(a_step_that_overlaps_itself_is_found),
        cmocka_unit_test(the_right_exchange_is_proven),
        cmocka_unit_test(a_result_that_is_missing_is_found),
        cmocka_unit_test(sums_in_different_orders_are_found),
        cmocka_unit_test(data_that_is_counted_twice_is_found),
        cmocka_unit_test(elements_in_the_wrong_place_are_found),
        cmocka_unit_test(sending_elements_that_no_step_wrote_is_found),
        cmocka_unit_test(a_barrier_with_one_round_too_few_is_found),
        cmocka_unit_test(knowledge_does_not_travel_two_hops_in_a_round),
        cmocka_unit_test(messages_that_differ_in_number_or_size_are_found),
        cmocka_unit_test(an_unknown_buffer_is_found_even_in_an_empty_step),
        cmocka_unit_test(no_ranks_are_no_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
