/*
 * muster_sync: the newest committed state reaches every member that lacks it.
 *
 * With each generation the service names the rank that sends the state (the source) and the ranks
 * that are stale. One small allreduce of all members proves that the layouts of the registered
 * buffers agree, and that all ranks that hold the newest state, as the service believes, hold the
 * same one. Then only the source and the stale ranks move data, buffer by buffer, in a context of
 * their own; the others pay for the allreduce and nothing else.
 *
 * If the layouts differ and something was ever committed, the source's layout is the job's: a
 * member with another one gets MUSTER_INVALID and has to close, and the others go on in a
 * generation without it. In the first generation no layout is known to be right, and all get the
 * error.
 *
 * The holders disagree on the state only if one of them was cut off right after a commit that the
 * others never received (state.h). Then the source's state goes to all members.
 *
 * Until all of the state has arrived, a member's old copy stays valid. A member that has a copy
 * receives into the registered buffers and restores them from the copy on failure; a member without
 * one receives into the copy and leaves the buffers alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "worker/base/bytes.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/epoch.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/spill.h"
#include "worker/session/sync_wire.h"

/* One sync; it holds the generation. */
struct sync {
    struct muster_session *session;
    struct muster_state *state;
    const struct muster_generation *generation;
    struct muster_communicator *communicator;
    struct muster_context *global;
    uint32_t source; /* the rank that sends the state */
    uLong crc;       /* of the state that is moved */
    uint32_t suspect;
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

static muster_status broadcast(struct sync *sync, struct muster_context *context, void *data,
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

static bool is_source(const struct sync *sync)
{
    return sync->communicator->rank == sync->source;
}

/* What the source has sent cannot be decoded. */
static muster_status name_source(const struct sync *sync, muster_status status)
{
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "sync: from rank %u", sync->source);
}

static bool is_stale(const struct muster_generation *generation, uint32_t rank)
{
    for (uint32_t i = 0; i < generation->stale_count; i++) {
        if (generation->stale_ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* Layouts -------------------------------------------------------------------------------------- */

static const int64_t NO_DIFFERENCE = INT32_MAX; /* larger than any index */

static int64_t first_difference(const struct muster_state *state,
                                const struct muster_outline *outlines, uint32_t count)
{
    uint32_t most = count > state->count ? count : state->count;
    for (uint32_t i = 0; i < most; i++) {
        const struct muster_registered_buffer *buffer = &state->buffers[i];
        if (i >= count || i >= state->count ||
            strncmp(buffer->name, outlines[i].name, sizeof outlines[i].name) != 0 ||
            buffer->size_bytes != outlines[i].size_bytes) {
            return i;
        }
    }
    return NO_DIFFERENCE;
}

/* "\"weights\" with 4000 bytes", or "missing". */
static void describe_buffer(bool exists, const char *name, uint64_t size_bytes, char text[128])
{
    if (exists) {
        (void)snprintf(text, 128, "\"%.63s\" with %llu bytes", name,
                       (unsigned long long)size_bytes);
    } else {
        (void)snprintf(text, 128, "missing");
    }
}

/* The status for this member when layouts differ. `mine` and `first` are this member's first
 * difference and the first one of all members: buffer index << 32 | rank. */
static muster_status difference_error(const struct sync *sync,
                                      const struct muster_outline *outlines, uint32_t count,
                                      int64_t mine, int64_t first)
{
    const struct muster_state *state = sync->state;
    const struct muster_generation *generation = sync->generation;
    bool differs = mine >> 32 != NO_DIFFERENCE;
    int64_t shown = differs ? mine : first;
    uint32_t index = (uint32_t)(shown >> 32);
    uint32_t rank = (uint32_t)(shown & UINT32_MAX);
    char expected[128];
    char found[128];
    describe_buffer(index < count, index < count ? outlines[index].name : "",
                    index < count ? outlines[index].size_bytes : 0, expected);
    if (differs) {
        bool exists = index < state->count;
        describe_buffer(exists, exists ? state->buffers[index].name : "",
                        exists ? state->buffers[index].size_bytes : 0, found);
        return muster_error_set(
            MUSTER_INVALID,
            "sync: state buffer %u is %s on rank %u and differs on rank %u: here it is %s", index,
            expected, generation->state_source, rank, found);
    }
    if (generation->state_version == 0) {
        return muster_error_set(MUSTER_INVALID,
                                "sync: state buffer %u is %s on rank %u and differs on rank %u",
                                index, expected, generation->state_source, rank);
    }
    return muster_error_set(MUSTER_REJOIN,
                            "sync: state buffer %u is %s in this job and differs on rank %u: "
                            "going on without rank %u",
                            index, expected, rank, rank);
}

/* The number of the source's buffers. */
static muster_status broadcast_count(struct sync *sync, uint32_t *ret_count)
{
    unsigned char bytes[MUSTER_BUFFER_COUNT_SIZE];
    muster_buffer_count_encode(sync->state->count, bytes);
    TRY(broadcast(sync, sync->global, bytes, sizeof bytes, sync->source));
    return name_source(sync, muster_buffer_count_decode(bytes, sizeof bytes, ret_count));
}

/* The source's layout, [count]. */
static muster_status broadcast_outlines(struct sync *sync, uint32_t count,
                                        struct muster_outline *ret_outlines)
{
    size_t size_bytes = (size_t)count * MUSTER_OUTLINE_SIZE;
    AUTO_FREE unsigned char *bytes = calloc(count + (size_t)1, MUSTER_OUTLINE_SIZE);
    if (bytes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (is_source(sync)) {
        muster_outlines_encode(sync->state, bytes);
    }
    TRY(broadcast(sync, sync->global, bytes, size_bytes, sync->source));
    return name_source(sync, muster_outlines_decode(bytes, size_bytes, count, ret_outlines));
}

/* The layouts differ from the source's on some rank: finds the first buffer and rank. */
static muster_status find_difference(struct sync *sync)
{
    const struct muster_state *state = sync->state;
    uint32_t count;
    TRY(broadcast_count(sync, &count));
    AUTO_FREE struct muster_outline *outlines = calloc(count + (size_t)1, sizeof *outlines);
    if (outlines == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    TRY(broadcast_outlines(sync, count, outlines));
    int64_t mine = first_difference(state, outlines, count) << 32 | sync->communicator->rank;
    int64_t first = mine;
    TRY(reduce(sync, &mine, &first, 1, MUSTER_MIN));
    /* A member that returns may end the generation, so none returns before all know the difference.
     * The status does not matter: a member that is here knows it. */
    (void)run(sync, sync->global,
              (struct muster_request){.collective = MUSTER_BARRIER, .type = MUSTER_UINT8});
    sync->suspect = UINT32_MAX;
    return difference_error(sync, outlines, count, mine, first);
}

/* One allreduce shows whether all members have the same numbers: the maximum of x, and of ~x, whose
 * order is the opposite, belong to the same number then. A stale member passes the least number in
 * place of both, which changes neither. */
enum {
    DIGEST,
    DIGEST_NOT,
    VERSION,
    VERSION_NOT,
    COMMITTED,
    COMMITTED_NOT,
    PAIRS,
    SPILLED = PAIRS,
    COMPARED
};

/* *ret_alike: the holders hold the same state. spilled: the generation of the file that this member
 * has read; *ret_spilled: the highest of all. */
static muster_status compare(struct sync *sync, uint64_t spilled, bool *ret_alike,
                             uint64_t *ret_spilled)
{
    int64_t mine[COMPARED];
    int64_t all[COMPARED];
    mine[DIGEST] = muster_state_digest(sync->state);
    mine[VERSION] = (int64_t)atomic_load(&sync->state->version);
    mine[COMMITTED] = (int64_t)sync->state->committed_generation;
    for (int i = 0; i < PAIRS; i += 2) {
        mine[i + 1] = ~mine[i];
    }
    if (is_stale(sync->generation, sync->communicator->rank)) {
        for (int i = VERSION; i < PAIRS; i++) {
            mine[i] = INT64_MIN;
        }
    }
    mine[SPILLED] = (int64_t)spilled;
    TRY(reduce(sync, mine, all, COMPARED, MUSTER_MAX));
    if (all[DIGEST] != ~all[DIGEST_NOT]) {
        return find_difference(sync);
    }
    *ret_alike = all[VERSION] == ~all[VERSION_NOT] && all[COMMITTED] == ~all[COMMITTED_NOT];
    *ret_spilled = (uint64_t)all[SPILLED];
    return MUSTER_OK;
}

/* The source logs which ranks hold another state than it does, though the service believes that
 * they hold the same. */
static muster_status report_versions(struct sync *sync)
{
    enum { NUMBERS = 2 };
    uint32_t size = sync->communicator->topology.ranks;
    const int64_t mine[NUMBERS] = {(int64_t)atomic_load(&sync->state->version),
                                   (int64_t)sync->state->committed_generation};
    AUTO_FREE int64_t *all = calloc((size_t)size * NUMBERS, sizeof *all);
    if (all == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    TRY(run(sync, sync->global,
            (struct muster_request){.collective = MUSTER_ALLGATHER,
                                    .in = mine,
                                    .out = all,
                                    .count = NUMBERS,
                                    .type = MUSTER_INT64}));
    const int64_t *source = all + (size_t)sync->source * NUMBERS;
    for (uint32_t rank = 0; is_source(sync) && rank < size; rank++) {
        const int64_t *other = all + (size_t)rank * NUMBERS;
        if (!is_stale(sync->generation, rank) && (other[0] != source[0] || other[1] != source[1])) {
            muster_log(MUSTER_LOG_WARN,
                       "rank %u holds state version %lld of generation %" PRIu64
                       ", this rank version %lld of generation %" PRIu64
                       ": all continue with this rank's",
                       rank, (long long)other[0], muster_epoch_shown((uint64_t)other[1]),
                       (long long)source[0], muster_epoch_shown((uint64_t)source[1]));
        }
    }
    return MUSTER_OK;
}

/* The group of the source and the stale ranks -------------------------------------------------- */

static uint32_t collect_ranks(const struct sync *sync, uint32_t *ranks)
{
    const struct muster_generation *generation = sync->generation;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < sync->communicator->topology.ranks; rank++) {
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

/* The context of the source and the stale ranks, NULL for a member that is not among them, and the
 * source's rank in it. */
static muster_status create_group(const struct sync *sync, uint32_t number, uint32_t *ret_root,
                                  struct muster_context **ret_context)
{
    const struct muster_generation *generation = sync->generation;
    AUTO_FREE uint32_t *ranks = calloc(sync->communicator->topology.ranks, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    uint32_t count = collect_ranks(sync, ranks);
    *ret_root = index_of(ranks, count, generation->state_source);
    *ret_context = NULL;
    if (index_of(ranks, count, sync->communicator->rank) == UINT32_MAX) {
        return MUSTER_OK;
    }
    return muster_communicator_create_context(sync->communicator, "sync", number, ranks, count,
                                              ret_context);
}

/* Moving the state ----------------------------------------------------------------------------- */

/* A piece is on its way while the checksum of the one before is made. */
enum { PIECE_BYTES = 8 << 20 };

static size_t piece_at(size_t at, size_t size_bytes)
{
    return size_bytes - at < PIECE_BYTES ? size_bytes - at : PIECE_BYTES;
}

static muster_status start_piece(struct sync *sync, struct muster_context *context, void *data,
                                 size_t size_bytes, uint32_t root,
                                 struct muster_started_call **ret_call)
{
    const struct muster_request request = {
        .collective = MUSTER_BROADCAST,
        .in = data,
        .out = data,
        .count = size_bytes,
        .type = MUSTER_UINT8,
        .root = root,
        .deadline_ns = muster_clock_after_ms(sync->session->settings.call_timeout_ms),
    };
    return muster_context_start(context, &request, ret_call);
}

/* Broadcasts the bytes and adds them to the checksum. */
static muster_status move_bytes(struct sync *sync, struct muster_context *context, uint32_t root,
                                unsigned char *data, size_t size_bytes)
{
    if (size_bytes <= PIECE_BYTES) {
        TRY(broadcast(sync, context, data, size_bytes, root));
        sync->crc = crc32(sync->crc, data, (uInt)size_bytes);
        return MUSTER_OK;
    }
    struct muster_started_call *call = NULL;
    TRY(start_piece(sync, context, data, piece_at(0, size_bytes), root, &call));
    for (size_t at = 0; at < size_bytes;) {
        size_t piece = piece_at(at, size_bytes);
        size_t next = at + piece;
        TRY(muster_started_call_end(call, &sync->suspect));
        if (next < size_bytes) {
            TRY(start_piece(sync, context, data + next, piece_at(next, size_bytes), root, &call));
        }
        sync->crc = crc32(sync->crc, data + at, (uInt)piece);
        at = next;
    }
    return MUSTER_OK;
}

/* What arrived is what was sent. Otherwise this member goes back to its old state, and the next
 * generation tries again. */
static muster_status check_moved(struct sync *sync, struct muster_context *context, uint32_t root)
{
    unsigned char bytes[4];
    muster_bytes_put(bytes, (uint64_t)sync->crc, sizeof bytes);
    TRY(broadcast(sync, context, bytes, sizeof bytes, root));
    return muster_bytes_get(bytes, sizeof bytes) == (uint64_t)sync->crc
               ? MUSTER_OK
               : muster_error_set(MUSTER_REJOIN,
                                  "sync: the checksum of the state from rank %u does not fit",
                                  sync->source);
}

static muster_status move_buffers(struct sync *sync, struct muster_context *context, uint32_t root,
                                  const struct muster_state_header *header)
{
    struct muster_state *state = sync->state;
    sync->crc = crc32(0, NULL, 0);
    bool use_copy = is_source(sync) ? header->version > 0 : !state->has_copy;
    for (uint32_t i = 0; i < state->count; i++) {
        struct muster_registered_buffer *buffer = &state->buffers[i];
        void *data = use_copy ? state->copy + buffer->offset_bytes : buffer->data;
        if (buffer->size_bytes > 0) {
            muster_status status = move_bytes(sync, context, root, data, buffer->size_bytes);
            if (status != MUSTER_OK) {
                return muster_error_prefix(status, "sync of \"%s\"", buffer->name);
            }
        }
    }
    return check_moved(sync, context, root);
}

/* All of the state has arrived, or has been sent. */
static void accept_state(struct sync *sync, const struct muster_state_header *header)
{
    struct muster_state *state = sync->state;
    bool first = header->version == 0;
    uint64_t version = first ? 1 : header->version;
    uint64_t committed = first ? sync->generation->number : header->committed_generation;
    if (is_source(sync) && !first) {
        return;
    }
    if (!is_source(sync) && !state->has_copy) {
        muster_state_restore_commit(state); /* it was received into the copy */
    }
    muster_state_copy_commit(state, version, committed);
}

/* Moves the state from the source, rank `root` of the context, to all its members. */
static muster_status move_state(struct sync *sync, struct muster_context *context, uint32_t root)
{
    struct muster_state *state = sync->state;
    struct muster_state_header header = {.version = atomic_load(&state->version),
                                         .committed_generation = state->committed_generation};
    unsigned char bytes[MUSTER_STATE_HEADER_SIZE];
    muster_state_header_encode(&header, bytes);
    TRY(muster_state_reserve(state));
    TRY(broadcast(sync, context, bytes, sizeof bytes, root));
    TRY(name_source(sync, muster_state_header_decode(bytes, sizeof bytes, &header)));
    muster_status status = move_buffers(sync, context, root, &header);
    if (status == MUSTER_OK) {
        accept_state(sync, &header);
    } else if (!is_source(sync) && state->has_copy) {
        muster_state_restore_commit(state);
    }
    return status;
}

/* Spilled states ------------------------------------------------------------------------------- */

/* In a job in which nothing was ever committed one member of each host looks for a file to go on
 * from. */
static muster_status read_spilled(struct sync *sync, struct muster_spill_key *ret_key)
{
    struct muster_session *session = sync->session;
    *ret_key = (struct muster_spill_key){0};
    if (sync->generation->state_version > 0 || session->settings.spill == NULL ||
        session->without_service || sync->state->has_copy || sync->state->count == 0 ||
        atomic_load(&session->ranks[MUSTER_LOCAL]) != 0) {
        return MUSTER_OK;
    }
    TRY(muster_state_reserve(sync->state));
    return muster_session_read_spilled(session, ret_key);
}

/* The newest file of all members, of this generation, is the state: *ret_version, and the lowest
 * rank that has read it becomes the source. */
static muster_status choose_spilled(struct sync *sync, uint64_t generation,
                                    const struct muster_spill_key *mine, uint64_t *ret_version)
{
    int64_t version = mine->generation == generation ? (int64_t)mine->version : -1;
    int64_t newest = -1;
    TRY(reduce(sync, &version, &newest, 1, MUSTER_MAX));
    int64_t rank = version == newest ? (int64_t)sync->communicator->rank : INT64_MAX;
    int64_t first = 0;
    TRY(reduce(sync, &rank, &first, 1, MUSTER_MIN));
    sync->source = (uint32_t)first;
    *ret_version = (uint64_t)newest;
    return MUSTER_OK;
}

/* All members go on from the newest file. */
static muster_status resume(struct sync *sync, uint64_t generation,
                            const struct muster_spill_key *mine)
{
    struct muster_session *session = sync->session;
    struct muster_spill_key key = {.generation = generation};
    TRY(choose_spilled(sync, generation, mine, &key.version));
    if (is_source(sync)) {
        muster_log(MUSTER_LOG_INFO,
                   "the job continues from state version %" PRIu64 " of generation %" PRIu64
                   " in %s",
                   key.version, muster_epoch_shown(generation), session->settings.spill);
        muster_state_accept_copy(sync->state, key.version, sync->generation->number);
        muster_state_restore_commit(sync->state);
    }
    TRY(move_state(sync, sync->global, sync->source));
    muster_session_follow_spilled(session, key);
    return MUSTER_OK;
}

static muster_status sync_held(struct sync *sync)
{
    const struct muster_generation *generation = sync->generation;
    uint32_t number = sync->communicator->next_context++;
    struct muster_spill_key spilled;
    uint64_t newest = 0;
    bool alike = false;
    TRY(read_spilled(sync, &spilled));
    TRY(compare(sync, spilled.generation, &alike, &newest));
    if (newest > 0) {
        return resume(sync, newest, &spilled);
    }
    if (!alike) {
        TRY(report_versions(sync));
    }
    bool none_stale = generation->stale_count == 0 && generation->state_version > 0;
    if (alike && none_stale) {
        return MUSTER_OK;
    }
    if (!alike || generation->stale_count + 1 >= sync->communicator->topology.ranks) {
        return move_state(sync, sync->global, generation->state_source);
    }
    struct muster_context *group = NULL;
    uint32_t root = 0;
    TRY(create_group(sync, number, &root, &group));
    if (group == NULL) {
        return MUSTER_OK;
    }
    muster_status status = move_state(sync, group, root);
    muster_context_destroy(group);
    return status;
}

muster_status muster_sync(muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    muster_state_abandon_commit(&session->state);
    TRY(muster_session_hold_generation(session));
    struct sync sync = {
        .session = session,
        .state = &session->state,
        .generation = &session->generation,
        .communicator = session->generation.communicator,
        .global = session->generation.communicator->contexts[MUSTER_GLOBAL],
        .source = session->generation.state_source,
        .suspect = UINT32_MAX,
    };
    uint64_t generation = session->generation.number;
    muster_status status = sync_held(&sync);
    muster_session_release_generation(session);
    return muster_session_handle_result(session, generation, status, sync.suspect);
}
