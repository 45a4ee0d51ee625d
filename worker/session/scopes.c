/* From scopes to contexts, ranks, sizes and members. */
#include "worker/session/scopes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/thread.h"
#include "worker/communicator/scope_group.h"

static bool is_set(muster_scope scope)
{
    return (uint32_t)scope >= MUSTER_SCOPE_COUNT;
}

muster_status muster_session_context(struct muster_session *session, muster_scope scope,
                                     struct muster_context **ret_context)
{
    struct muster_process_set *set = NULL;
    if (!is_set(scope)) {
        *ret_context = session->generation.communicator->contexts[scope];
        return MUSTER_OK;
    }
    AUTO_LOCK(&session->sets.mutex);
    TRY(muster_process_sets_get(&session->sets.table, scope, &set));
    if (set->context == NULL) { /* only where the beginning of the generation has failed */
        return muster_error_set(MUSTER_REJOIN, "process set %s: the membership is changing",
                                set->name);
    }
    *ret_context = set->context;
    return MUSTER_OK;
}

/* The rank and size of a set as they are in the table; false: there is no such set. */
static bool read_set(const muster_session *session, muster_scope scope, uint32_t *ret_rank,
                     uint32_t *ret_size)
{
    /* The mutex is the one part of it that a query changes. */
    struct muster_session_sets *sets = (struct muster_session_sets *)&session->sets;
    struct muster_process_set *set = NULL;
    AUTO_LOCK(&sets->mutex);
    if (muster_process_sets_get(&sets->table, scope, &set) != MUSTER_OK) {
        return false;
    }
    *ret_rank = set->rank;
    *ret_size = set->count;
    return true;
}

uint32_t muster_rank(const muster_session *session, muster_scope scope)
{
    uint32_t rank = UINT32_MAX;
    uint32_t size = 0;
    if (!is_set(scope)) {
        return atomic_load(&session->ranks[scope]);
    }
    return read_set(session, scope, &rank, &size) ? rank : UINT32_MAX;
}

uint32_t muster_size(const muster_session *session, muster_scope scope)
{
    uint32_t rank = UINT32_MAX;
    uint32_t size = 0;
    if (!is_set(scope)) {
        return atomic_load(&session->sizes[scope]);
    }
    return read_set(session, scope, &rank, &size) ? size : 0;
}

static muster_status members_of_set(struct muster_session *session, muster_scope scope,
                                    uint32_t **ret_members, uint32_t *ret_count)
{
    struct muster_process_set *set = NULL;
    AUTO_LOCK(&session->sets.mutex);
    TRY(muster_process_sets_get(&session->sets.table, scope, &set));
    uint32_t *members = calloc(set->count, sizeof *members);
    if (members == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the members of process set %s",
                                set->name);
    }
    memcpy(members, set->members, set->count * sizeof *members);
    *ret_members = members;
    *ret_count = set->count;
    return MUSTER_OK;
}

muster_status muster_session_scope_members(struct muster_session *session, muster_scope scope,
                                           uint32_t **ret_members, uint32_t *ret_count)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    struct muster_scope_group group;
    if (is_set(scope)) {
        return members_of_set(session, scope, ret_members, ret_count);
    }
    TRY(muster_scope_group_init(&communicator->topology, communicator->contribution_numbers,
                                communicator->topology_ranks[communicator->rank], scope, &group));
    for (uint32_t i = 0; i < group.topology.ranks; i++) { /* the caller's order, as contexts have */
        group.ranks[i] = scope == MUSTER_GLOBAL ? i : communicator->callers[group.ranks[i]];
    }
    *ret_members = TAKE(group.ranks);
    *ret_count = group.topology.ranks;
    muster_scope_group_finish(&group);
    return MUSTER_OK;
}

muster_status muster_session_scope_prefix(struct muster_session *session, muster_scope scope,
                                          char ret_prefix[MUSTER_SET_NAME_SIZE + 1])
{
    static const char *const names[MUSTER_SCOPE_COUNT] = {"", "local/", "cross/"};
    struct muster_process_set *set = NULL;
    if (!is_set(scope)) {
        (void)snprintf(ret_prefix, MUSTER_SET_NAME_SIZE + 1, "%s", names[scope]);
        return MUSTER_OK;
    }
    AUTO_LOCK(&session->sets.mutex);
    TRY(muster_process_sets_get(&session->sets.table, scope, &set));
    (void)snprintf(ret_prefix, MUSTER_SET_NAME_SIZE + 1, "%s/", set->name);
    return MUSTER_OK;
}
