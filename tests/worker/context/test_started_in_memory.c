/*
 * Calls in flight of ranks that share memory: group steps take turns there in the order of the
 * calls, beside calls that run by messages and beside blocking calls; and their failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "tests/support/sweep.h"
#include "worker/base/clock.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CALLS = 20 };
#else
enum { CALLS = 60 };
#endif
enum { COUNT_MAX = 100000, RANKS_MAX = 5, BLOCKING_EVERY = 10, SHORT_MS = 300 };

static uint64_t seed;

static struct muster_context *context_of(const struct group_member *member)
{
    return member->contexts[MUSTER_GLOBAL];
}

/* Random calls ------------------------------------------------------------------------------------
 */

/* One call of one member; element i of its input is number + i + rank. */
struct call {
    struct muster_started_call *started;
    struct muster_request request;
    int64_t *in, *out;
    int64_t number;
};

static void fill(struct call *call, uint32_t rank, size_t elements)
{
    call->in = malloc(elements * sizeof *call->in);
    call->out = malloc(elements * sizeof *call->out);
    for (size_t i = 0; i < elements; i++) {
        call->in[i] = call->number + (int64_t)i + rank;
        call->out[i] = call->in[i];
    }
}

/* The same call on all members, by the generator's state. Some run by messages. */
static void draw(const struct group_member *member, uint64_t *random, struct call *call)
{
    static const enum muster_collective collectives[] = {
        MUSTER_ALLREDUCE, MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER,
        MUSTER_BROADCAST, MUSTER_REDUCE,    MUSTER_BARRIER,        MUSTER_ALLTOALL};
    uint32_t ranks = member->group->size;
    call->number = (int64_t)(test_random(random) % 1000);
    call->request = (struct muster_request){
        .collective = collectives[test_random(random) % 8],
        .count = test_random(random) % 4 == 0 ? test_random(random) % COUNT_MAX / ranks + 1
                                              : test_random(random) % 9 + 1,
        .type = MUSTER_INT64,
        .op = MUSTER_SUM,
        .root = (uint32_t)(test_random(random) % ranks),
        .deadline_ns = group_deadline()};
    fill(call, member->rank, call->request.count * ranks);
    call->request.in = call->request.collective == MUSTER_BROADCAST ? NULL : call->in;
    call->request.out = call->out;
    call->request.finish_together = test_random(random) % 4 == 0;
    if (call->request.collective == MUSTER_ALLREDUCE && test_random(random) % 3 == 0) {
        call->request.algorithm = "ring"; /* by messages */
    }
    if (call->request.collective == MUSTER_BARRIER) {
        call->request =
            (struct muster_request){.collective = MUSTER_BARRIER, .deadline_ns = group_deadline()};
    } else if (call->request.collective != MUSTER_BROADCAST &&
               call->request.collective != MUSTER_REDUCE) {
        call->request.root = 0;
    }
}

/* The sum of an element over all ranks. */
static int64_t sum_at(const struct call *call, uint32_t ranks, size_t element)
{
    return ranks * (call->number + (int64_t)element) + (int64_t)ranks * (ranks - 1) / 2;
}

/* What element i of the output has to be. */
static int64_t expected(const struct call *call, const struct group_member *member, size_t i)
{
    uint32_t ranks = member->group->size;
    size_t count = call->request.count;
    switch (call->request.collective) {
    case MUSTER_ALLREDUCE:
        return sum_at(call, ranks, i);
    case MUSTER_REDUCE:
        return member->rank == call->request.root ? sum_at(call, ranks, i) : call->out[i];
    case MUSTER_REDUCE_SCATTER:
        return sum_at(call, ranks, member->rank * count + i);
    case MUSTER_BROADCAST:
        return call->number + (int64_t)i + call->request.root;
    case MUSTER_ALLGATHER:
        return call->number + (int64_t)(i % count + i / count);
    default: /* alltoall */
        return call->number + (int64_t)(member->rank * count + i % count + i / count);
    }
}

static void check(struct group_member *member, const struct call *call)
{
    enum muster_collective collective = call->request.collective;
    size_t blocks =
        collective == MUSTER_ALLGATHER || collective == MUSTER_ALLTOALL ? member->group->size : 1;
    for (size_t i = 0; i < blocks * call->request.count; i++) {
        if (call->out[i] != expected(call, member, i)) {
            group_fail(member, "%s of %llu: element %zu is %lld instead of %lld",
                       muster_collective_name(collective), (unsigned long long)call->request.count,
                       i, (long long)call->out[i], (long long)expected(call, member, i));
            return;
        }
    }
}

static void end(struct group_member *member, struct call *call)
{
    if (call->started != NULL && muster_started_call_end(call->started, NULL) != MUSTER_OK) {
        group_fail(member, "end: %s", muster_last_error());
    } else if (call->started != NULL) {
        check(member, call);
    }
    free(call->in);
    free(call->out);
}

/* A blocking call between calls in flight. */
static void run_blocking(struct group_member *member, uint64_t *random)
{
    struct call call = {0};
    draw(member, random, &call);
    if (muster_context_run(context_of(member), &call.request, NULL) != MUSTER_OK) {
        group_fail(member, "blocking: %s", muster_last_error());
    } else {
        check(member, &call);
    }
    free(call.in);
    free(call.out);
}

/* All members start the same calls in the same order; each ends them, and runs its blocking calls,
 * in an order and at times of its own. */
static void run_random(struct group_member *member, void *argument)
{
    struct call calls[CALLS] = {0};
    uint64_t shared = seed;
    uint64_t blocking = seed + 7;
    uint64_t own = seed + 100 + member->rank;
    size_t active = 0;
    size_t started = 0;
    size_t blocked = 0;
    (void)argument;
    while (started < CALLS || active > 0) {
        if (started < CALLS && (active == 0 || test_random(&own) % 3 != 0)) {
            draw(member, &shared, &calls[active]);
            if (muster_context_start(context_of(member), &calls[active].request,
                                     &calls[active].started) != MUSTER_OK) {
                group_fail(member, "start: %s", muster_last_error());
                calls[active].started = NULL;
            }
            started++;
            active++;
        } else {
            size_t pick = test_random(&own) % active;
            end(member, &calls[pick]);
            calls[pick] = calls[--active];
        }
        while (blocked < started / BLOCKING_EVERY) {
            run_blocking(member, &blocking);
            blocked++;
        }
    }
}

static void calls_of_all_kinds_take_turns_in_one_order(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
        struct group group;
        group_start_flat(&group, GROUP_MEMORY, ranks);
        group_each(&group, run_random, NULL);
        group_each(&group, run_random, NULL); /* with operations that are there */
        group_finish(&group);
        seed++;
    }
}

/* Every algorithm, type and operation -------------------------------------------------------------
 */

static void every_algorithm_is_right_in_flight(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 777, 0, 2500, 40000};
    for (enum sweep_place place = SWEEP_INPROC; place <= SWEEP_MEMORY; place++) {
        for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks += 2) {
            const struct sweep sweep = {.counts = counts,
                                        .count_count = 5,
                                        .brief = place != SWEEP_MEMORY,
                                        .in_flight = true,
                                        .place = place};
            sweep_even(ranks, place == SWEEP_MEMORY || ranks < 2 ? 1 : 2, &sweep);
        }
    }
}

/* In memory, and not by messages ------------------------------------------------------------------
 */

static muster_status start_sum(const struct group_member *member, size_t count, uint32_t limit_ms,
                               const char *algorithm, struct muster_started_call **ret_call)
{
    static int64_t in[1000];
    static _Thread_local int64_t out[1000];
    const struct muster_request request = {
        .collective = MUSTER_ALLREDUCE,
        .in = in,
        .out = out,
        .count = count,
        .type = MUSTER_INT64,
        .op = MUSTER_SUM,
        .algorithm = algorithm,
        .deadline_ns = limit_ms == 0 ? group_deadline() : muster_clock_after_ms(limit_ms)};
    return muster_context_start(context_of(member), &request, ret_call);
}

static void count_messages(struct group_member *member, void *argument)
{
    uint64_t before = muster_fabric_figures(member->fabric).messages_sent;
    (void)argument;
    for (int i = 0; i < 10; i++) {
        struct muster_started_call *calls[2];
        if (start_sum(member, 1, 0, NULL, &calls[0]) != MUSTER_OK ||
            start_sum(member, 1000, 0, NULL, &calls[1]) != MUSTER_OK ||
            muster_started_call_end(calls[1], NULL) != MUSTER_OK ||
            muster_started_call_end(calls[0], NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
    }
    uint64_t sent = muster_fabric_figures(member->fabric).messages_sent - before;
    if (sent != 0) {
        group_fail(member, "%llu messages were sent", (unsigned long long)sent);
    }
}

static void group_steps_in_flight_send_no_message(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_MEMORY, 3);
    group_each(&group, count_messages, NULL);
    group_finish(&group);
}

/* Two contexts of the same ranks: members start their calls in different orders, which only has to
 * be the same within a context. */
static void start_in_two(struct group_member *member, void *argument)
{
    enum { EACH = 20 };
    static int64_t in[2 * EACH][1000];
    static _Thread_local int64_t out[2 * EACH][1000];
    struct muster_started_call *calls[2 * EACH];
    (void)argument;
    for (int i = 0; i < 2 * EACH; i++) {
        bool first = (i < EACH) == (member->rank % 2 == 0);
        const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                               .in = in[i],
                                               .out = out[i],
                                               .count = (size_t)(i % EACH * 50 + 1),
                                               .type = MUSTER_INT64,
                                               .op = MUSTER_SUM,
                                               .deadline_ns = group_deadline()};
        if (muster_context_start(member->contexts[first ? MUSTER_GLOBAL : MUSTER_LOCAL], &request,
                                 &calls[i]) != MUSTER_OK) {
            group_fail(member, "start: %s", muster_last_error());
            return;
        }
    }
    for (int i = 0; i < 2 * EACH; i++) {
        if (muster_started_call_end(calls[i], NULL) != MUSTER_OK) {
            group_fail(member, "call %d: %s", i, muster_last_error());
        }
    }
}

static void contexts_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_MEMORY, 4);
    group_each(&group, start_in_two, NULL);
    group_finish(&group);
}

/* Failures ----------------------------------------------------------------------------------------
 */

/* One member's call differs: its count, or it runs by messages. The calls before and after it are
 * right. */
static void disagree(struct group_member *member, void *argument)
{
    bool by_messages = *(const bool *)argument;
    bool wrong = member->rank == 1;
    struct muster_started_call *calls[3];
    const char *algorithm = wrong && by_messages ? "ring" : NULL;
    if (start_sum(member, 5, 0, NULL, &calls[0]) != MUSTER_OK ||
        start_sum(member, wrong && !by_messages ? 99 : 100, 0, algorithm, &calls[1]) != MUSTER_OK ||
        start_sum(member, 6, 0, NULL, &calls[2]) != MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
        return;
    }
    for (int i = 0; i < 3; i++) {
        muster_status status = muster_started_call_end(calls[i], NULL);
        const char *text = i == 1 ? muster_last_error() : "";
        bool names = by_messages ? strstr(text, "ring") != NULL
                                 : strstr(text, "99") != NULL && strstr(text, "100") != NULL;
        if (status != (i == 1 ? MUSTER_INVALID : MUSTER_OK) || (i == 1 && !names)) {
            group_fail(member, "call %d: %s: %s", i, muster_status_name(status),
                       muster_last_error());
        }
    }
}

static void a_disagreement_ends_that_call_alone(void **state)
{
    (void)state;
    for (int by_messages = 0; by_messages < 2; by_messages++) {
        struct group group;
        bool argument = by_messages == 1;
        group_start_flat(&group, GROUP_MEMORY, 4);
        group_each(&group, disagree, &argument);
        group_finish(&group);
    }
}

/* Member 0 starts only the first of three calls. The second ends at its limit, and the third, which
 * comes after it, with it. All have ended the first before a limit runs. */
static void miss_a_member(struct group_member *member, void *argument)
{
    const struct muster_request barrier = {.collective = MUSTER_BARRIER,
                                           .deadline_ns = group_deadline()};
    struct muster_started_call *calls[3];
    uint32_t suspect = UINT32_MAX;
    (void)argument;
    if (start_sum(member, 10, 0, NULL, &calls[0]) != MUSTER_OK ||
        muster_started_call_end(calls[0], NULL) != MUSTER_OK ||
        muster_context_run(context_of(member), &barrier, NULL) != MUSTER_OK) {
        group_fail(member, "the first call: %s", muster_last_error());
        return;
    }
    if (member->rank == 0) {
        return;
    }
    if (start_sum(member, 10, SHORT_MS, NULL, &calls[1]) != MUSTER_OK ||
        start_sum(member, 10, 0, NULL, &calls[2]) != MUSTER_OK) {
        if (strstr(muster_last_error(), "has left the group") == NULL) {
            group_fail(member, "start: %s", muster_last_error());
        }
        return; /* this member was late: the limit of another has passed */
    }
    /* Another member's limit may pass first: then that one has left. */
    muster_status status = muster_started_call_end(calls[1], &suspect);
    bool late = strstr(muster_last_error(), "the deadline passed while it waited for rank") != NULL;
    bool left = strstr(muster_last_error(), "has left the group") != NULL;
    if (status != MUSTER_REJOIN || !(late || left) || (late && suspect == UINT32_MAX)) {
        group_fail(member, "%s: suspect %u: %s", muster_status_name(status), suspect,
                   muster_last_error());
    }
    status = muster_started_call_end(calls[2], NULL);
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), "before it") == NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
}

static void a_call_that_a_member_never_starts_ends_at_its_limit(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_MEMORY, 4);
    group_each(&group, miss_a_member, NULL);
    group_finish(&group);
}

/* The last member dies in the middle; nobody waits long, and all that is in flight ends. */
static void lose_a_member(struct group_member *member, void *argument)
{
    struct muster_started_call *calls[CALLS];
    uint32_t last = member->group->size - 1;
    int started = 0;
    (void)argument;
    for (; started < CALLS; started++) {
        if (member->rank == last && started == CALLS / 2) {
            muster_fabric_kill(member->fabric);
        }
        if (start_sum(member, 10, 0, NULL, &calls[started]) != MUSTER_OK) {
            break; /* the death may be known before */
        }
    }
    bool failed = false;
    for (int i = 0; i < started; i++) {
        uint32_t suspect = UINT32_MAX;
        muster_status status = muster_started_call_end(calls[i], &suspect);
        if (status != MUSTER_OK && status != MUSTER_REJOIN) {
            group_fail(member, "call %d: %s: %s", i, muster_status_name(status),
                       muster_last_error());
        }
        if (status == MUSTER_OK && failed) {
            group_fail(member, "call %d succeeded after one that failed", i);
        }
        failed |= status != MUSTER_OK;
        if (member->rank != last && suspect == last) { /* what the service does after a report */
            for (uint32_t each = 0; each < last; each++) {
                muster_fabric_revoke(member->group->members[each].fabric, member->group->generation,
                                     "a member died");
            }
        }
    }
    if (!failed && started == CALLS) {
        group_fail(member, "all calls succeeded");
    }
}

static void a_death_ends_all_calls_in_flight(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
        struct group group;
        group_start_flat(&group, GROUP_MEMORY, ranks);
        group_each(&group, lose_a_member, NULL);
        group_finish(&group);
    }
}

/* Member 0 starts nothing, and the generation ends: a member knows it from the revocation, or from
 * one who knew it before and has left the memory. */
static void revoke(struct group_member *member, void *argument)
{
    struct muster_started_call *call = NULL;
    (void)argument;
    if (member->rank == 0) {
        for (uint32_t i = 0; i < member->group->size; i++) {
            muster_fabric_revoke(member->group->members[i].fabric, member->group->generation,
                                 "a newcomer");
        }
        return;
    }
    if (start_sum(member, 10, 0, NULL, &call) == MUSTER_OK &&
        (muster_started_call_end(call, NULL) != MUSTER_REJOIN ||
         (strstr(muster_last_error(), "a newcomer") == NULL &&
          strstr(muster_last_error(), "has left the group") == NULL))) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void a_revocation_ends_a_step_that_waits(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_MEMORY, 3);
    group_each(&group, revoke, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_all_kinds_take_turns_in_one_order),
        cmocka_unit_test(every_algorithm_is_right_in_flight),
        cmocka_unit_test(group_steps_in_flight_send_no_message),
        cmocka_unit_test(contexts_do_not_wait_for_each_other),
        cmocka_unit_test(a_disagreement_ends_that_call_alone),
        cmocka_unit_test(a_call_that_a_member_never_starts_ends_at_its_limit),
        cmocka_unit_test(a_death_ends_all_calls_in_flight),
        cmocka_unit_test(a_revocation_ends_a_step_that_waits),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
