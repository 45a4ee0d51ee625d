/* The rows hierarchical_group of all collectives: right results on even and ragged hosts, in place
 * and not, with blocks of different sizes, with every promise; and by group steps indeed. */
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

enum { COUNT_MAX = 30000, RANKS_MAX = 8, HANGS_MS = 20000 };

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

static uint64_t steps_of(const struct group_member *member)
{
    const struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    return context->host.memory == NULL ? 0 : context->host.memory->announced;
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
                                     .count = counts[i % 4],
                                     .user_function = pattern_user,
                                     .deadline_ns = muster_clock_after_ms(HANGS_MS)};
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

static void call(struct group_member *member, enum muster_collective collective, uint32_t i,
                 const struct buffers *buffers)
{
    char text[128] = "";
    struct muster_request request = request_of(member, collective, i);
    uint64_t before = steps_of(member);
    bind(&request, member, buffers, i);
    if (collective != MUSTER_BARRIER) {
        pattern_fill(&request, request.in == NULL ? request.out : (void *)request.in, member->rank,
                     member->group->size);
    }
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_collective_name(collective), muster_last_error());
    } else if (collective != MUSTER_BARRIER &&
               pattern_check(&request, member->rank, member->group->size, text, sizeof text) > 0) {
        group_fail(member, "%s, call %u, %s of %s: %s", muster_collective_name(collective), i,
                   muster_op_name(request.op), muster_type_name(request.type), text);
    } else if (in_a_group(member) && steps_of(member) == before) {
        group_fail(member, "%s, call %u: no group step", muster_collective_name(collective), i);
    }
    pattern_free_counts(&request);
}

static void call_all(struct group_member *member, void *argument)
{
    const size_t room = 2 * (COUNT_MAX + 1) * RANKS_MAX * sizeof(double);
    const struct buffers buffers = {.in = malloc(room), .out = malloc(room)};
    (void)argument;
    for (uint32_t i = 0; i < 12 * COLLECTIVES && member->failure[0] == '\0'; i++) {
        call(member, collectives[i % COLLECTIVES], i / COLLECTIVES, &buffers);
    }
    free(buffers.in);
    free(buffers.out);
}

static void every_row_is_right_on_even_and_ragged_hosts(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct group group;
        group_start(&group, GROUP_MEMORY, shapes[i].hosts, shapes[i].sizes, NULL);
        group_each(&group, call_all, NULL);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_right_on_even_and_ragged_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
