/*
 * muster_process_set and its like: from a list of members to a scope.
 *
 * A creation is an exchange of the members (set_exchange.h), between two steps of the table
 * (process_sets.h). No lock is held meanwhile, so threads create sets side by side.
 */
#include <stdio.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/communicator/process_set.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/kept_sets.h"
#include "worker/session/scopes.h"
#include "worker/session/session_sets.h"
#include "worker/session/split_list.h"

/* Creating ------------------------------------------------------------------------------------- */

static muster_status begin(struct muster_session *session, const struct muster_set_list *list,
                           struct muster_set_creation *ret_creation)
{
    AUTO_LOCK(&session->sets.mutex);
    return muster_process_sets_begin(&session->sets.table, list, ret_creation);
}

static void abandon(struct muster_session *session, const struct muster_set_creation *creation)
{
    AUTO_LOCK(&session->sets.mutex);
    muster_process_sets_abandon(&session->sets.table, creation);
}

static muster_status end(struct muster_session *session, const struct muster_set_list *list,
                         const struct muster_set_creation *creation, uint32_t candidate,
                         struct muster_context *context, muster_scope *ret_scope)
{
    struct muster_context *old = NULL;
    AUTO_LOCK(&session->sets.mutex);
    TRY(muster_process_sets_end(&session->sets.table, list, creation, candidate, context, &old,
                                ret_scope));
    muster_session_retire_set_locked(session, old);
    return MUSTER_OK;
}

/* The generation is held. */
static muster_status create(struct muster_session *session, const struct muster_set_list *list,
                            muster_scope *ret_scope, uint32_t *ret_suspect)
{
    struct muster_set_creation creation;
    struct muster_context *context = NULL;
    uint32_t candidate = 0;
    TRY(begin(session, list, &creation));
    const struct muster_set_exchange exchange = {.name = list->name,
                                                 .creation = creation.creation,
                                                 .members = list->members,
                                                 .count = (uint32_t)list->count,
                                                 .rank = creation.rank};
    muster_status status =
        muster_communicator_create_set(session->generation.communicator, exchange,
                                       creation.free_candidates, &candidate, &context, ret_suspect);
    if (status != MUSTER_OK) {
        abandon(session, &creation);
        return muster_error_prefix(status, "process set %s of %zu members", list->name,
                                   list->count);
    }
    status = muster_session_note_set(session, context, list->members, (uint32_t)list->count,
                                     ret_suspect);
    if (status != MUSTER_OK) {
        abandon(session, &creation);
        muster_context_destroy(context);
        return muster_error_prefix(status, "process set %s of %zu members", list->name,
                                   list->count);
    }
    status = end(session, list, &creation, candidate, context, ret_scope);
    if (status != MUSTER_OK) {
        muster_context_destroy(context);
    }
    return status;
}

static struct muster_set_list list_of(const struct muster_session *session, const char *name,
                                      const uint32_t *members, size_t count)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    return (struct muster_set_list){.name = name,
                                    .members = members,
                                    .count = count,
                                    .own = communicator->rank,
                                    .size = communicator->topology.ranks};
}

/* When the generation has been released. */
static muster_status finish(struct muster_session *session, uint64_t generation,
                            muster_status status, uint32_t suspect)
{
    muster_status result = muster_session_handle_result(session, generation, status, suspect);
    if (result == MUSTER_OK) {
        muster_session_reap_sets(session);
    }
    return result;
}

muster_status muster_process_set(muster_session *session, const char *name, const uint32_t *members,
                                 size_t count, muster_scope *ret_scope)
{
    uint32_t suspect = UINT32_MAX;
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    const struct muster_set_list list = list_of(session, name, members, count);
    muster_status status = create(session, &list, ret_scope, &suspect);
    muster_session_release_generation(session);
    return finish(session, generation, status, suspect);
}

/* Finding and freeing -------------------------------------------------------------------------- */

muster_status muster_process_set_find(muster_session *session, const char *name,
                                      muster_scope *ret_scope)
{
    AUTO_LOCK(&session->sets.mutex);
    return muster_process_sets_find(&session->sets.table, name, ret_scope);
}

static muster_status free_held(struct muster_session *session, muster_scope scope)
{
    struct muster_context *context = NULL;
    AUTO_LOCK(&session->sets.mutex);
    TRY(muster_process_sets_free(&session->sets.table, scope, &context));
    muster_session_retire_set_locked(session, context);
    return MUSTER_OK;
}

/* The generation is held, so that none begins meanwhile, in which the others count on the set. */
muster_status muster_process_set_free(muster_session *session, muster_scope scope)
{
    TRY(muster_session_hold_generation(session));
    muster_status status = free_held(session, scope);
    muster_session_release_generation(session);
    if (status == MUSTER_OK) {
        muster_session_reap_sets(session);
    }
    return status;
}

/* Splitting ------------------------------------------------------------------------------------ */

struct split {
    muster_scope parent;
    struct muster_split_entry own;
    const char *name;
    uint32_t *members; /* owned [count] of the parent, global ranks */
    uint32_t count;
    struct muster_split_entry *entries; /* owned [count] */
    char prefix[MUSTER_SET_NAME_SIZE + 1];
};

/* All members of the parent tell each other colour and key. */
static muster_status gather(struct muster_session *session, struct split *split,
                            uint32_t *ret_suspect)
{
    struct muster_context *context = NULL;
    TRY(muster_session_context(session, split->parent, &context));
    TRY(muster_session_scope_members(session, split->parent, &split->members, &split->count));
    TRY(muster_session_scope_prefix(session, split->parent, split->prefix));
    split->entries = calloc(split->count, sizeof *split->entries);
    if (split->entries == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", split->count);
    }
    const struct muster_request request = {
        .collective = MUSTER_ALLGATHER,
        .in = &split->own,
        .out = split->entries,
        .count = sizeof split->own / sizeof(int32_t),
        .type = MUSTER_INT32,
        .deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms)};
    TRY(muster_context_run(context, &request, ret_suspect));
    return muster_split_check(split->entries, split->members, split->count);
}

static muster_status create_part(struct muster_session *session, const struct split *split,
                                 muster_scope *ret_scope, uint32_t *ret_suspect)
{
    char name[2 * MUSTER_SET_NAME_SIZE + 16];
    uint32_t count = 0;
    if (split->own.colour < 0) {
        *ret_scope = MUSTER_NO_SCOPE;
        return MUSTER_OK;
    }
    AUTO_FREE uint32_t *part = calloc(split->count, sizeof *part);
    if (part == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", split->count);
    }
    TRY(muster_split_part(split->entries, split->count, split->own.colour, part, &count));
    for (uint32_t i = 0; i < count; i++) {
        part[i] = split->members[part[i]];
    }
    (void)snprintf(name, sizeof name, "%s%.*s/%d", split->prefix, MUSTER_SET_NAME_SIZE, split->name,
                   (int)split->own.colour);
    const struct muster_set_list list = list_of(session, name, part, count);
    return create(session, &list, ret_scope, ret_suspect);
}

/* One generation is held from the beginning to the end: the ranks are those of one. */
static muster_status split_held(struct muster_session *session, struct split *split,
                                muster_scope *ret_scope, uint32_t *ret_suspect)
{
    TRY(gather(session, split, ret_suspect));
    return create_part(session, split, ret_scope, ret_suspect);
}

muster_status muster_split(muster_session *session, muster_scope parent, int colour, int key,
                           const char *name, muster_scope *ret_scope)
{
    uint32_t suspect = UINT32_MAX;
    if (name == NULL || name[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "split: the sets have no name");
    }
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    struct split split = {.parent = parent, .name = name};
    split.own = (struct muster_split_entry){
        .colour = colour, .key = key, .name_checksum = muster_split_name_checksum(name)};
    muster_status status = split_held(session, &split, ret_scope, &suspect);
    if (status != MUSTER_OK) {
        status = muster_error_prefix(status, "split %.*s", MUSTER_SET_NAME_SIZE, name);
    }
    free(split.members);
    free(split.entries);
    muster_session_release_generation(session);
    return finish(session, generation, status, suspect);
}
