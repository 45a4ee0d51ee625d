/*
 * Process sets from one generation to the next.
 *
 * A member may have created a set that another one has not: the creation ended with a death. They
 * would wait for each other for ever, so a set stays only if all its survivors hold it. For that
 * all members exchange digests of their sets; newcomers have none.
 */
#include "worker/session/kept_sets.h"

#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/communicator/process_set.h"

/* Ids ------------------------------------------------------------------------------------------ */

static unsigned digit_of(char digit)
{
    return digit <= '9' ? (unsigned)(digit - '0') : (unsigned)((digit | 0x20) - 'a' + 10);
}

/* "00112233-4455-...": 32 hexadecimal digits, and dashes. */
static struct muster_short_id shorten(const char *uuid)
{
    struct muster_short_id id = {{0}};
    size_t digits = 0;
    for (; *uuid != '\0' && digits < 2 * sizeof id.bytes; uuid++) {
        if (*uuid != '-') {
            unsigned upper = id.bytes[digits / 2];
            id.bytes[digits / 2] = (unsigned char)(upper << 4 | digit_of(*uuid));
            digits++;
        }
    }
    return id;
}

static bool is_known(const struct muster_short_id *id)
{
    static const struct muster_short_id none;
    return memcmp(id, &none, sizeof none) != 0;
}

/* A member of the new generation, to be found by its id. */
struct place {
    struct muster_short_id id;
    uint32_t rank;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left;
    const struct place *b = right;
    return memcmp(&a->id, &b->id, sizeof a->id);
}

/* new_ranks[i]: where the member that had rank i is now. */
static muster_status map_ranks(const struct muster_session_sets *sets,
                               const struct muster_short_id *ids, uint32_t count,
                               uint32_t *new_ranks)
{
    AUTO_FREE struct place *places = calloc(count, sizeof *places);
    if (places == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        places[i] = (struct place){ids[i], i};
    }
    qsort(places, count, sizeof *places, compare_places);
    for (uint32_t i = 0; i < sets->members; i++) {
        const struct place wanted = {.id = sets->member_ids[i]};
        const struct place *found =
            is_known(&wanted.id) ? bsearch(&wanted, places, count, sizeof *places, compare_places)
                                 : NULL;
        new_ranks[i] = found != NULL ? found->rank : MUSTER_SET_GONE;
    }
    return MUSTER_OK;
}

/* The table has been moved to the ranks of this generation, or has no set. ids: taken. */
static void set_ids_locked(struct muster_session_sets *sets, struct muster_short_id *ids,
                           const struct muster_communicator *communicator)
{
    free(sets->member_ids);
    sets->member_ids = ids;
    sets->members = communicator->topology.ranks;
    sets->own = communicator->rank;
    sets->generation = communicator->generation;
}

/* The held sets get the ranks of this generation, whose members have these ids. */
static muster_status move_table(struct muster_session_sets *sets, const struct muster_short_id *ids,
                                uint32_t count)
{
    AUTO_LOCK(&sets->mutex);
    AUTO_FREE uint32_t *new_ranks = calloc(sets->members + (size_t)1, sizeof *new_ranks);
    if (new_ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", sets->members);
    }
    TRY(map_ranks(sets, ids, count, new_ranks));
    muster_process_sets_move(&sets->table, new_ranks, sets->own);
    return MUSTER_OK;
}

void muster_session_begin_sets(struct muster_session *session)
{
    AUTO_LOCK(&session->sets.mutex);
    muster_process_sets_forget_names(&session->sets.table);
}

/* Which sets all of their members hold --------------------------------------------------------- */

struct keeping {
    struct muster_session *session;
    struct muster_communicator *communicator;
    struct muster_context *context; /* of all members, for this exchange */
    uint32_t size;
    uint32_t *suspect;
    uint32_t own_count;
    uint64_t *own;     /* [own_count] digests of the sets of this member */
    size_t *counts;    /* [size] of each member's */
    size_t *starts;    /* [size + 1] */
    uint64_t *digests; /* [starts[size]] of all members' */
};

static muster_status run(struct keeping *keeping, struct muster_request request)
{
    request.deadline_ns = muster_clock_after_ms(keeping->communicator->timeout_ms);
    return muster_context_run(keeping->context, &request, keeping->suspect);
}

/* The most sets that a member holds. */
static muster_status find_most(struct keeping *keeping, uint32_t *ret_most)
{
    return run(keeping, (struct muster_request){.collective = MUSTER_ALLREDUCE,
                                                .in = &keeping->own_count,
                                                .out = ret_most,
                                                .count = 1,
                                                .type = MUSTER_UINT32,
                                                .op = MUSTER_MAX,
                                                .algorithm = "recursive_doubling"});
}

/* Also the table gets the ranks of this generation. */
static muster_status gather_ids(struct keeping *keeping)
{
    struct muster_session_sets *sets = &keeping->session->sets;
    const struct muster_short_id own = shorten(keeping->session->member);
    AUTO_FREE struct muster_short_id *ids = calloc(keeping->size, sizeof *ids);
    if (ids == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", keeping->size);
    }
    TRY(run(keeping, (struct muster_request){.collective = MUSTER_ALLGATHER,
                                             .in = &own,
                                             .out = ids,
                                             .count = sizeof own,
                                             .type = MUSTER_UINT8}));
    TRY(move_table(sets, ids, keeping->size));
    AUTO_LOCK(&sets->mutex);
    set_ids_locked(sets, TAKE(ids), keeping->communicator);
    keeping->own_count = muster_process_sets_digests(&sets->table, keeping->own);
    return MUSTER_OK;
}

static muster_status gather_counts(struct keeping *keeping)
{
    AUTO_FREE uint32_t *counts = calloc(keeping->size, sizeof *counts);
    if (counts == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", keeping->size);
    }
    TRY(run(keeping, (struct muster_request){.collective = MUSTER_ALLGATHER,
                                             .in = &keeping->own_count,
                                             .out = counts,
                                             .count = 1,
                                             .type = MUSTER_UINT32}));
    for (uint32_t i = 0; i < keeping->size; i++) {
        if (counts[i] > MUSTER_SETS_MAX) {
            return muster_error_set(MUSTER_FATAL, "rank %u says that it holds %u process sets", i,
                                    counts[i]);
        }
        keeping->counts[i] = counts[i];
        keeping->starts[i + 1] = keeping->starts[i] + counts[i];
    }
    return MUSTER_OK;
}

static muster_status gather_digests(struct keeping *keeping)
{
    keeping->digests = calloc(keeping->starts[keeping->size], sizeof *keeping->digests);
    if (keeping->digests == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the process sets of all members");
    }
    return run(keeping, (struct muster_request){.collective = MUSTER_ALLGATHERV,
                                                .in = keeping->own,
                                                .out = keeping->digests,
                                                .out_counts = keeping->counts,
                                                .type = MUSTER_UINT64});
}

/* Contexts ---------------------------------------------------------------------------------------
 */

/* The sets that stay, by their slots. No other thread changes the table now: no generation can be
 * held. But others read it. */
static muster_status create_contexts(struct keeping *keeping, const uint32_t *slots, uint32_t count)
{
    struct muster_session_sets *sets = &keeping->session->sets;
    for (uint32_t i = 0; i < count; i++) {
        struct muster_process_set *set = &sets->table.slots[slots[i]];
        struct muster_context *context = NULL;
        if (set->stage != MUSTER_SET_HELD) {
            continue;
        }
        TRY(muster_communicator_keep_set(keeping->communicator, set->name, set->number,
                                         set->members, set->count, &context, keeping->suspect));
        AUTO_LOCK(&sets->mutex);
        set->context = context;
    }
    return MUSTER_OK;
}

static muster_status confirm(struct keeping *keeping)
{
    struct muster_session_sets *sets = &keeping->session->sets;
    AUTO_FREE uint32_t *slots = calloc(keeping->own_count + (size_t)1, sizeof *slots);
    uint32_t count = 0;
    if (slots == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for process sets");
    }
    muster_mutex_lock(&sets->mutex);
    muster_status status = muster_process_sets_confirm(&sets->table, keeping->size, keeping->starts,
                                                       keeping->digests, slots, &count);
    muster_mutex_unlock(&sets->mutex);
    TRY(status);
    if (count < keeping->own_count) {
        muster_log(MUSTER_LOG_WARN, "%u process sets end, as not all of their members hold them",
                   keeping->own_count - count);
    }
    return create_contexts(keeping, slots, count);
}

static muster_status create_context_of_all(struct keeping *keeping)
{
    struct muster_communicator *communicator = keeping->communicator;
    uint32_t number = communicator->next_context++;
    AUTO_FREE uint32_t *ranks = calloc(keeping->size, sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", keeping->size);
    }
    for (uint32_t i = 0; i < keeping->size; i++) {
        ranks[i] = i;
    }
    return muster_communicator_create_context(communicator, "process sets", number, ranks,
                                              keeping->size, &keeping->context);
}

/* Nobody holds a set. Ids will be known when one is created. */
static muster_status forget_ids(struct keeping *keeping)
{
    struct muster_session_sets *sets = &keeping->session->sets;
    struct muster_short_id *none = calloc(keeping->size, sizeof *none);
    if (none == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", keeping->size);
    }
    AUTO_LOCK(&sets->mutex);
    set_ids_locked(sets, none, keeping->communicator);
    return MUSTER_OK;
}

static muster_status keep(struct keeping *keeping)
{
    uint32_t most = keeping->own_count;
    TRY(create_context_of_all(keeping));
    TRY(find_most(keeping, &most));
    if (most == 0) {
        return forget_ids(keeping);
    }
    TRY(gather_ids(keeping));
    TRY(gather_counts(keeping));
    TRY(gather_digests(keeping));
    return confirm(keeping);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the record */
muster_status muster_session_keep_sets(struct muster_session *session, uint32_t *ret_suspect)
{
    struct muster_session_sets *sets = &session->sets;
    struct muster_communicator *communicator = session->generation.communicator;
    uint32_t size = communicator->topology.ranks;
    struct keeping keeping = {.session = session,
                              .communicator = communicator,
                              .size = size,
                              .suspect = ret_suspect,
                              .counts = calloc(size, sizeof *keeping.counts),
                              .starts = calloc((size_t)size + 1, sizeof *keeping.starts),
                              .own = calloc(MUSTER_SETS_MAX, sizeof *keeping.own)};
    muster_status status = MUSTER_FATAL;
    if (keeping.counts == NULL || keeping.starts == NULL || keeping.own == NULL) {
        status = muster_error_set(MUSTER_FATAL, "no memory for process sets");
    } else {
        muster_mutex_lock(&sets->mutex);
        keeping.own_count = muster_process_sets_digests(&sets->table, keeping.own);
        muster_mutex_unlock(&sets->mutex);
        status = keep(&keeping);
    }
    muster_context_destroy(keeping.context);
    free(keeping.counts);
    free(keeping.starts);
    free(keeping.own);
    free(keeping.digests);
    return status;
}

/* Created ---------------------------------------------------------------------------------------
 */

muster_status muster_session_note_set(struct muster_session *session,
                                      struct muster_context *context, const uint32_t *members,
                                      uint32_t count, uint32_t *ret_suspect)
{
    struct muster_session_sets *sets = &session->sets;
    const struct muster_short_id own = shorten(session->member);
    AUTO_FREE struct muster_short_id *ids = calloc(count, sizeof *ids);
    if (ids == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", count);
    }
    const struct muster_request request = {
        .collective = MUSTER_ALLGATHER,
        .in = &own,
        .out = ids,
        .count = sizeof own,
        .type = MUSTER_UINT8,
        .deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms)};
    TRY(muster_context_run(context, &request, ret_suspect));
    if (session->without_service) { /* there is no next generation */
        return MUSTER_OK;
    }
    AUTO_LOCK(&sets->mutex);
    if (sets->generation != session->generation.number) {
        return muster_error_set(MUSTER_REJOIN, "the generation has ended while it was prepared");
    }
    for (uint32_t i = 0; i < count; i++) {
        sets->member_ids[members[i]] = ids[i];
    }
    return MUSTER_OK;
}
