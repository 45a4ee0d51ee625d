/*
 * muster_sync: the newest committed state to every member that lacks it.
 *
 * The service says with each generation which rank gives the state and which ranks need it. One
 * small allreduce of all members proves that the layouts agree, and that the ranks that are said to
 * hold the newest state hold the same one. Then only the giver and those that need it move data, on
 * a context of their own, region by region: the others pay for the allreduce and nothing else.
 *
 * Where the layouts differ, that of the source is the job's once something was committed: a member
 * with another one is told so and goes, and the others go on in a generation without it. In the
 * first generation nobody knows what is right, and all are told.
 *
 * The holders disagree only when one of them was cut off right after a commit which the others
 * never heard of (state.h). Then the giver's state goes to everybody.
 *
 * Until all of it has arrived a member's old copy is the truth: a member that has one receives into
 * the live memory, and puts the old copy back on failure; one that has none receives into the copy,
 * and leaves the live memory alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

/* One sync; lives inside the gate. */
struct sync {
    struct muster_session *session;
    struct muster_state *state;
    const struct muster_generation *generation;
    struct muster_context *global;
    uint32_t suspect;
};

/* The state that the giver gives. */
struct gift {
    int64_t version; /* 0: it was never committed; the giver's live memory is the state */
    int64_t committed;
};

static muster_status run(struct sync *sync, struct muster_context *context,
                         struct muster_request request)
{
    request.deadline_ns = muster_clock_after_ms(sync->session->settings.call_timeout_ms);
    return muster_context_run(context, &request, &sync->suspect);
}

static muster_status reduce(struct sync *sync, const int64_t *in, int64_t *out, size_t count,
                            muster_op op)
{
    return run(sync, sync->global,
               (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                       .in = in,
                                       .out = out,
                                       .count = count,
                                       .type = MUSTER_INT64,
                                       .op = op});
}

static muster_status give(struct sync *sync, struct muster_context *context, void *data,
                          size_t size_bytes, uint32_t root)
{
    return run(sync, context,
               (struct muster_request){.collective = MUSTER_BROADCAST,
                                       .in = data,
                                       .out = data,
                                       .count = size_bytes,
                                       .type = MUSTER_UINT8,
                                       .root = root});
}

static bool is_stale(const struct muster_generation *generation, uint32_t rank)
{
    for (uint32_t i = 0; i < generation->stale_count; i++) {
        if (generation->stale[i] == rank) {
            return true;
        }
    }
    return false;
}

/* Layouts ------------------------------------------------------------------------------------- */

/* What the source says of one of its regions. */
struct outline {
    char name[MUSTER_REGION_NAME_SIZE];
    uint64_t size_bytes;
};

static const int64_t NO_DIFFERENCE = INT32_MAX; /* regions are fewer */

static void outline_all(const struct muster_state *state, struct outline *outlines)
{
    for (uint32_t i = 0; i < state->count; i++) {
        memcpy(outlines[i].name, state->regions[i].name, sizeof outlines[i].name);
        outlines[i].size_bytes = state->regions[i].size_bytes;
    }
}

static int64_t first_difference(const struct muster_state *state, const struct outline *outlines,
                                uint32_t count)
{
    uint32_t most = count > state->count ? count : state->count;
    for (uint32_t i = 0; i < most; i++) {
        const struct muster_region *here = &state->regions[i];
        if (i >= count || i >= state->count ||
            strncmp(here->name, outlines[i].name, sizeof outlines[i].name) != 0 ||
            here->size_bytes != outlines[i].size_bytes) {
            return i;
        }
    }
    return NO_DIFFERENCE;
}

/* "\"weights\" with 4000 bytes", or that there is none. */
static void describe_region(bool there, const char *name, uint64_t size_bytes, char text[128])
{
    if (there) {
        (void)snprintf(text, 128, "\"%.63s\" with %llu bytes", name,
                       (unsigned long long)size_bytes);
    } else {
        (void)snprintf(text, 128, "missing");
    }
}

/* What the first difference on a rank means for this member, whose own is `mine`. */
static muster_status say_difference(const struct sync *sync, const struct outline *outlines,
                                    uint32_t count, int64_t mine, int64_t first)
{
    const struct muster_state *state = sync->state;
    const struct muster_generation *generation = sync->generation;
    bool odd = mine >> 32 != NO_DIFFERENCE;
    int64_t shown = odd ? mine : first;
    uint32_t index = (uint32_t)(shown >> 32);
    uint32_t rank = (uint32_t)(shown & UINT32_MAX);
    char there[128];
    char here[128];
    describe_region(index < count, index < count ? outlines[index].name : "",
                    index < count ? outlines[index].size_bytes : 0, there);
    if (odd) {
        bool is = index < state->count;
        describe_region(is, is ? state->regions[index].name : "",
                        is ? state->regions[index].size_bytes : 0, here);
        return muster_error_set(
            MUSTER_INVALID,
            "sync: state region %u is %s on rank %u, and another on rank %u: here it is %s", index,
            there, generation->state_source, rank, here);
    }
    if (generation->state_version == 0) {
        return muster_error_set(MUSTER_INVALID,
                                "sync: state region %u is %s on rank %u, and another on rank %u",
                                index, there, generation->state_source, rank);
    }
    return muster_error_set(MUSTER_REJOIN,
                            "sync: state region %u is %s in this job, and another on rank %u: "
                            "going on without rank %u",
                            index, there, rank, rank);
}

/* The layouts differ: finds the first region that does, and on which rank. The source is right. */
static muster_status name_difference(struct sync *sync)
{
    const struct muster_state *state = sync->state;
    uint32_t source = sync->generation->state_source;
    uint32_t count = state->count;
    TRY(give(sync, sync->global, &count, sizeof count, source));
    if (count > MUSTER_REGIONS_MAX) {
        return muster_error_set(MUSTER_FATAL, "sync: rank %u says it has %u regions", source,
                                count);
    }
    uint32_t most = count > state->count ? count : state->count;
    AUTO_FREE struct outline *outlines = calloc(most + (size_t)1, sizeof *outlines);
    if (outlines == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (sync->generation->rank == source) {
        outline_all(state, outlines);
    }
    TRY(give(sync, sync->global, outlines, count * sizeof *outlines, source));
    int64_t mine = first_difference(state, outlines, count) << 32 | sync->generation->rank;
    int64_t first = mine;
    TRY(reduce(sync, &mine, &first, 1, MUSTER_MIN));
    /* Nobody gives up, which would end the generation, before all know why. How this ends does not
     * matter: whoever comes here knows. */
    (void)run(sync, sync->global,
              (struct muster_request){.collective = MUSTER_BARRIER, .type = MUSTER_UINT8});
    sync->suspect = UINT32_MAX;
    return say_difference(sync, outlines, count, mine, first);
}

/* One reduction that shows whether all say the same: the largest of x, and of ~x, which puts the
 * numbers in the opposite order. A member without an opinion says the least of both. */
enum { DIGEST, DIGEST_NOT, VERSION, VERSION_NOT, COMMITTED, COMMITTED_NOT, OPINIONS };

/* *ret_alike: the holders hold the same state. */
static muster_status agree(struct sync *sync, bool *ret_alike)
{
    int64_t mine[OPINIONS];
    int64_t all[OPINIONS];
    mine[DIGEST] = muster_state_digest(sync->state);
    mine[VERSION] = (int64_t)atomic_load(&sync->state->version);
    mine[COMMITTED] = (int64_t)sync->state->committed;
    for (int i = 0; i < OPINIONS; i += 2) {
        mine[i + 1] = ~mine[i];
    }
    if (is_stale(sync->generation, sync->generation->rank)) {
        for (int i = VERSION; i < OPINIONS; i++) {
            mine[i] = INT64_MIN;
        }
    }
    TRY(reduce(sync, mine, all, OPINIONS, MUSTER_MAX));
    if (all[DIGEST] != ~all[DIGEST_NOT]) {
        return name_difference(sync);
    }
    *ret_alike = all[VERSION] == ~all[VERSION_NOT] && all[COMMITTED] == ~all[COMMITTED_NOT];
    return MUSTER_OK;
}

/* The group of the giver and those that need ----------------------------------------------------
 */

static uint32_t collect_ranks(const struct muster_generation *generation, uint32_t *ranks)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < generation->topology.ranks; rank++) {
        if (rank == generation->state_source || is_stale(generation, rank)) {
            ranks[count++] = rank;
        }
    }
    return count;
}

static uint32_t index_of(const uint32_t *ranks, uint32_t count, uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] == rank) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* *ret_context is NULL for a member that is not in the group. */
static muster_status make_group_of(const struct sync *sync, uint32_t number, const uint32_t *ranks,
                                   uint32_t count, struct muster_context **ret_context)
{
    const struct muster_generation *generation = sync->generation;
    struct muster_context_options options = {
        .fabric = sync->session->fabric,
        .generation = generation->number,
        .number = number,
        .name = "sync",
        .ranks = ranks,
        .rank = index_of(ranks, count, generation->rank),
        .model = &sync->session->figures.model,
    };
    if (options.rank == UINT32_MAX) {
        *ret_context = NULL;
        return MUSTER_OK;
    }
    struct muster_topology topology = {0};
    TRY(muster_topology_init_some(&generation->topology, ranks, count, &topology));
    options.topology = &topology;
    muster_status status = muster_context_create(&options, ret_context);
    muster_topology_finish(&topology);
    return status;
}

static muster_status make_group(const struct sync *sync, uint32_t number, uint32_t *ret_root,
                                struct muster_context **ret_context)
{
    uint32_t *ranks = calloc(sync->generation->topology.ranks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    uint32_t count = collect_ranks(sync->generation, ranks);
    muster_status status = make_group_of(sync, number, ranks, count, ret_context);
    *ret_root = index_of(ranks, count, sync->generation->state_source);
    free(ranks);
    return status;
}

/* Moving the state ---------------------------------------------------------------------------- */

static muster_status move_regions(struct sync *sync, struct muster_context *context, uint32_t root,
                                  const struct gift *gift)
{
    struct muster_state *state = sync->state;
    bool giver = sync->generation->rank == sync->generation->state_source;
    bool from_copy = giver ? gift->version > 0 : !state->kept;
    for (uint32_t i = 0; i < state->count; i++) {
        struct muster_region *region = &state->regions[i];
        void *data = from_copy ? state->copy + region->offset_bytes : region->data;
        if (region->size_bytes > 0) {
            muster_status status = give(sync, context, data, region->size_bytes, root);
            if (status != MUSTER_OK) {
                return muster_error_prefix(status, "sync of \"%s\"", region->name);
            }
        }
    }
    return MUSTER_OK;
}

static void accept_gift(struct sync *sync, const struct gift *gift)
{
    struct muster_state *state = sync->state;
    bool first = gift->version == 0;
    uint64_t version = first ? 1 : (uint64_t)gift->version;
    uint64_t committed = first ? sync->generation->number : (uint64_t)gift->committed;
    bool giver = sync->generation->rank == sync->generation->state_source;
    if (giver && !first) {
        return;
    }
    if (!giver && !state->kept) {
        muster_state_put_back(state); /* it came into the copy */
    }
    muster_state_keep(state, version, committed);
}

static muster_status move_state(struct sync *sync, struct muster_context *context, uint32_t root)
{
    struct muster_state *state = sync->state;
    bool giver = sync->generation->rank == sync->generation->state_source;
    struct gift gift = {.version = (int64_t)atomic_load(&state->version),
                        .committed = (int64_t)state->committed};
    TRY(muster_state_reserve(state));
    TRY(give(sync, context, &gift, sizeof gift, root));
    if (gift.version < 0 || gift.committed < 0) {
        return muster_error_set(MUSTER_FATAL, "sync: rank %u gives version %lld",
                                sync->generation->state_source, (long long)gift.version);
    }
    muster_status status = move_regions(sync, context, root, &gift);
    if (status == MUSTER_OK) {
        accept_gift(sync, &gift);
    } else if (!giver && state->kept) {
        muster_state_put_back(state);
    }
    return status;
}

static muster_status sync_inside(struct sync *sync)
{
    struct muster_generation *generation = &sync->session->generation;
    uint32_t number = generation->contexts_made++;
    bool alike = false;
    TRY(agree(sync, &alike));
    bool nobody_needs = generation->stale_count == 0 && generation->state_version > 0;
    if (alike && nobody_needs) {
        return MUSTER_OK;
    }
    if (!alike || generation->stale_count + 1 >= generation->topology.ranks) {
        return move_state(sync, sync->global, generation->state_source);
    }
    struct muster_context *group = NULL;
    uint32_t root = 0;
    TRY(make_group(sync, number, &root, &group));
    if (group == NULL) {
        return MUSTER_OK;
    }
    muster_status status = move_state(sync, group, root);
    muster_context_destroy(group);
    return status;
}

muster_status muster_sync(muster_session *session)
{
    AUTO_LOCK(&session->state.mutex);
    TRY(muster_session_enter(session));
    struct sync sync = {
        .session = session,
        .state = &session->state,
        .generation = &session->generation,
        .global = session->generation.contexts[MUSTER_GLOBAL],
        .suspect = UINT32_MAX,
    };
    uint64_t generation = session->generation.number;
    muster_status status = sync_inside(&sync);
    muster_session_exit(session);
    return muster_session_settle(session, generation, status, sync.suspect);
}
