/* The executor, with schedules written by hand: order of steps and messages, deadlines, receives
 * that are posted early, and cleanup after a failure. */
#include "tests/support/group.h"
#include "worker/base/clock.h"
#include "worker/executor/executor.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS_MAX = 64, COUNT_MAX = 4096, CONTEXT = 9 };

/* One rank's schedule and buffers, and what its operation returned. */
struct part {
    struct muster_step steps[STEPS_MAX];
    size_t step_count;
    uint32_t lanes;
    int32_t in[COUNT_MAX], out[COUNT_MAX], scratch[COUNT_MAX];
    uint64_t count;
    muster_op op;
    int64_t deadline_ns; /* 0: one that only a hanging test reaches */
    bool in_place;
    /* What the operation returned. */
    muster_status status;
    uint32_t suspect;
    char text[MUSTER_ERROR_MAX];
};

static const uint32_t global_ranks[GROUP_SIZE_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

static struct part *new_parts(uint32_t size)
{
    struct part *parts = calloc(size, sizeof *parts);
    assert_non_null(parts);
    for (uint32_t rank = 0; rank < size; rank++) {
        parts[rank].count = 4;
        for (int i = 0; i < COUNT_MAX; i++) {
            parts[rank].in[i] = 1000 * (int)(rank + 1) + i;
        }
    }
    return parts;
}

static void add(struct part *part, struct muster_step step)
{
    assert_true(part->step_count < STEPS_MAX);
    part->steps[part->step_count++] = step;
    part->lanes = step.lane + 1u;
}

static struct muster_step send_step(uint16_t lane, uint32_t round, uint32_t peer, uint8_t source,
                                    struct muster_span span)
{
    return (struct muster_step){.kind = MUSTER_STEP_SEND,
                                .source = source,
                                .lane = lane,
                                .round = round,
                                .peer = peer,
                                .span = span};
}

static struct muster_step receive_step(uint16_t lane, uint32_t round, uint32_t peer, uint8_t target,
                                       struct muster_span span)
{
    return (struct muster_step){.kind = MUSTER_STEP_RECV,
                                .target = target,
                                .lane = lane,
                                .round = round,
                                .peer = peer,
                                .span = span,
                                .at = span.offset};
}

static struct muster_step local_step(uint8_t kind, uint16_t lane, uint32_t round, uint8_t source,
                                     struct muster_span span, uint8_t target, uint64_t at)
{
    return (struct muster_step){.kind = kind,
                                .source = source,
                                .target = target,
                                .lane = lane,
                                .round = round,
                                .span = span,
                                .at = at};
}

/* Runs one rank's schedule as operation `sequence`, and records what it returns. */
static muster_status run_part(struct group_member *member, struct part *part, uint64_t sequence)
{
    struct muster_schedule schedule = {
        .rank = member->rank,
        .ranks = member->group->size,
        .input_count = part->count,
        .output_count = part->count,
        .lanes = part->lanes,
        .step_count = part->step_count,
        .steps = malloc(sizeof part->steps),
    };
    memcpy(schedule.steps, part->steps, sizeof part->steps);
    struct muster_operation *operation = NULL;
    TRY(muster_operation_create(member->fabric, &schedule, global_ranks, &operation));
    const struct muster_reduction reduction = {
        .type = MUSTER_INT32, .op = part->op, .prescale = 1, .postscale = 1};
    const struct muster_launch launch = {
        .generation = member->group->generation,
        .context = CONTEXT,
        .sequence = sequence,
        .call = {.collective = MUSTER_ALLREDUCE,
                 .type = MUSTER_INT32,
                 .op = (uint8_t)part->op,
                 .count = part->count},
        .reduction = reduction,
        .in = part->in_place ? part->out : part->in,
        .out = part->out,
        .scratch = part->scratch,
        .deadline_ns = part->deadline_ns != 0 ? part->deadline_ns : group_deadline(),
    };
    part->suspect = UINT32_MAX;
    part->status = muster_operation_run(operation, &launch, &part->suspect);
    (void)snprintf(part->text, sizeof part->text, "%s", muster_last_error());
    muster_operation_destroy(operation);
    return part->status;
}

static void run_own_part(struct group_member *member, void *argument)
{
    struct part *parts = argument;
    (void)run_part(member, &parts[member->rank], 1);
}

static void run_parts(uint32_t size, struct part *parts)
{
    struct group group;
    group_start_flat(&group, GROUP_INPROC, size);
    group_each(&group, run_own_part, parts);
    group_finish(&group);
    for (uint32_t i = 0; i < size; i++) {
        if (parts[i].status != MUSTER_OK) {
            fail_msg("rank %u: %s", i, parts[i].text);
        }
    }
}

static void messages_of_one_round_to_one_peer_keep_their_order(void **state)
{
    (void)state;
    struct part *parts = new_parts(2);
    for (uint64_t i = 0; i < 3; i++) {
        struct muster_span span = {.offset = i, .count = 1};
        add(&parts[0], send_step(0, 0, 1, MUSTER_INPUT, span));
        span.offset = 2 - i;
        add(&parts[1], receive_step(0, 0, 0, MUSTER_OUTPUT, span));
    }
    run_parts(2, parts);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(parts[1].out[i], 1000 + 2 - i);
    }
    free(parts);
}

/* In each lane rank 0 sends its value, rank 1 adds its own in a local step and sends the sum back,
 * TRIPS times. */
static void local_steps_run_between_the_rounds_of_their_lane(void **state)
{
    (void)state;
    enum { LANES = 3, TRIPS = 4 };
    struct part *parts = new_parts(2);
    parts[0].count = parts[1].count = LANES;
    for (uint16_t lane = 0; lane < LANES; lane++) {
        struct muster_span span = {.offset = lane, .count = 1};
        add(&parts[0],
            local_step(MUSTER_STEP_COPY, lane, 0, MUSTER_INPUT, span, MUSTER_OUTPUT, lane));
        for (uint32_t trip = 0; trip < TRIPS; trip++) {
            add(&parts[0], send_step(lane, 2 * trip + 1, 1, MUSTER_OUTPUT, span));
            add(&parts[0], receive_step(lane, 2 * trip + 2, 1, MUSTER_OUTPUT, span));
            add(&parts[1], receive_step(lane, 3 * trip, 0, MUSTER_SCRATCH, span));
            add(&parts[1], local_step(MUSTER_STEP_REDUCE, lane, 3 * trip + 1, MUSTER_INPUT, span,
                                      MUSTER_SCRATCH, lane));
            add(&parts[1], send_step(lane, 3 * trip + 2, 0, MUSTER_SCRATCH, span));
        }
    }
    run_parts(2, parts);
    for (int lane = 0; lane < LANES; lane++) {
        assert_int_equal(parts[0].out[lane], 1000 + lane + TRIPS * (2000 + lane));
    }
    free(parts);
}

static void a_received_message_is_reduced_with_the_input(void **state)
{
    (void)state;
    struct part *parts = new_parts(2);
    parts[0].count = parts[1].count = COUNT_MAX;
    struct muster_span all = {.count = COUNT_MAX};
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_step step = receive_step(0, 0, 1 - rank, MUSTER_OUTPUT, all);
        step.kind = MUSTER_STEP_RECV_REDUCE;
        step.source = MUSTER_INPUT;
        add(&parts[rank], send_step(0, 0, 1 - rank, MUSTER_INPUT, all));
        add(&parts[rank], step);
        parts[rank].op = MUSTER_MAX;
    }
    run_parts(2, parts);
    for (int i = 0; i < COUNT_MAX; i++) {
        assert_int_equal(parts[0].in[i], 1000 + i);
        assert_int_equal(parts[0].out[i], 2000 + i);
        assert_int_equal(parts[1].out[i], 2000 + i);
    }
    free(parts);
}

static void a_schedule_of_local_steps_runs_on_one_rank(void **state)
{
    (void)state;
    struct part *parts = new_parts(1);
    struct muster_span all = {.count = 4};
    add(&parts[0], local_step(MUSTER_STEP_COPY, 0, 0, MUSTER_INPUT, all, MUSTER_OUTPUT, 0));
    add(&parts[0], local_step(MUSTER_STEP_REDUCE, 0, 1, MUSTER_INPUT, all, MUSTER_OUTPUT, 0));
    run_parts(1, parts);
    assert_int_equal(parts[0].out[3], 2 * 1003);
    parts[0].in_place = true; /* the copy's source is its target */
    run_parts(1, parts);
    assert_int_equal(parts[0].out[3], 4 * 1003);
    free(parts);
}

static void an_empty_schedule_succeeds(void **state)
{
    (void)state;
    struct part *parts = new_parts(1);
    run_parts(1, parts);
    free(parts);
}

static void a_group_step_without_a_group_is_refused_by_name(void **state)
{
    (void)state;
    struct group group;
    struct part *parts = new_parts(2);
    add(&parts[0], (struct muster_step){.kind = MUSTER_STEP_GROUP_ALLREDUCE,
                                        .target = MUSTER_OUTPUT,
                                        .span = {.count = 1}});
    group_start_flat(&group, GROUP_INPROC, 2);
    assert_int_equal(run_part(&group.members[0], &parts[0], 1), MUSTER_INVALID);
    assert_non_null(strstr(parts[0].text, "group_allreduce"));
    group_finish(&group);
    free(parts);
}

static void a_receive_of_an_empty_message_waits_for_it(void **state)
{
    (void)state;
    struct group group;
    struct part *parts = new_parts(2);
    add(&parts[0], receive_step(0, 0, 1, MUSTER_OUTPUT, (struct muster_span){0}));
    parts[0].deadline_ns = muster_clock_after_ms(20);
    group_start_flat(&group, GROUP_INPROC, 2);
    assert_int_equal(run_part(&group.members[0], &parts[0], 1), MUSTER_RETRY);
    group_finish(&group);
    free(parts);
}

static void run_parts_of_ranks_0_and_1(struct group_member *member, void *argument)
{
    struct part *parts = argument;
    if (member->rank != 2) {
        (void)run_part(member, &parts[member->rank], 7);
    }
}

/* Rank 2 does not call: rank 0 waits for it, rank 1 waits for no rank. */
static void a_passed_deadline_names_the_rank_that_is_waited_for(void **state)
{
    (void)state;
    struct part *parts = new_parts(3);
    struct muster_span span = {.count = 2};
    add(&parts[0], receive_step(0, 0, 1, MUSTER_OUTPUT, span));
    add(&parts[0], receive_step(0, 1, 2, MUSTER_OUTPUT, span));
    add(&parts[1], send_step(0, 0, 0, MUSTER_INPUT, span));
    /* On a busy machine rank 1's thread may start too late; then the times are doubled. */
    int64_t limit_ns = group_deadline();
    for (uint32_t time_ms = 50;; time_ms *= 2) {
        struct group group;
        parts[0].deadline_ns = muster_clock_after_ms(time_ms);
        parts[1].deadline_ns = muster_clock_after_ms(2 * time_ms);
        group_start_flat(&group, GROUP_INPROC, 3);
        group_each(&group, run_parts_of_ranks_0_and_1, parts);
        group_finish(&group);
        if (parts[1].status == MUSTER_OK || muster_clock_ns() > limit_ns) {
            break;
        }
    }
    assert_int_equal(parts[1].status, MUSTER_OK);
    assert_int_equal(parts[0].status, MUSTER_RETRY);
    assert_int_equal(parts[0].suspect, 2);
    assert_string_equal(parts[0].text,
                        "the deadline passed while it waited for rank 2 "
                        "(lane 0, round 1: receive)");
    free(parts);
}

/* Rank 0's first round ends only after rank 1 has sent the large message of rank 0's second round.
 */
static void a_receive_into_an_unused_target_is_posted_a_round_early(void **state)
{
    (void)state;
    struct part *parts = new_parts(3);
    struct muster_span word = {.count = 1};
    struct muster_span rest = {.offset = 1, .count = COUNT_MAX - 1};
    for (uint32_t rank = 0; rank < 3; rank++) {
        parts[rank].count = COUNT_MAX;
    }
    for (uint32_t round = 0; round < 8; round += 2) {
        add(&parts[0], receive_step(0, round, 2, MUSTER_OUTPUT, word));
        add(&parts[0], receive_step(0, round + 1, 1, MUSTER_OUTPUT, rest));
        add(&parts[1], send_step(0, round, 0, MUSTER_INPUT, rest));
        add(&parts[1], send_step(0, round + 1, 2, MUSTER_INPUT, word));
        add(&parts[2], receive_step(0, round, 1, MUSTER_OUTPUT, word));
        add(&parts[2], send_step(0, round + 1, 0, MUSTER_OUTPUT, word));
    }
    run_parts(3, parts);
    assert_int_equal(parts[0].out[0], 2000);
    for (int i = 1; i < COUNT_MAX; i++) {
        assert_int_equal(parts[0].out[i], 2000 + i);
    }
    free(parts);
}

/* Rank 1 adds its input to each message, in the buffer into which the next message is received. */
static void a_receive_is_not_posted_before_the_round_that_reads_its_target(void **state)
{
    (void)state;
    struct part *parts = new_parts(2);
    struct muster_span span = {.count = COUNT_MAX};
    parts[0].count = parts[1].count = COUNT_MAX;
    for (uint32_t round = 0; round < 8; round++) {
        add(&parts[0], send_step(0, round, 1, MUSTER_INPUT, span));
        add(&parts[1], receive_step(0, 2 * round, 0, MUSTER_OUTPUT, span));
        add(&parts[1],
            local_step(MUSTER_STEP_REDUCE, 0, 2 * round + 1, MUSTER_INPUT, span, MUSTER_OUTPUT, 0));
    }
    parts[0].op = parts[1].op = MUSTER_SUM;
    run_parts(2, parts);
    for (int i = 0; i < COUNT_MAX; i++) {
        assert_int_equal(parts[1].out[i], 1000 + i + 2000 + i);
    }
    free(parts);
}

/* A new generation shows it: the fabric refuses one while transfers are posted. */
static void a_failed_operation_leaves_no_transfer_posted(void **state)
{
    (void)state;
    struct group group;
    struct part *parts = new_parts(2);
    struct muster_span span = {.count = COUNT_MAX};
    for (uint32_t round = 0; round < 8; round++) {
        add(&parts[0], receive_step(0, round, 1, MUSTER_OUTPUT, span));
        add(&parts[0], send_step(0, round, 1, MUSTER_INPUT, span));
    }
    parts[0].deadline_ns = muster_clock_after_ms(20);
    group_start_flat(&group, GROUP_INPROC, 2);
    assert_int_equal(run_part(&group.members[0], &parts[0], 1), MUSTER_RETRY);
    struct muster_peer alone;
    muster_fabric_describe(group.members[0].fabric, &alone);
    assert_int_equal(muster_fabric_begin_generation(group.members[0].fabric, 4, &alone, 1),
                     MUSTER_OK);
    group_finish(&group);
    free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_one_round_to_one_peer_keep_their_order),
        cmocka_unit_test(local_steps_run_between_the_rounds_of_their_lane),
        cmocka_unit_test(a_received_message_is_reduced_with_the_input),
        cmocka_unit_test(a_schedule_of_local_steps_runs_on_one_rank),
        cmocka_unit_test(an_empty_schedule_succeeds),
        cmocka_unit_test(a_group_step_without_a_group_is_refused_by_name),
        cmocka_unit_test(a_receive_of_an_empty_message_waits_for_it),
        cmocka_unit_test(a_passed_deadline_names_the_rank_that_is_waited_for),
        cmocka_unit_test(a_receive_into_an_unused_target_is_posted_a_round_early),
        cmocka_unit_test(a_receive_is_not_posted_before_the_round_that_reads_its_target),
        cmocka_unit_test(a_failed_operation_leaves_no_transfer_posted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
