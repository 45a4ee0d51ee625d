/* Small calls that are the one before once more, among others that are not: in shared memory, and
 * by messages. */
#include "tests/support/group.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, CALLS = 3000, COUNT_MAX = 1100, BUFFERS = 2, ABSENT_MS = 60 };

struct series {
    uint64_t seed;
    uint32_t repeats[RANKS]; /* calls that were taken for repeated ones */
};

struct drawn_call {
    enum muster_collective collective;
    uint64_t count;
    muster_op op;
    uint32_t root;
    bool in_place;
};

static struct drawn_call draw(uint64_t *random)
{
    static const enum muster_collective collectives[] = {
        MUSTER_ALLREDUCE, MUSTER_ALLREDUCE, MUSTER_BROADCAST, MUSTER_REDUCE, MUSTER_BARRIER};
    struct drawn_call call = {.collective = collectives[test_random_below(random, 5)],
                              .count = test_random_below(random, 3) == 0
                                           ? test_random_below(random, COUNT_MAX)
                                           : 1 + test_random_below(random, 3),
                              .op = test_random_below(random, 2) == 0 ? MUSTER_SUM : MUSTER_MAX,
                              .root = (uint32_t)test_random_below(random, RANKS),
                              .in_place = test_random_below(random, 2) == 0};
    call.count = call.collective == MUSTER_BARRIER ? 0 : call.count;
    return call;
}

static int32_t value(uint32_t rank, uint64_t turn, uint64_t element)
{
    return (int32_t)((rank + 1) * 1000 + turn * 7 + element);
}

static int32_t result(const struct drawn_call *call, uint64_t turn, uint64_t element)
{
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        sum += value(rank, turn, element);
    }
    return call->collective == MUSTER_BROADCAST ? value(call->root, turn, element)
           : call->op == MUSTER_SUM             ? sum
                                                : value(RANKS - 1, turn, element);
}

static bool has_result(const struct drawn_call *call, uint32_t rank)
{
    return call->collective != MUSTER_REDUCE || call->root == rank;
}

static void run_call(struct group_member *member, const struct drawn_call *call, uint64_t turn,
                     int32_t *in, int32_t *out)
{
    bool in_place = call->in_place || call->collective == MUSTER_BROADCAST;
    const struct muster_request request = {.collective = call->collective,
                                           .in = in_place ? out : in,
                                           .out = out,
                                           .count = call->count,
                                           .type = MUSTER_INT32,
                                           .op = call->op,
                                           .root = call->root,
                                           .deadline_ns = group_deadline()};
    for (uint64_t i = 0; i < call->count; i++) {
        (in_place ? out : in)[i] = value(member->rank, turn, i);
    }
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
        return;
    }
    for (uint64_t i = 0; i < call->count && has_result(call, member->rank); i++) {
        if (out[i] != result(call, turn, i)) {
            group_fail(member, "turn %llu, %s: element %llu is %d, not %d",
                       (unsigned long long)turn, muster_collective_name(call->collective),
                       (unsigned long long)i, out[i], result(call, turn, i));
            return;
        }
    }
}

/* All draw the same calls, but each takes other buffers at times, so that some members repeat a
 * call and others do not; and at times each forgets what it knows of its calls. */
static void run_series(struct group_member *member, void *argument)
{
    struct series *series = argument;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    uint64_t shared = series->seed;
    uint64_t own = series->seed + member->rank + 1;
    int32_t *buffers[2 * BUFFERS];
    for (int i = 0; i < 2 * BUFFERS; i++) {
        buffers[i] = calloc(COUNT_MAX, sizeof *buffers[i]);
    }
    struct drawn_call call = draw(&shared);
    uint64_t pair = 0;
    for (uint64_t turn = 0; turn < CALLS && member->failure[0] == '\0'; turn++) {
        if (test_random_below(&shared, 4) == 0) {
            call = draw(&shared);
        }
        if (test_random_below(&own, 5) == 0) {
            pair = test_random_below(&own, BUFFERS);
        }
        if (test_random_below(&shared, 100) == 0) {
            const struct muster_cost_model model = context->choices.model;
            muster_context_set_model(context, &model);
        }
        const void *last = context->repeated.cached;
        uint64_t sequence = context->sequence;
        run_call(member, &call, turn, buffers[2 * pair], buffers[2 * pair + 1]);
        series->repeats[member->rank] += last != NULL && context->sequence == sequence + 1 &&
                                         context->repeated.launch.sequence == context->sequence &&
                                         context->repeated.cached == last;
    }
    for (int i = 0; i < 2 * BUFFERS; i++) {
        free(buffers[i]);
    }
}

static const enum group_transport transports[] = {GROUP_MEMORY, GROUP_TCP, GROUP_SHM};

static void run_group(enum group_transport transport,
                      void (*run)(struct group_member *member, void *argument), void *argument)
{
    struct group group;
    group_start_flat(&group, transport, RANKS);
    group_each(&group, run, argument);
    group_finish(&group);
}

static void results_are_right_whether_calls_repeat_or_not(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        struct series series = {.seed = seed};
        run_group(transports[i], run_series, &series);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_true(series.repeats[rank] > CALLS / 10);
        }
    }
}

/* Calls that differ ---------------------------------------------------------------------------- */

/* NOLINTNEXTLINE(readability-non-const-parameter): the call writes it */
static muster_status sum(struct group_member *member, int32_t *data, uint64_t count,
                         int64_t deadline_ns)
{
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = data,
                                           .out = data,
                                           .count = count,
                                           .type = MUSTER_INT32,
                                           .op = MUSTER_SUM,
                                           .deadline_ns = deadline_ns};
    return muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
}

static void expect(struct group_member *member, muster_status got, muster_status wanted,
                   const char *when)
{
    if (got != wanted) {
        group_fail(member, "%s: status %d, not %d: %s", when, (int)got, (int)wanted,
                   got == MUSTER_OK ? "" : muster_last_error());
    }
}

static void differ_once(struct group_member *member, void *argument)
{
    (void)argument;
    int32_t data[4] = {1, 1, 1, 1};
    for (int i = 0; i < 3; i++) {
        expect(member, sum(member, data, 1, group_deadline()), MUSTER_OK, "before");
    }
    expect(member, sum(member, data, member->rank == 1 ? 2 : 1, group_deadline()), MUSTER_INVALID,
           "differs");
    for (int i = 0; i < 3; i++) {
        expect(member, sum(member, data, 1, group_deadline()), MUSTER_OK, "after");
    }
}

static void a_member_whose_call_differs_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        run_group(transports[i], differ_once, NULL);
    }
}

static void miss_one(struct group_member *member, void *argument)
{
    (void)argument;
    int32_t data[1] = {1};
    for (int i = 0; i < 3; i++) {
        expect(member, sum(member, data, 1, group_deadline()), MUSTER_OK, "before");
    }
    if (member->rank == 2) {
        return;
    }
    muster_status status = sum(member, data, 1, muster_clock_after_ms(ABSENT_MS));
    expect(member, status, MUSTER_REJOIN, "without a member");
    if (strstr(muster_last_error(), "allreduce #") == NULL ||
        strstr(muster_last_error(), "rank 2") == NULL) {
        group_fail(member, "\"%s\" does not name the call and the rank", muster_last_error());
    }
    expect(member, sum(member, data, 1, group_deadline()), MUSTER_REJOIN, "afterwards");
}

static void a_call_without_a_member_ends_by_its_deadline(void **state)
{
    (void)state;
    run_group(GROUP_MEMORY, miss_one, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_right_whether_calls_repeat_or_not),
        cmocka_unit_test(a_member_whose_call_differs_is_noticed),
        cmocka_unit_test(a_call_without_a_member_ends_by_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
