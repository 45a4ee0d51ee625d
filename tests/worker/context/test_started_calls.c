/* Calls in flight: any number at once, ended in any order, beside blocking calls; and their
 * failures. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

enum { MEMBERS = 4, CALLS = 40, COUNT_MAX = 30000, NEVER_STARTED_MS = 300 };

static const uint32_t hosts[] = {3, 1};

static uint64_t seed;

/* One call of one member. */
struct call {
    struct muster_started_call *started;
    int32_t *in, *out;
    size_t count;
    int32_t expected; /* of each element */
};

static struct muster_request sum_of(const struct call *call)
{
    return (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                   .in = call->in,
                                   .out = call->out,
                                   .count = call->count,
                                   .type = MUSTER_INT32,
                                   .op = MUSTER_SUM,
                                   .deadline_ns = group_deadline()};
}

/* Element i of the n-th call is n + i + rank on each member. */
static void start_call(struct group_member *member, struct call *call, size_t count, int32_t number)
{
    call->count = count;
    call->in = malloc(count * sizeof *call->in);
    call->out = calloc(count, sizeof *call->out);
    for (size_t i = 0; i < count; i++) {
        call->in[i] = number + (int32_t)i + (int32_t)member->rank;
    }
    call->expected = number * MEMBERS + 0 + 1 + 2 + 3;
    const struct muster_request request = sum_of(call);
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call->started) !=
        MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        call->started = NULL;
    }
}

static void end_call(struct group_member *member, struct call *call)
{
    if (call->started != NULL && muster_started_call_end(call->started, NULL) != MUSTER_OK) {
        group_fail(member, "end: %s", muster_last_error());
    }
    for (size_t i = 0; i < call->count && member->failure[0] == '\0'; i++) {
        if (call->out[i] != call->expected + (int32_t)i * MEMBERS) {
            group_fail(member, "element %zu is %d", i, call->out[i]);
        }
    }
    free(call->in);
    free(call->out);
}

/* All members draw the same sizes; each ends its calls in an order of its own. */
static void run_many(struct group_member *member, void *argument)
{
    struct call calls[CALLS];
    uint64_t sizes = seed;
    uint64_t order = seed + 1 + member->rank;
    (void)argument;
    for (int32_t i = 0; i < CALLS; i++) {
        size_t count = test_random(&sizes) % (i % 3 == 0 ? COUNT_MAX : 8) + 1;
        start_call(member, &calls[i], count, i);
    }
    for (size_t left = CALLS; left > 0; left--) {
        size_t pick = test_random(&order) % left;
        end_call(member, &calls[pick]);
        calls[pick] = calls[left - 1];
    }
}

static void test_many_calls_are_in_flight_and_end_in_any_order(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start(&group, transport, 2, hosts, NULL);
        group_each(&group, run_many, NULL);
        group_each(&group, run_many, NULL); /* with operations that are there */
        group_finish(&group);
    }
}

/* A member waits in shared memory while its call in flight is needed by a member that waits for
 * that one first. */
static void run_beside_blocking(struct group_member *member, void *argument)
{
    struct call calls[2];
    struct call blocking = {.count = 1, .in = malloc(4), .out = calloc(1, 4)};
    (void)argument;
    for (int round = 0; round < 10; round++) {
        start_call(member, &calls[0], 1000, round);
        start_call(member, &calls[1], COUNT_MAX, round);
        if (member->rank % 2 == 0) {
            end_call(member, &calls[1]);
        }
        *blocking.in = 1;
        const struct muster_request request = sum_of(&blocking);
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK ||
            *blocking.out != MEMBERS) {
            group_fail(member, "blocking: %d, %s", *blocking.out, muster_last_error());
        }
        if (member->rank % 2 != 0) {
            end_call(member, &calls[1]);
        }
        end_call(member, &calls[0]);
    }
    free(blocking.in);
    free(blocking.out);
}

static void test_blocking_calls_and_calls_in_flight_do_not_wait_for_each_other(void **state)
{
    static const uint32_t one_host[] = {MEMBERS};
    (void)state;
    for (enum group_transport transport = GROUP_INPROC; transport <= GROUP_MEMORY; transport++) {
        struct group group;
        group_start(&group, transport, 1, one_host, NULL);
        group_each(&group, run_beside_blocking, NULL);
        group_finish(&group);
    }
}

/* Every collective, with several buffers and an average. */
static void run_each_collective(struct group_member *member, void *argument)
{
    enum { COUNT = 5 };
    float in[COUNT * MEMBERS];
    float second[COUNT * MEMBERS];
    float out[COUNT * MEMBERS];
    float further[COUNT * MEMBERS];
    const void *inputs[] = {in, second};
    void *outputs[] = {out, further};
    (void)argument;
    for (int each = MUSTER_ALLREDUCE; each < MUSTER_COLLECTIVE_END; each++) {
        struct muster_request request = {.collective = (enum muster_collective)each,
                                         .in = in,
                                         .out = out,
                                         .count = COUNT,
                                         .type = MUSTER_FLOAT32,
                                         .op = MUSTER_SUM,
                                         .deadline_ns = group_deadline()};
        if (muster_collective_needs_bounds(request.collective)) {
            continue;
        }
        for (int i = 0; i < COUNT * MEMBERS; i++) {
            in[i] = second[i] = out[i] = (float)member->rank;
        }
        if (each == MUSTER_BARRIER) {
            request = (struct muster_request){.collective = MUSTER_BARRIER,
                                              .deadline_ns = group_deadline()};
        } else if (each == MUSTER_BROADCAST) {
            request.in = NULL;
        } else if (each == MUSTER_ALLREDUCE) {
            request.op = MUSTER_AVERAGE;
            request.buffer_count = 2;
            request.inputs = inputs;
            request.outputs = outputs;
        }
        struct muster_started_call *call = NULL;
        if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call) != MUSTER_OK ||
            muster_started_call_end(call, NULL) != MUSTER_OK) {
            group_fail(member, "%s: %s", muster_collective_name(request.collective),
                       muster_last_error());
            return;
        }
        if (each == MUSTER_ALLREDUCE && (out[0] != 1.5F || further[COUNT - 1] != 1.5F)) {
            group_fail(member, "the average is %g and %g", (double)out[0],
                       (double)further[COUNT - 1]);
        }
        if (each == MUSTER_ALLGATHER && out[COUNT * (MEMBERS - 1)] != MEMBERS - 1) {
            group_fail(member, "the last block has %g", (double)out[COUNT * (MEMBERS - 1)]);
        }
    }
}

static void test_every_collective_can_be_started(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, run_each_collective, NULL);
    group_finish(&group);
}

/* Member 0 starts late: until then the others' wait gives up, and their call lives on. */
static void wait_for_the_last(struct group_member *member, void *argument)
{
    pthread_barrier_t *barrier = argument;
    struct call call;
    if (member->rank == 0) {
        (void)pthread_barrier_wait(barrier);
    }
    start_call(member, &call, 100, 7);
    if (member->rank != 0) {
        if (muster_started_call_wait(call.started, muster_clock_after_ms(20)) ||
            muster_started_call_test(call.started)) {
            group_fail(member, "the call is done without member 0");
        }
        (void)pthread_barrier_wait(barrier);
    }
    if (!muster_started_call_wait(call.started, group_deadline()) ||
        !muster_started_call_test(call.started)) {
        group_fail(member, "the call is not done");
    }
    end_call(member, &call);
}

static void test_a_wait_with_a_limit_gives_up_waiting_and_not_the_call(void **state)
{
    (void)state;
    pthread_barrier_t barrier;
    struct group group;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, MEMBERS), 0);
    group_start(&group, GROUP_TCP, 2, hosts, NULL);
    group_each(&group, wait_for_the_last, &barrier);
    group_finish(&group);
    pthread_barrier_destroy(&barrier);
}

enum { SHORT_MS = 200 };

/* Computes for longer than the limit of a call. */
static void compute_for_long(void)
{
    int64_t until_ns = muster_clock_after_ms(2 * SHORT_MS);
    while (muster_clock_ns() < until_ns) {
    }
}

/* Member 0 starts late. The limit of the others' call is shorter than that, but it counts only the
 * time for which they wait. */
static void compute_beyond_the_limit(struct group_member *member, void *argument)
{
    pthread_barrier_t *barrier = argument;
    int32_t in = 1;
    int32_t out = 0;
    struct call call = {.in = &in, .out = &out, .count = 1};
    struct muster_request request = sum_of(&call);
    request.deadline_ns = muster_clock_after_ms(SHORT_MS);
    if (member->rank == 0) {
        compute_for_long();
        (void)pthread_barrier_wait(barrier);
        request.deadline_ns = group_deadline();
    }
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call.started) !=
        MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    if (member->rank != 0) {
        (void)muster_started_call_wait(call.started, muster_clock_after_ms(1));
        (void)pthread_barrier_wait(barrier);
    }
    if (muster_started_call_end(call.started, NULL) != MUSTER_OK || out != MEMBERS) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void test_the_limit_of_a_call_counts_while_a_thread_waits(void **state)
{
    (void)state;
    pthread_barrier_t barrier;
    struct group group;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, MEMBERS), 0);
    group_start(&group, GROUP_TCP, 2, hosts, NULL);
    group_each(&group, compute_beyond_the_limit, &barrier);
    group_finish(&group);
    pthread_barrier_destroy(&barrier);
}

/* Member 0 never starts: who waits gets the status of a deadline, and a text that names it. */
static void wait_beyond_the_limit(struct group_member *member, void *argument)
{
    int32_t in = 1;
    int32_t out = 0;
    uint32_t suspect = UINT32_MAX;
    struct call call = {.in = &in, .out = &out, .count = 1};
    struct muster_request request = sum_of(&call);
    (void)argument;
    if (member->rank == 0) {
        return;
    }
    request.deadline_ns = muster_clock_after_ms(SHORT_MS);
    request.algorithm = "all_to_one";
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call.started) !=
        MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    if (muster_started_call_wait(call.started, muster_clock_after_ms(1))) {
        group_fail(member, "the call is done without member 0");
    }
    if (muster_started_call_end(call.started, &suspect) != MUSTER_REJOIN || suspect != 0) {
        group_fail(member, "suspect %u: %s", suspect, muster_last_error());
    }
}

static void test_a_call_that_is_waited_for_ends_at_its_limit(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_TCP, 2, hosts, NULL);
    group_each(&group, wait_beyond_the_limit, NULL);
    group_finish(&group);
}

static void detach_all(struct group_member *member, void *argument)
{
    int32_t(*buffers)[2] = argument;
    int32_t *own = buffers[member->rank];
    struct call call = {.in = &own[0], .out = &own[1], .count = 1};
    const struct muster_request request = sum_of(&call);
    own[0] = 1;
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call.started) !=
        MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    muster_started_call_detach(call.started);
}

static void test_a_detached_call_finishes_by_itself(void **state)
{
    (void)state;
    int32_t buffers[2][MEMBERS][2] = {{{0}}};
    struct group group;
    group_start(&group, GROUP_SHM, 2, hosts, NULL);
    group_each(&group, detach_all, buffers[0]);
    group_each(&group, detach_all, buffers[1]); /* a later start releases what has finished */
    group_finish(&group);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(buffers[0][i][1], MEMBERS);
        assert_int_equal(buffers[1][i][1], MEMBERS);
    }
}

/* What the service does after a member's report. */
static void revoke_everywhere(const struct group_member *member)
{
    for (uint32_t i = 0; i < MEMBERS - 1; i++) {
        muster_fabric_revoke(member->group->members[i].fabric, member->group->generation,
                             "a member died");
    }
}

/* The last member starts nothing and dies. */
static void lose_a_member(struct group_member *member, void *argument)
{
    int32_t in[100] = {0};
    int32_t out[100];
    struct muster_started_call *calls[3];
    struct muster_started_call *further = NULL;
    const struct call buffers = {.in = in, .out = out, .count = 100};
    uint32_t suspect = 0;
    (void)argument;
    if (member->rank == MEMBERS - 1) {
        muster_fabric_kill(member->fabric);
        return;
    }
    const struct muster_request request = sum_of(&buffers);
    for (int i = 0; i < 3; i++) {
        /* The death may be known before the last call is started. */
        if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &calls[i]) !=
            MUSTER_OK) {
            calls[i] = NULL;
        }
    }
    for (int i = 0; i < 3; i++) {
        muster_status status =
            calls[i] != NULL ? muster_started_call_end(calls[i], &suspect) : MUSTER_REJOIN;
        if (status != MUSTER_REJOIN || strstr(muster_last_error(), "allreduce #") == NULL) {
            group_fail(member, "call %d: %s, %s", i, muster_status_name(status),
                       muster_last_error());
        }
        revoke_everywhere(member);
    }
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &further) !=
        MUSTER_REJOIN) {
        group_fail(member, "a call was started after a failure");
    }
}

static void test_a_death_ends_all_calls_in_flight(void **state)
{
    (void)state;
    group_over_links(2, hosts, lose_a_member, NULL);
}

/* Member 1 starts a call of another count, and then all a call of the same. */
static void disagree(struct group_member *member, void *argument)
{
    int32_t in[100] = {0};
    int32_t out[100];
    struct muster_started_call *call = NULL;
    struct call good;
    const struct call buffers = {.in = in, .out = out, .count = member->rank == 1 ? 99 : 100};
    (void)argument;
    const struct muster_request request = sum_of(&buffers);
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call) != MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    muster_status status = muster_started_call_end(call, NULL);
    if (status != MUSTER_INVALID || strstr(muster_last_error(), "99") == NULL ||
        strstr(muster_last_error(), "100") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    start_call(member, &good, 10, 3);
    end_call(member, &good);
}

static void test_a_disagreement_ends_the_call_with_both_values_and_no_other(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_TCP, 2, hosts, NULL);
    group_each(&group, disagree, NULL);
    group_finish(&group);
}

/* Member 2 never starts the call. */
static void miss_a_member(struct group_member *member, void *argument)
{
    int32_t in[10] = {0};
    int32_t out[10];
    struct muster_started_call *call = NULL;
    const struct call buffers = {.in = in, .out = out, .count = 10};
    (void)argument;
    if (member->rank == 2) {
        return;
    }
    struct muster_request request = sum_of(&buffers);
    request.deadline_ns = muster_clock_after_ms(NEVER_STARTED_MS);
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &call) != MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    muster_status status = muster_started_call_end(call, NULL);
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), "deadline") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void test_a_call_that_a_member_never_starts_ends_at_its_deadline(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, miss_a_member, NULL);
    group_finish(&group);
}

/* New figures --------------------------------------------------------------------------------- */

/* Some members end their call before they have new figures, others afterwards. By the old ones a
 * message costs little, by the new ones very much, so that another algorithm is chosen. */
static void change_figures(struct group_member *member, void *argument)
{
    (void)argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct muster_cost_model model = muster_cost_model_default;
    for (int round = 0; round < 4; round++) {
        struct call calls[2];
        start_call(member, &calls[0], COUNT_MAX, round);
        if (member->rank % 2 == 0) {
            end_call(member, &calls[0]);
        }
        for (int level = 0; level < MUSTER_LEVEL_COUNT; level++) {
            model.links[level].latency_us = round % 2 == 0 ? 100000 : 0.01;
        }
        muster_context_set_model(context, &model);
        if (member->rank % 2 != 0) {
            end_call(member, &calls[0]);
        }
        start_call(member, &calls[1], COUNT_MAX, round + 1);
        end_call(member, &calls[1]);
    }
}

static void members_choose_alike_whenever_they_end_the_calls_before(void **state)
{
    (void)state;
    struct group group;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, change_figures, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_choose_alike_whenever_they_end_the_calls_before),
        cmocka_unit_test(test_many_calls_are_in_flight_and_end_in_any_order),
        cmocka_unit_test(test_blocking_calls_and_calls_in_flight_do_not_wait_for_each_other),
        cmocka_unit_test(test_every_collective_can_be_started),
        cmocka_unit_test(test_a_wait_with_a_limit_gives_up_waiting_and_not_the_call),
        cmocka_unit_test(test_the_limit_of_a_call_counts_while_a_thread_waits),
        cmocka_unit_test(test_a_call_that_is_waited_for_ends_at_its_limit),
        cmocka_unit_test(test_a_detached_call_finishes_by_itself),
        cmocka_unit_test(test_a_death_ends_all_calls_in_flight),
        cmocka_unit_test(test_a_disagreement_ends_the_call_with_both_values_and_no_other),
        cmocka_unit_test(test_a_call_that_a_member_never_starts_ends_at_its_deadline),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
