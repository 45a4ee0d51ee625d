/* The rows hierarchical_group of all collectives: right results on even and ragged hosts, in place
 * and not, with blocks of different sizes, with every promise, blocking and several in flight at
 * once; and by group steps indeed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/context/context_parts.h"
#include "worker/device/host/group_parts.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { COUNT_MAX = 9000, ROUNDS = 2 }; /* many times slower */
#else
enum { COUNT_MAX = 30000, ROUNDS = 8 };
#endif
enum { RANKS_MAX = 8, HANGS_MS = 60000 };

static const enum muster_collective collectives[] = {
    MUSTER_ALLREDUCE, MUSTER_REDUCE_SCATTER, MUSTER_ALLGATHER, MUSTER_ALLGATHERV,
    MUSTER_BROADCAST, MUSTER_REDUCE,         MUSTER_BARRIER};
enum { COLLECTIVES = sizeof collectives / sizeof collectives[0] };

static const struct {
    uint32_t hosts;
    uint32_t sizes[4];
} shapes[] = {{2, {2, 2}}, {2, {2, 1}}, {3, {1, 3, 2}}, {2, {4, 4}}, {4, {2, 2, 2, 2}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct buffers {
    char *in, *out;
};

/* Grows with each group step of blocking calls, or of calls in flight. */
static uint64_t steps_of(const struct group_member *member, bool in_flight)
{
    const struct muster_context_memory *host = &member->contexts[MUSTER_GLOBAL]->host;
    const struct muster_group_memory *memory = host->memory;
    uint64_t sum = 0;
    for (size_t i = 0; in_flight && i < MUSTER_GROUP_CHANNELS && memory != NULL; i++) {
        const struct muster_group_memory *channel = host->channels[i];
        sum += channel->announced;
    }
    return in_flight || memory == NULL ? sum : memory->announced;
}

static bool in_a_group(const struct group_member *member)
{
    const struct muster_topology *topology = &member->group->topology;
    return muster_topology_locate(topology, member->rank).local_size > 1;
}

/* Call number i of a collective: another count, type, operation, root, and place of the output. */
static struct muster_request request_of(const struct group_member *member,
                                        enum muster_collective collective, uint32_t i)
{
    static const size_t counts[] = {0, 1, 777, COUNT_MAX};
    struct muster_request request = {.collective = collective,
                                     .algorithm = "hierarchical_group",
                                     .count = collective == MUSTER_BARRIER ? 0 : counts[i % 4],
                                     .user_function = pattern_user,
                                     .deadline_ns = muster_clock_after_ms(HANGS_MS)};
    request.keep_input = i / 4 % 2 == 1;
    request.finish_together = i / 8 % 2 == 1;
    pattern_pair((i * 7 + collective) % pattern_pairs(), &request.type, &request.op);
    if (muster_collective_has_root(collective)) {
        request.root = (i + i / 4) % member->group->size;
    }
    if (muster_collective_needs_bounds(collective) ||
        (collective == MUSTER_REDUCE_SCATTER && i % 3 == 1)) {
        pattern_make_counts(&request, member->rank, member->group->size);
    }
    return request;
}

/* In place where i is odd. */
static void bind(struct muster_request *request, const struct group_member *member,
                 const struct buffers *buffers, uint32_t i)
{
    int64_t offset = pattern_in_place_offset(request, member->rank, member->group->size) *
                     (int64_t)muster_type_size_bytes(request->type);
    request->in = buffers->in;
    request->out = buffers->out;
    if (request->collective == MUSTER_BROADCAST) {
        request->in = NULL;
    } else if (i % 2 == 1) {
        request->in = buffers->out + (offset > 0 ? offset : 0);
        request->out = buffers->out + (offset < 0 ? -offset : 0);
    }
}

static void fill(const struct muster_request *request, const struct group_member *member)
{
    if (request->collective != MUSTER_BARRIER) {
        pattern_fill(request, request->in == NULL ? request->out : (void *)request->in,
                     member->rank, member->group->size);
    }
}

static void check(const struct muster_request *request, struct group_member *member, uint32_t i)
{
    char text[128] = "";
    if (request->collective != MUSTER_BARRIER &&
        pattern_check(request, member->rank, member->group->size, text, sizeof text) > 0) {
        group_fail(member, "%s, call %u, %s of %s: %s", muster_collective_name(request->collective),
                   i, muster_op_name(request->op), muster_type_name(request->type), text);
    }
}

static void call(struct group_member *member, enum muster_collective collective, uint32_t i,
                 const struct buffers *buffers)
{
    struct muster_request request = request_of(member, collective, i);
    uint64_t before = steps_of(member, false);
    bind(&request, member, buffers, i);
    fill(&request, member);
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_collective_name(collective), muster_last_error());
    } else if (in_a_group(member) && steps_of(member, false) == before) {
        group_fail(member, "%s, call %u: no group step", muster_collective_name(collective), i);
    } else {
        check(&request, member, i);
    }
    pattern_free_counts(&request);
}

static size_t room_bytes(void)
{
    return 2 * (COUNT_MAX + 1) * RANKS_MAX * sizeof(double);
}

static void call_all(struct group_member *member, void *argument)
{
    const struct buffers buffers = {.in = malloc(room_bytes()), .out = malloc(room_bytes())};
    (void)argument;
    for (uint32_t i = 0; i < 2 * ROUNDS * COLLECTIVES && member->failure[0] == '\0'; i++) {
        call(member, collectives[i % COLLECTIVES], i / COLLECTIVES * (8 / ROUNDS), &buffers);
    }
    free(buffers.in);
    free(buffers.out);
}

/* In flight: all rows at once, every third of them by messages; ended from the last to the first.
 */
struct flight {
    struct buffers buffers;
    struct muster_request request;
    struct muster_started_call *call; /* NULL: not started */
};

static void start(struct group_member *member, struct flight *flight,
                  enum muster_collective collective, uint32_t i)
{
    flight->request = request_of(member, collective, i);
    flight->request.algorithm = i % 3 == 2 ? "hierarchical" : flight->request.algorithm;
    bind(&flight->request, member, &flight->buffers, i);
    fill(&flight->request, member);
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &flight->request, &flight->call) !=
        MUSTER_OK) {
        flight->call = NULL;
        group_fail(member, "%s: %s", muster_collective_name(collective), muster_last_error());
    }
}

static void end(struct group_member *member, struct flight *flight, uint32_t i)
{
    if (flight->call == NULL) {
        return;
    }
    if (muster_started_call_end(flight->call, NULL) != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_collective_name(flight->request.collective),
                   muster_last_error());
    } else {
        check(&flight->request, member, i);
    }
    pattern_free_counts(&flight->request);
}

static void start_all(struct group_member *member, void *argument)
{
    struct flight flights[2 * COLLECTIVES];
    (void)argument;
    for (uint32_t i = 0; i < 2 * COLLECTIVES; i++) {
        flights[i].buffers =
            (struct buffers){.in = malloc(room_bytes()), .out = malloc(room_bytes())};
    }
    for (uint32_t round = 0; round < ROUNDS && member->failure[0] == '\0'; round++) {
        uint64_t before = steps_of(member, true);
        for (uint32_t i = 0; i < 2 * COLLECTIVES; i++) {
            start(member, &flights[i], collectives[i % COLLECTIVES],
                  16 / ROUNDS * round + i / COLLECTIVES);
        }
        for (uint32_t i = 2 * COLLECTIVES; i-- > 0;) {
            end(member, &flights[i], 16 / ROUNDS * round + i / COLLECTIVES);
        }
        if (in_a_group(member) && steps_of(member, true) == before) {
            group_fail(member, "round %u: no group step", round);
        }
    }
    for (uint32_t i = 0; i < 2 * COLLECTIVES; i++) {
        free(flights[i].buffers.in);
        free(flights[i].buffers.out);
    }
}

/* Three calls in flight, of which one member starts the second with another count, or by messages
 * only: all members are told of that one, and the others are right. */
static void start_differently(struct group_member *member, void *argument)
{
    struct flight flights[3];
    (void)argument;
    for (uint32_t i = 0; i < 3; i++) {
        flights[i].buffers =
            (struct buffers){.in = malloc(room_bytes()), .out = malloc(room_bytes())};
    }
    for (uint32_t round = 0; round < 6 && member->failure[0] == '\0'; round++) {
        for (uint32_t i = 0; i < 3; i++) {
            struct muster_request *request = &flights[i].request;
            *request = request_of(member, MUSTER_ALLREDUCE, 2);
            if (i == 1 && member->rank == round % member->group->size) {
                request->count -= round % 2 == 0 ? 1 : 0;
                request->algorithm = round % 2 == 0 ? request->algorithm : "ring";
            }
            bind(request, member, &flights[i].buffers, 0);
            fill(request, member);
            if (muster_context_start(member->contexts[MUSTER_GLOBAL], request, &flights[i].call) !=
                MUSTER_OK) {
                group_fail(member, "round %u: %s", round, muster_last_error());
                flights[i].call = NULL;
            }
        }
        for (uint32_t i = 0; i < 3 && flights[i].call != NULL; i++) {
            muster_status status = muster_started_call_end(flights[i].call, NULL);
            if (status != (i == 1 ? MUSTER_INVALID : MUSTER_OK)) {
                group_fail(member, "round %u, call %u: %s: %s", round, i,
                           muster_status_name(status), muster_last_error());
            } else if (i != 1) {
                check(&flights[i].request, member, i);
            }
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        free(flights[i].buffers.in);
        free(flights[i].buffers.out);
    }
}

static void on_all_shapes(group_work work)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct group group;
        group_start(&group, GROUP_MEMORY, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, work, NULL);
        group_finish(&group);
    }
}

static void every_row_is_right_with_every_promise(void **state)
{
    (void)state;
    on_all_shapes(call_all);
}

static void rows_in_flight_at_once_are_right(void **state)
{
    (void)state;
    on_all_shapes(start_all);
}

static void members_that_start_different_calls_are_told_and_go_on(void **state)
{
    (void)state;
    on_all_shapes(start_differently);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_right_with_every_promise),
        cmocka_unit_test(rows_in_flight_at_once_are_right),
        cmocka_unit_test(members_that_start_different_calls_are_told_and_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
