/* Every algorithm, type and operation, on many shapes of jobs, against a reference. */
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"
#include "worker/context_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A call of 17 ranks may take long on a busy machine under a sanitizer. Over 16 KiB a message waits
 * for a grant, over 256 KiB it comes in pieces. */
enum { HANGS_MS = 60000, COUNT_MAX = 35000, HOSTS_MAX = 4 };

/* Sanitizers make it many times slower: not all numbers of ranks with them. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RANKS_STEP = 4, SMALL_MAX = 3 };
#else
enum { RANKS_STEP = 1, SMALL_MAX = 6 };
#endif

struct shape {
    uint32_t hosts;
    uint32_t host_sizes[HOSTS_MAX];
};

/* Where messages go; or where memory is shared by all ranks, which are on one host. */
enum place { BY_INPROC, BY_TCP, BY_SHM, IN_MEMORY, PLACES };

struct sweep {
    const uint64_t *counts;
    size_t count_count;
    size_t calls[MUSTER_COLLECTIVE_END]; /* made before */
    bool brief; /* each algorithm with one count in one way, others each time */
    enum place place;
};

/* Calls of each collective so far, from which the next ones are made up; and what was run. Between
 * groups; rank 0 writes it. */
static size_t calls_made[MUSTER_COLLECTIVE_END];
static bool met_pairs[PLACES][MUSTER_COLLECTIVE_END][MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];

/* Input and output in one block, so that both ways of being in place can be bound to it. */
struct memory {
    char *in, *out;
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

/* Blocks of different sizes are at most twice as large as equal ones. */
static size_t room_bytes(uint64_t count, uint32_t ranks, muster_type type)
{
    return 2 * (count + 1) * ranks * muster_type_size_bytes(type);
}

static void run_case(struct group_member *member, struct muster_request *request,
                     const struct memory *memory, enum way way, bool uneven)
{
    uint32_t ranks = member->group->size;
    bool in_place = way == IN_PLACE || (way == MIXED && member->rank % 2 == 0);
    if (uneven) {
        pattern_make_counts(request, member->rank, ranks);
    }
    memset(memory->out, 0x5a, room_bytes(request->count, ranks, request->type));
    bind_buffers(request, memory, member->rank, ranks, in_place);
    run_bound(member, request, in_place);
    pattern_free_counts(request);
}

static unsigned ways_of(enum muster_collective collective)
{
    return muster_collective_in_place_counts(collective) ? WAYS : MIXED;
}

static bool fits(const struct group_member *member, size_t algorithm)
{
    char why[MUSTER_ERROR_MAX];
    static const uint64_t any[GROUP_SIZE_MAX * GROUP_SIZE_MAX];
    const struct muster_plan plan = {
        .all_counts = any,
        .collective = muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].collective,
        .topology = &member->group->topology,
        .rank = member->rank,
        .count = COUNT_MAX};
    return muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

/* One member's way through a sweep. */
struct walk {
    struct group_member *member;
    const struct sweep *sweep;
    struct memory memory;
    size_t calls[MUSTER_COLLECTIVE_END];
};

/* Count and way number i. The type, the operation, the root and, where there is a choice, equal or
 * other blocks vary with each call. */
static void run_call(struct walk *walk, size_t algorithm, size_t i)
{
    struct group_member *member = walk->member;
    const struct sweep *sweep = walk->sweep;
    const enum muster_collective collective =
        muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].collective;
    const unsigned ways = ways_of(collective);
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(algorithm, name, sizeof name);
    struct muster_request request = {
        .collective = collective,
        .count = sweep->counts[i / ways],
        .algorithm = name,
        .user_function = pattern_user,
        .deadline_ns = muster_clock_after_ms(HANGS_MS),
    };
    bool uneven = muster_collective_needs_bounds(collective) ||
                  (collective == MUSTER_REDUCE_SCATTER && (i / ways) % 2 == 1);
    const size_t call = walk->calls[collective]++;
    pattern_pair(call % pattern_pairs(), &request.type, &request.op);
    if (muster_collective_has_root(request.collective)) {
        request.root = (uint32_t)(call % member->group->size);
    }
    run_case(member, &request, &walk->memory, (enum way)(i % ways), uneven);
    if (member->rank == 0) {
        met_pairs[sweep->place][collective][request.type][request.op] = true;
    }
}

static void run_algorithm(struct walk *walk, size_t algorithm)
{
    const enum muster_collective collective =
        muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].collective;
    const size_t calls = ways_of(collective) * walk->sweep->count_count;
    if (!fits(walk->member, algorithm)) {
        return;
    }
    if (walk->sweep->brief) {
        run_call(walk, algorithm, walk->calls[collective] % calls);
        return;
    }
    for (size_t i = 0; i < calls; i++) {
        run_call(walk, algorithm, i);
    }
}

/* Some of all that can be put together, others each time. */
static void run_combinations(struct walk *walk)
{
    static const char *const exchanges[] = {
        "pairwise",  "binomial",           "ring_two_phase", "ring",        "bidirectional_ring",
        "swing",     "recursive_doubling", "bcube",          "double_tree", "halving_doubling",
        "all_to_one"};
    enum { EXCHANGES = sizeof exchanges / sizeof exchanges[0], COMBINATIONS = 2 };
    for (size_t i = 0; i < COMBINATIONS && walk->member->failure[0] == '\0'; i++) {
        const size_t number = walk->calls[MUSTER_ALLREDUCE];
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        size_t algorithm = 0;
        (void)snprintf(name, sizeof name, "hierarchical(local=%s,cross=%s,leaders=%zu)",
                       exchanges[number % EXCHANGES],
                       exchanges[(number + number / EXCHANGES) % EXCHANGES], 1 + number % 3);
        if (muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm) != MUSTER_OK) {
            group_fail(walk->member, "%s: %s", name, muster_last_error());
            return;
        }
        run_algorithm(walk, algorithm);
    }
}

static void sweep_member(struct group_member *member, void *argument)
{
    const struct sweep *sweep = argument;
    uint64_t most = 1;
    for (size_t i = 0; i < sweep->count_count; i++) {
        most = sweep->counts[i] > most ? sweep->counts[i] : most;
    }
    if (sweep->place == IN_MEMORY &&
        muster_context_share_memory(member->contexts[MUSTER_GLOBAL],
                                    muster_clock_after_ms(HANGS_MS), NULL) != MUSTER_OK) {
        group_fail(member, "sharing memory: %s", muster_last_error());
    }
    struct walk walk = {.member = member, .sweep = sweep};
    const size_t size_bytes = room_bytes(most, member->group->size, MUSTER_FLOAT64);
    memcpy(walk.calls, sweep->calls, sizeof walk.calls);
    walk.memory.in = malloc(size_bytes);
    walk.memory.out = malloc(size_bytes);
    for (size_t i = 0; i < muster_algorithm_count && member->failure[0] == '\0'; i++) {
        run_algorithm(&walk, i);
    }
    run_combinations(&walk);
    free(walk.memory.in);
    free(walk.memory.out);
    if (member->rank == 0) {
        memcpy(calls_made, walk.calls, sizeof calls_made);
    }
}

static void sweep_shape(const struct shape *shape, struct sweep sweep)
{
    static const enum group_transport transports[PLACES] = {GROUP_INPROC, GROUP_TCP, GROUP_SHM,
                                                            GROUP_INPROC};
    struct group group;
    group_start(&group, transports[sweep.place], shape->hosts, shape->host_sizes, NULL);
    memcpy(sweep.calls, calls_made, sizeof calls_made);
    group_each(&group, sweep_member, &sweep);
    group_finish(&group);
}

/* So many ranks on so many hosts, as evenly as can be. */
static void sweep_even(uint32_t ranks, uint32_t hosts, struct sweep sweep)
{
    struct shape shape = {.hosts = hosts};
    for (uint32_t i = 0; i < ranks; i++) {
        shape.host_sizes[i % hosts]++;
    }
    sweep_shape(&shape, sweep);
}

static void every_algorithm_is_right_on_1_to_17_ranks(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 3, 17, 1000};
    for (uint32_t ranks = 1; ranks <= 17; ranks++) {
        uint32_t hosts_max = ranks < 3 ? ranks : 3;
        for (uint32_t hosts = 1; hosts <= hosts_max; hosts++) {
            /* Large jobs take long: there one number of hosts, and less of the rest. */
            bool large = ranks > SMALL_MAX;
            struct sweep sweep = {.counts = counts, .count_count = 5, .brief = ranks > 10};
            if (large && !sweep.brief) {
                sweep.counts = counts + ranks % 4;
                sweep.count_count = 2;
            }
            if (!large || hosts == 1 + ranks % 3) {
                sweep_even(ranks, hosts, sweep);
            }
        }
    }
}

static void every_algorithm_is_right_over_other_links_and_in_memory(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 777, 0, 2500, 5};
    for (enum place place = BY_TCP; place < PLACES; place++) {
        for (uint32_t ranks = 1; ranks <= 17; ranks += RANKS_STEP) {
            const struct sweep sweep = {
                .counts = counts, .count_count = 5, .brief = true, .place = place};
            uint32_t hosts = place == IN_MEMORY ? 1 : 1 + (ranks + place) % 3;
            sweep_even(ranks, hosts < ranks ? hosts : ranks, sweep);
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
        const struct sweep sweep = {.counts = counts, .count_count = 2};
        sweep_shape(&shapes[i], sweep);
    }
}

static void large_messages_arrive_in_pieces_and_right(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, {2}}, {2, {2, 1}}};
    static const uint64_t counts[] = {COUNT_MAX};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (enum place place = BY_INPROC; place <= BY_TCP; place++) {
            const struct sweep sweep = {
                .counts = counts, .count_count = 1, .brief = true, .place = place};
            sweep_shape(&shapes[i], sweep);
        }
    }
}

static void tcp_gives_the_same_results(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, {1}}, {1, {2}}, {2, {2, 1}}, {3, {3, 1, 1}}};
    static const uint64_t counts[] = {0, 1, 1001};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct sweep sweep = {.counts = counts, .count_count = 3, .place = BY_TCP};
        sweep_shape(&shapes[i], sweep);
    }
}

/* By what was run above, one after the other. */
static void every_pair_has_occurred(void **state)
{
    (void)state;
    for (enum place place = 0; place < PLACES; place++) {
        for (size_t pair = 0; pair < pattern_pairs(); pair++) {
            muster_type type;
            muster_op op;
            pattern_pair(pair, &type, &op);
            bool anywhere = false;
            for (unsigned i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
                bool reduces = muster_collective_reduces((enum muster_collective)i);
                anywhere = anywhere || (reduces && met_pairs[place][i][type][op]);
                if (place == BY_INPROC && reduces && !met_pairs[place][i][type][op]) {
                    fail_msg("no %s has made a %s of %s", muster_collective_name(i),
                             muster_op_name(op), muster_type_name(type));
                }
            }
            if (!anywhere && RANKS_STEP == 1) {
                fail_msg("place %d: nothing has made a %s of %s", (int)place, muster_op_name(op),
                         muster_type_name(type));
            }
        }
    }
}

/* Each pair of type and operation by the algorithm that the context chooses. */
static void reduce_every_pair(struct group_member *member, void *argument)
{
    (void)argument;
    enum { COUNT = 1003 };
    const size_t size_bytes = room_bytes(COUNT, member->group->size, MUSTER_FLOAT64);
    struct memory memory = {.in = malloc(size_bytes), .out = malloc(size_bytes)};
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
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    for (size_t i = 0; i < 3; i++) {
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
        cmocka_unit_test(every_algorithm_is_right_over_other_links_and_in_memory),
        cmocka_unit_test(every_pair_has_occurred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
