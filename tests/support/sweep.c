/* Runs sweeps: draws each call, runs it on all members, and checks the results. */
#include "tests/support/sweep.h"
#include "tests/support/thinning.h"

#include "collectives/call/request.h"
#include "tests/support/pattern.h"
#include "worker/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call of 17 ranks may take long on a busy machine under a sanitizer. */
enum { HANGS_MS = 60000, COUNT_TO_FIT = 1000 };

/* The number of calls of each collective so far, from which the next calls are derived, and which
 * combinations were run. It outlives groups; rank 0 writes it. */
static size_t calls_made[MUSTER_COLLECTIVE_END];
static bool called_pairs[SWEEP_PLACES][MUSTER_COLLECTIVE_END][MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];

/* One sweep, and the calls that were made before it. */
struct job {
    const struct sweep *sweep;
    size_t calls[MUSTER_COLLECTIVE_END];
};

/* Input and output in one block, so that both ways of being in place can be bound to it. */
struct memory {
    char *in, *out;
    const struct sweep_memory *of; /* or NULL */
    bool in_flight;
};

static void *allocate(const struct sweep_memory *of, size_t size_bytes, uint32_t rank, bool output)
{
    return of != NULL ? of->allocate(size_bytes, rank, output) : malloc(size_bytes);
}

static void release(const struct sweep_memory *of, void *memory)
{
    if (of != NULL) {
        of->release(memory);
    } else {
        free(memory);
    }
}

/* The request with the addresses for the library. */
static struct muster_request for_library(const struct sweep_memory *of,
                                         const struct muster_request *request)
{
    struct muster_request library_request = *request;
    if (of != NULL && request->in != NULL) {
        library_request.in = of->for_library(request->in);
    }
    if (of != NULL) {
        library_request.out = of->for_library(request->out);
    }
    return library_request;
}

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

static muster_status call(const struct group_member *member, const struct muster_request *request,
                          bool in_flight)
{
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    struct muster_started_call *started;
    if (!in_flight) {
        return muster_context_run(context, request, NULL);
    }
    TRY(muster_context_start(context, request, &started));
    return muster_started_call_end(started, NULL);
}

/* Runs one call whose buffers are bound, and checks its output, and that its input is unchanged. */
static void run_bound(struct group_member *member, const struct muster_request *request,
                      const struct memory *memory, bool in_place)
{
    const struct muster_request library_request = for_library(memory->of, request);
    uint32_t ranks = member->group->size;
    char text[128] = "";
    void *data = request->in == NULL ? request->out : (void *)request->in;
    pattern_fill(request, data, member->rank, ranks);
    muster_status status = call(member, &library_request, memory->in_flight);
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
    run_bound(member, request, memory, in_place);
    pattern_free_counts(request);
}

static unsigned ways_of(enum muster_collective collective)
{
    return muster_collective_in_place_counts(collective) ? WAYS : MIXED;
}

static bool fits(const struct group_member *member, size_t algorithm)
{
    char why[MUSTER_ERROR_MAX];
    const struct muster_plan plan = {
        .collective = muster_algorithms[algorithm % MUSTER_ALGORITHM_ROWS_MAX].collective,
        .topology = &member->group->topology,
        .rank = member->rank,
        .count = COUNT_TO_FIT};
    return muster_algorithm_fits(algorithm, &plan, why, sizeof why);
}

/* One member's calls of a sweep. */
struct walk {
    struct group_member *member;
    const struct sweep *sweep;
    struct memory memory;
    size_t calls[MUSTER_COLLECTIVE_END];
};

/* Call number i of an algorithm: i stands for a count and a way of placing the buffers. The type,
 * the operation, the promises, the root and, where there is a choice, even or uneven blocks vary
 * with each call.
 */
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
    request.keep_input = call % 3 == 1;
    request.finish_together = call % 4 == 1;
    pattern_pair(call % pattern_pairs(), &request.type, &request.op);
    if (muster_collective_has_root(request.collective)) {
        request.root = (uint32_t)(call % member->group->size);
    }
    run_case(member, &request, &walk->memory, (enum way)(i % ways), uneven);
    if (member->rank == 0) {
        called_pairs[sweep->place][collective][request.type][request.op] = true;
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

/* Runs some hierarchical allreduces with combined exchanges, different ones each time. */
static void run_combinations(struct walk *walk)
{
    static const char *const exchanges[] = {
        "pairwise",  "binomial",           "ring",  "ring_whole",  "bidirectional_ring",
        "swing",     "recursive_doubling", "bcube", "double_tree", "halving_doubling",
        "all_to_one"};
    enum { EXCHANGES = sizeof exchanges / sizeof exchanges[0], COMBINATIONS = 2 };
    for (size_t i = 0; i < COMBINATIONS && walk->member->failure[0] == '\0'; i++) {
        const size_t number = walk->calls[MUSTER_ALLREDUCE];
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        size_t algorithm = 0;
        (void)snprintf(name, sizeof name, "hierarchical(local=%s,cross=%s,leaders=%zu)",
                       walk->sweep->place == SWEEP_MEMORY ? "group" : exchanges[number % EXCHANGES],
                       exchanges[(number + number / EXCHANGES) % EXCHANGES], 1 + number % 3);
        if (muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm) != MUSTER_OK) {
            group_fail(walk->member, "%s: %s", name, muster_last_error());
            return;
        }
        run_algorithm(walk, algorithm);
    }
}

/* One member's part of a sweep: every algorithm, then some combinations of collective, type and
 * operation. */
static void sweep_member(struct group_member *member, void *argument)
{
    const struct job *job = argument;
    const struct sweep *sweep = job->sweep;
    uint64_t most = 1;
    for (size_t i = 0; i < sweep->count_count; i++) {
        most = sweep->counts[i] > most ? sweep->counts[i] : most;
    }
    if (sweep->place == SWEEP_MEMORY &&
        muster_context_share_memory(member->contexts[MUSTER_GLOBAL],
                                    muster_clock_after_ms(HANGS_MS), NULL) != MUSTER_OK) {
        group_fail(member, "sharing memory: %s", muster_last_error());
    }
    struct walk walk = {.member = member, .sweep = sweep};
    const size_t size_bytes = room_bytes(most, member->group->size, MUSTER_FLOAT64);
    memcpy(walk.calls, job->calls, sizeof walk.calls);
    walk.memory.of = sweep->memory;
    walk.memory.in_flight = sweep->in_flight;
    walk.memory.in = allocate(sweep->memory, size_bytes, member->rank, false);
    walk.memory.out = allocate(sweep->memory, size_bytes, member->rank, true);
    for (size_t i = 0; i < muster_algorithm_count && member->failure[0] == '\0'; i++) {
        if ((i + member->group->size) % TEST_ONE_OF == 0) {
            run_algorithm(&walk, i);
        }
    }
    run_combinations(&walk);
    release(sweep->memory, walk.memory.in);
    release(sweep->memory, walk.memory.out);
    if (member->rank == 0) {
        memcpy(calls_made, walk.calls, sizeof calls_made);
    }
}

static const enum group_transport transports[SWEEP_PLACES] = {
    [SWEEP_INPROC] = GROUP_INPROC, [SWEEP_TCP] = GROUP_TCP,
    [SWEEP_SHM] = GROUP_SHM,       [SWEEP_MEMORY] = GROUP_INPROC,
    [SWEEP_VERBS] = GROUP_VERBS,   [SWEEP_BETWEEN_DEVICES] = GROUP_BETWEEN_DEVICES};

void sweep_shape(const struct sweep_shape *shape, const struct sweep *sweep)
{
    struct job job = {.sweep = sweep};
    struct group group;
    if (sweep->callers != NULL) {
        group_start_shuffled(&group, transports[sweep->place], shape->hosts, shape->host_sizes,
                             sweep->callers, NULL);
    } else {
        group_start(&group, transports[sweep->place], shape->hosts, shape->host_sizes, NULL);
    }
    memcpy(job.calls, calls_made, sizeof job.calls);
    group_each(&group, sweep_member, &job);
    group_finish(&group);
}

void sweep_even(uint32_t ranks, uint32_t hosts, const struct sweep *sweep)
{
    struct sweep_shape shape = {.hosts = hosts};
    for (uint32_t i = 0; i < ranks; i++) {
        shape.host_sizes[i % hosts]++;
    }
    sweep_shape(&shape, sweep);
}

bool sweep_has_called(enum sweep_place place, enum muster_collective collective, muster_type type,
                      muster_op op)
{
    return called_pairs[place][collective][type][op];
}

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

void sweep_pairs(enum group_transport transport, uint32_t ranks)
{
    struct group group;
    group_start_flat(&group, transport, ranks);
    group_each(&group, reduce_every_pair, NULL);
    group_finish(&group);
}
