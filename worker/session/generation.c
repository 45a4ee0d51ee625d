/*
 * A generation: from the service's answer to Join to contexts that collectives can use, and its
 * end.
 *
 * The order matters. First the links, which the contexts need. Then the number is published, so
 * that the lease thread notices a death from here on. Then the members agree on link figures, which
 * is their first exchange. Collectives may begin last.
 */
#include "worker/session/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/communicator/scope_group.h"
#include "worker/session/failed_generations.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/link_figures.h"

enum { HOLD_LEAST_MS = 50 };

/* The answer to Join --------------------------------------------------------------------------- */

/* Consecutive hosts that name the same rack form one rack. sizes: room for the hosts' and then
 * the racks'. */
static muster_status make_topology(const struct muster_join_response *response, uint32_t *sizes,
                                   struct muster_topology *ret_topology)
{
    const struct muster_wire_host *hosts = response->hosts;
    for (uint32_t i = 0; i < response->host_count; i++) {
        sizes[i] = hosts[i].size;
    }
    struct muster_topology topology = {0};
    TRY(muster_topology_init(response->host_count, sizes, &topology));
    uint32_t racks = 0;
    for (uint32_t i = 0; i < response->host_count; i++) {
        if (i == 0 || strcmp(hosts[i].rack, hosts[i - 1].rack) != 0) {
            sizes[racks++] = 0;
        }
        sizes[racks - 1]++;
    }
    muster_status status = muster_topology_set_racks(&topology, racks, sizes);
    if (status != MUSTER_OK) {
        muster_topology_finish(&topology);
        return status;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

static muster_status read_topology(struct muster_generation *generation,
                                   const struct muster_join_response *response)
{
    uint32_t *sizes = calloc(response->host_count + (size_t)1, sizeof *sizes);
    if (sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = make_topology(response, sizes, &generation->topology);
    free(sizes);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    if (generation->topology.ranks != response->size || response->rank >= response->size ||
        response->state_source >= response->size) {
        muster_topology_finish(&generation->topology);
        return muster_error_set(MUSTER_FATAL,
                                "the answer to Join: rank %u, size %u and source %u on hosts "
                                "that hold %u do not fit",
                                response->rank, response->size, response->state_source,
                                generation->topology.ranks);
    }
    return MUSTER_OK;
}

static muster_status read_contribution_numbers(struct muster_generation *generation,
                                               const struct muster_join_response *response)
{
    generation->contribution_numbers =
        calloc(response->size, sizeof *generation->contribution_numbers);
    if (generation->contribution_numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    for (uint32_t rank = 0; rank < response->size; rank++) {
        generation->contribution_numbers[rank] = response->peers[rank].order;
    }
    return MUSTER_OK;
}

void muster_session_digest_hosts(const struct muster_join_response *response, uint32_t *ret_hosts,
                                 uint32_t *ret_shape)
{
    uLong hosts = crc32(0, NULL, 0);
    uLong shape = hosts;
    for (uint32_t i = 0; i < response->host_count; i++) {
        const struct muster_wire_host *host = &response->hosts[i];
        hosts = crc32(hosts, (const Bytef *)host->name, (uInt)strlen(host->name) + 1);
        hosts = crc32(hosts, (const Bytef *)host->rack, (uInt)strlen(host->rack) + 1);
        shape = crc32(shape, (const Bytef *)&host->size, sizeof host->size);
    }
    *ret_hosts = (uint32_t)hosts;
    *ret_shape = (uint32_t)shape;
}

/* Links and contexts --------------------------------------------------------------------------- */

/* Members whose hosts have different names do not use shared memory, even if they could: addresses
 * that work within a host only are left out for them. */
static void copy_addresses(const struct muster_wire_peer *wire, bool same_host,
                           struct muster_peer *peer)
{
    peer->address_count = 0;
    for (uint32_t i = 0; i < wire->address_count; i++) {
        if (same_host || !muster_fabric_address_is_local(wire->addresses[i])) {
            (void)snprintf(peer->addresses[peer->address_count++], sizeof peer->addresses[0], "%s",
                           wire->addresses[i]);
        }
    }
}

static struct muster_peer *make_peers(const struct muster_session *session,
                                      const struct muster_join_response *response)
{
    struct muster_peer *peers = calloc(response->size, sizeof *peers);
    if (peers == NULL) {
        return NULL;
    }
    uint32_t rank = 0;
    for (uint32_t host = 0; host < response->host_count; host++) {
        for (uint32_t i = 0; i < response->hosts[host].size; i++, rank++) {
            const struct muster_wire_peer *wire = &response->peers[rank];
            struct muster_peer *peer = &peers[rank];
            memcpy(peer->member, wire->member, sizeof peer->member);
            (void)snprintf(peer->host, sizeof peer->host, "%s", response->hosts[host].name);
            copy_addresses(wire, strcmp(peer->host, session->settings.host) == 0, peer);
        }
    }
    return peers;
}

static muster_status open_links(struct muster_session *session,
                                const struct muster_join_response *response)
{
    struct muster_peer *peers = make_peers(session, response);
    if (peers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_fabric_set_token(session->fabric, response->link_token);
    muster_status status = muster_fabric_begin_generation(session->fabric, response->generation,
                                                          peers, response->size);
    free(peers);
    return status;
}

static muster_status create_context(struct muster_session *session, muster_scope scope)
{
    static const char *const names[MUSTER_SCOPE_COUNT] = {"global", "local", "cross"};
    struct muster_generation *generation = &session->generation;
    struct muster_scope_group group;
    TRY(muster_scope_group_init(&generation->topology, generation->contribution_numbers,
                                generation->rank, scope, &group));
    struct muster_context_options options = {
        .fabric = session->fabric,
        .generation = generation->number,
        .number = (uint32_t)scope,
        .name = names[scope],
        .topology = &group.topology,
        .ranks = group.ranks,
        .rank = group.rank,
        .model = &muster_cost_model_default,
        .algorithm = session->settings.algorithm,
        .member_orders = group.contribution_numbers,
    };
    muster_status status = muster_context_create(&options, &generation->contexts[scope]);
    atomic_store(&session->ranks[scope], group.rank);
    atomic_store(&session->sizes[scope], group.topology.ranks);
    muster_scope_group_finish(&group);
    return status;
}

/* Beginning and end ---------------------------------------------------------------------------- */

/* Fills in the generation and opens its links. Takes the lists that it owns out of the response. */
static muster_status fill(struct muster_session *session, struct muster_join_response *response)
{
    struct muster_generation *generation = &session->generation;
    TRY(read_topology(generation, response));
    if (response->peers == NULL ||
        strcmp(response->peers[response->rank].member, session->member) != 0) {
        return muster_error_set(MUSTER_FATAL, "the answer to Join: rank %u is another member",
                                response->rank);
    }
    muster_mutex_lock(&session->mutex);
    generation->number = response->generation;
    muster_mutex_unlock(&session->mutex);
    generation->rank = response->rank;
    muster_session_digest_hosts(response, &generation->hosts_digest, &generation->shape_digest);
    generation->state_version = response->state_version;
    generation->state_source = response->state_source;
    generation->stale_count = response->stale_count;
    generation->stale_ranks = TAKE(response->stale);
    generation->next_context = MUSTER_CONTEXT_FIRST_FREE;
    TRY(read_contribution_numbers(generation, response));
    TRY(open_links(session, response));
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        TRY(create_context(session, (muster_scope)scope));
    }
    return MUSTER_OK;
}

/* From now on the lease thread watches this generation, and a death in it is noticed. */
static void publish(struct muster_session *session, const struct muster_join_response *response)
{
    AUTO_LOCK(&session->mutex);
    session->stage = MUSTER_STAGE_PREPARING;
    session->rejoin_due = false;
    session->hold_ms = response->hold_ms < HOLD_LEAST_MS ? HOLD_LEAST_MS : response->hold_ms;
    session->hold_ms =
        session->hold_ms > MUSTER_WAIT_MAX_MS ? MUSTER_WAIT_MAX_MS : session->hold_ms;
    session->lease_ms = response->lease_ms;
    atomic_store(&session->newcomers_pending, false);
    atomic_store(&session->leave_requested, false);
    atomic_store(&session->last_status, (int)MUSTER_OK);
    atomic_store(&session->generation_number, response->generation);
    muster_log_set_identity(response->rank, response->generation);
    muster_log(MUSTER_LOG_INFO, "size=%u hosts=%u joined job %s", response->size,
               response->host_count, session->settings.job);
    (void)pthread_cond_broadcast(&session->changed);
}

/* Members of one host set up shared memory, in the scopes that may lie within one host. */
static muster_status share_memory(struct muster_session *session, uint32_t *ret_suspect)
{
    static const muster_scope scopes[] = {MUSTER_GLOBAL, MUSTER_LOCAL};
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        int64_t deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms);
        TRY(muster_context_share_memory(session->generation.contexts[scopes[i]], deadline_ns,
                                        ret_suspect));
    }
    return MUSTER_OK;
}

/* The exchanges of the members before the first collective of the user. */
static muster_status prepare(struct muster_session *session)
{
    uint32_t suspect = UINT32_MAX;
    muster_session_count_reachable(session);
    muster_status status = muster_session_agree_figures(session, &suspect);
    if (status == MUSTER_OK && session->generation.topology.ranks > 1) {
        status = share_memory(session, &suspect);
    }
    if (status == MUSTER_OK) {
        muster_session_apply_figures(session);
    }
    if (status != MUSTER_REJOIN) {
        return status;
    }
    /* A member died during the preparation. The generation is revoked, and collectives may begin:
     * the first one returns MUSTER_REJOIN. */
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    status = muster_session_handle_result(session, session->generation.number, status, suspect);
    (void)status; /* the first collective returns it */
    AUTO_LOCK(&session->mutex);
    muster_session_revoke_locked(session, text);
    return MUSTER_OK;
}

/* From now on collectives may begin; if the preparation failed, there is no generation. */
static void set_prepared(struct muster_session *session, muster_status status)
{
    AUTO_LOCK(&session->mutex);
    session->stage = status == MUSTER_OK ? MUSTER_STAGE_RUNNING : MUSTER_STAGE_JOINING;
    (void)pthread_cond_broadcast(&session->changed);
}

muster_status muster_session_begin_generation(struct muster_session *session,
                                              struct muster_join_response *response)
{
    muster_status status = fill(session, response);
    if (status == MUSTER_OK) {
        publish(session, response);
        status = prepare(session);
        set_prepared(session, status);
    }
    if (status != MUSTER_OK) {
        muster_session_end_generation(session);
    }
    return status;
}

void muster_session_end_generation(struct muster_session *session)
{
    struct muster_generation *generation = &session->generation;
    struct muster_context *contexts[MUSTER_SCOPE_COUNT];
    muster_mutex_lock(&session->mutex);
    while (session->active_calls > 0) {
        (void)pthread_cond_wait(&session->changed, &session->mutex);
    }
    memcpy(contexts, generation->contexts, sizeof contexts);
    memset(generation->contexts, 0, sizeof contexts);
    muster_mutex_unlock(&session->mutex);
    muster_session_collect_tuned(session, contexts[MUSTER_GLOBAL]);
    for (int i = 0; i < MUSTER_SCOPE_COUNT; i++) {
        muster_context_destroy(contexts[i]);
    }
    muster_topology_finish(&generation->topology);
    free(generation->contribution_numbers);
    generation->contribution_numbers = NULL;
    free(generation->stale_ranks);
    generation->stale_ranks = NULL;
    generation->stale_count = 0;
}
