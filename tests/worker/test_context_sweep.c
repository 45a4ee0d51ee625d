/* Every algorithm, type and operation, on many shapes of jobs, against a reference. */
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/context_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A call of 17 ranks may take long on a busy machine under a sanitizer. Over 16 KiB a message waits
 * for a grant, over 256 KiB it comes in pieces. */
enum { HANGS_MS = 60000, COUNT_MAX = 40000, HOSTS_MAX = 4, ELEMENT_MAX = 8 };

struct shape {
    uint32_t hosts;
    uint32_t host_sizes[HOSTS_MAX];
};

struct sweep {
    const uint64_t *counts;
    size_t count_count;
    size_t first_pair; /* of type and operation; goes on with each call */
};

/* Input and output in one block, so that both ways of being in place can be bound to it. */
struct memory {
    char *in, *out;
    size_t size_bytes;
};

/* Where a call's output goes; in the mixed way it differs from rank to rank. */
enum way { OUT_OF_PLACE, IN_PLACE, MIXED, WAYS };

static void bind_buffers(struct muster_request *request, const struct memory *memory, uint32_t rank,
                         uint32_t ranks, bool in_place)
{
    int64_t offset = pattern_in_place_offset(request, rank, ranks) *
                     (int64_t)muster_type_size_bytes(request->type);
    request->in = memory->in;
    request->out = memory->out;
    if (request->collective == MUSTER_BROADCAST) {
        request->in = NULL;
    } else if (in_place) {
        request->in = memory->out + (offset > 0 ? offset : 0);
        request->out = memory->out + (offset < 0 ? -offset : 0);
    }
}

static void run_bound(struct group_member *member, const struct muster_request *request,
                      bool in_place)
{
    uint32_t ranks = member->group->size;
    char text[128] = "";
    void *data = request->in == NULL ? request->out : (void *)request->in;
    pattern_fill(request, data, member->rank, ranks);
    muster_status status = muster_context_run(member->contexts[MUSTER_GLOBAL], request, NULL);
    size_t wrong = 0;
    if (status == MUSTER_OK) {
        wrong = pattern_check(request, member->rank, ranks, text, sizeof text);
    }
    if (status == MUSTER_OK && wrong == 0 && !in_place && request->in != NULL) {
        wrong = pattern_check_input(request, member->rank, ranks, text, sizeof text);
    }
    if (status != MUSTER_OK || wrong > 0) {
        group_fail(member, "%s %s, %u ranks, count %llu%s, %s %s, root %u, %s: %s %s (%zu wrong)",
                   muster_collective_name(request->collective),
                   request->algorithm != NULL ? request->algorithm : "by cost", ranks,
                   (unsigned long long)request->count,
                   request->in_counts != NULL || request->out_counts != NULL ? " and others" : "",
                   muster_type_name(request->type), muster_op_name(request->op), request->root,
                   in_place ? "in place" : "out of place", muster_status_name(status),
                   status == MUSTER_OK ? text : muster_last_error(), wrong);
    }
}

static void run_case(struct group_member *member, struct muster_request *request,
                     const struct memory *memory, enum way way, bool uneven)
{
    uint32_t ranks = member->group->size;
    bool in_place = way == IN_PLACE || (way == MIXED && member->rank % 2 == 0);
    if (uneven) {
        pattern_make_counts(request, member->rank, ranks);
    }
    memset(memory->out, 0x5a, memory->size_bytes);
    bind_buffers(request, memory, member->rank, ranks, in_place);
    run_bound(member, request, in_place);
    pattern_free_counts(request);
}

static bool fits(const struct group_member *member, size_t algorithm)
{
    char why[MUSTER_ERROR_MAX];
    const struct muster_plan plan = {.collective = muster_algorithms[algorithm].collective,
                                     .topology = &member->group->topology,
                                     .rank = member->rank,
                                     .count = COUNT_MAX};
    return muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

/* The type, the operation, the root and, where there is a choice, equal or other blocks vary with
 * each call. */
static void run_algorithm(struct group_member *member, const struct sweep *sweep, size_t algorithm,
                          const struct memory *memory)
{
    enum muster_collective collective = muster_algorithms[algorithm].collective;
    unsigned ways = muster_collective_in_place_counts(collective) ? WAYS : MIXED;
    for (size_t i = 0; i < ways * sweep->count_count; i++) {
        size_t pair = (sweep->first_pair + 7 * algorithm + i) % pattern_pairs();
        struct muster_request request = {
            .collective = collective,
            .count = sweep->counts[i / ways],
            .algorithm = muster_algorithms[algorithm].name,
            .user_function = pattern_user,
            .deadline_ns = muster_clock_after_ms(HANGS_MS),
        };
        bool uneven = muster_collective_needs_bounds(collective) ||
                      (collective == MUSTER_REDUCE_SCATTER && (i / ways) % 2 == 1);
        pattern_pair(pair, &request.type, &request.op);
        if (muster_collective_has_root(request.collective)) {
            request.root = (uint32_t)((sweep->first_pair + i) % member->group->size);
        }
        run_case(member, &request, memory, (enum way)(i % ways), uneven);
    }
}

static void sweep_member(struct group_member *member, void *argument)
{
    const struct sweep *sweep = argument;
    uint64_t most = 1;
    for (size_t i = 0; i < sweep->count_count; i++) {
        most = sweep->counts[i] > most ? sweep->counts[i] : most;
    }
    /* Blocks of different sizes are at most twice as large as equal ones. */
    struct memory memory = {.size_bytes = 2 * most * member->group->size * ELEMENT_MAX};
    memory.in = malloc(memory.size_bytes);
    memory.out = malloc(memory.size_bytes);
    for (size_t i = 0; i < muster_algorithm_count && member->failure[0] == '\0'; i++) {
        if (fits(member, i)) {
            run_algorithm(member, sweep, i, &memory);
        }
    }
    free(memory.in);
    free(memory.out);
}

static void sweep_shape(enum group_transport transport, const struct shape *shape,
                        const struct sweep *sweep)
{
    struct group group;
    group_start(&group, transport, shape->hosts, shape->host_sizes, NULL);
    group_each(&group, sweep_member, (void *)sweep);
    group_finish(&group);
}

/* So many ranks on so many hosts, as evenly as can be. */
static void sweep_even(enum group_transport transport, uint32_t ranks, uint32_t hosts,
                       const struct sweep *sweep)
{
    struct shape shape = {.hosts = hosts};
    for (uint32_t i = 0; i < ranks; i++) {
        shape.host_sizes[i % hosts]++;
    }
    sweep_shape(transport, &shape, sweep);
}

static void every_algorithm_is_right_on_1_to_17_ranks(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 3, 17, 1000};
    for (uint32_t ranks = 1; ranks <= 17; ranks++) {
        uint32_t hosts_max = ranks < 3 ? ranks : 3;
        for (uint32_t hosts = 1; hosts <= hosts_max; hosts++) {
            /* Large jobs take long: there one number of hosts, and two counts, others each time. */
            bool large = ranks > 6;
            struct sweep sweep = {counts, 5, 5 * (size_t)ranks + hosts};
            if (large) {
                sweep.counts = counts + ranks % 4;
                sweep.count_count = 2;
            }
            if (!large || hosts == 1 + ranks % 3) {
                sweep_even(GROUP_INPROC, ranks, hosts, &sweep);
            }
        }
    }
}

static void every_algorithm_is_right_on_ragged_hosts(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {2, {1, 2}}, {3, {3, 1, 4}}, {3, {1, 1, 5}}, {4, {2, 5, 1, 4}}, {2, {9, 8}},
    };
    static const uint64_t counts[] = {1, 1001};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct sweep sweep = {counts, 2, 4 * i};
        sweep_shape(GROUP_INPROC, &shapes[i], &sweep);
    }
}

static void large_messages_arrive_in_pieces_and_right(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, {2}}, {2, {2, 1}}, {2, {2, 3}}};
    static const uint64_t counts[] = {COUNT_MAX};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct sweep sweep = {counts, 1, i};
        sweep_shape(GROUP_INPROC, &shapes[i], &sweep);
    }
}

static void tcp_gives_the_same_results(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, {1}}, {1, {2}}, {2, {2, 1}}, {3, {3, 1, 1}}};
    static const uint64_t counts[] = {0, 1, 1001, COUNT_MAX};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct sweep sweep = {counts, 4, 3 * i};
        sweep_shape(GROUP_TCP, &shapes[i], &sweep);
    }
}

/* Each pair of type and operation by the algorithm that the context chooses. */
static void reduce_every_pair(struct group_member *member, void *argument)
{
    (void)argument;
    enum { COUNT = 1003 };
    struct memory memory = {.size_bytes = COUNT * ELEMENT_MAX};
    memory.in = malloc(memory.size_bytes);
    memory.out = malloc(memory.size_bytes);
    for (size_t pair = 0; pair < pattern_pairs(); pair++) {
        struct muster_request request = {
            .collective = MUSTER_ALLREDUCE,
            .count = COUNT,
            .user_function = pattern_user,
            .deadline_ns = muster_clock_after_ms(HANGS_MS),
        };
        pattern_pair(pair, &request.type, &request.op);
        run_case(member, &request, &memory, OUT_OF_PLACE, false);
    }
    free(memory.in);
    free(memory.out);
}

static void every_pair_of_type_and_operation_is_right(void **state)
{
    (void)state;
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP};
    for (size_t i = 0; i < 2; i++) {
        struct group group;
        group_start_flat(&group, transports[i], 5);
        group_each(&group, reduce_every_pair, NULL);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_type_and_operation_is_right),
        cmocka_unit_test(every_algorithm_is_right_on_1_to_17_ranks),
        cmocka_unit_test(every_algorithm_is_right_on_ragged_hosts),
        cmocka_unit_test(large_messages_arrive_in_pieces_and_right),
        cmocka_unit_test(tcp_gives_the_same_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
