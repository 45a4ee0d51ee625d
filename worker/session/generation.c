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
#include "worker/session/failed_generations.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/kept_sets.h"
#include "worker/session/link_figures.h"
#include "worker/session/operations.h"
#include "worker/session/session_sets.h"

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

/* On failure there is no topology. */
static muster_status read_topology(const struct muster_session *session,
                                   const struct muster_join_response *response,
                                   struct muster_topology *ret_topology)
{
    AUTO_FREE uint32_t *sizes = calloc(response->host_count + (size_t)1, sizeof *sizes);
    struct muster_topology topology = {0};
    if (sizes == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (make_topology(response, sizes, &topology) != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "the answer to Join");
    }
    uint32_t ranks = topology.ranks;
    if (ranks != response->size || response->rank >= response->size ||
        response->state_source >= response->size) {
        muster_topology_finish(&topology);
        return muster_error_set(MUSTER_FATAL,
                                "the answer to Join: rank %u, size %u and source %u on hosts "
                                "that hold %u do not fit",
                                response->rank, response->size, response->state_source, ranks);
    }
    if (response->peers == NULL ||
        strcmp(response->peers[response->rank].member, session->member) != 0) {
        muster_topology_finish(&topology);
        return muster_error_set(MUSTER_FATAL, "the answer to Join: rank %u is another member",
                                response->rank);
    }
    *ret_topology = topology;
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

/* The communicator ----------------------------------------------------------------------------- */

/* Members whose hosts have different names do not use shared memory, even if they could: addresses
 * that work within a host only are left out for them. */
static void read_peer(const struct muster_wire_peer *wire, const char *host, bool same_host,
                      struct muster_peer *peer)
{
    memcpy(peer->member, wire->member, sizeof peer->member);
    (void)snprintf(peer->host, sizeof peer->host, "%s", host);
    for (uint32_t i = 0; i < wire->address_count; i++) {
        (void)snprintf(peer->addresses[i], sizeof peer->addresses[0], "%s", wire->addresses[i]);
    }
    peer->address_count = wire->address_count;
    if (!same_host) {
        muster_peer_remove_local_addresses(peer);
    }
}

static void read_peers(const struct muster_session *session,
                       const struct muster_join_response *response, struct muster_peer *peers,
                       uint32_t *contribution_numbers)
{
    uint32_t rank = 0;
    for (uint32_t host = 0; host < response->host_count; host++) {
        const char *name = response->hosts[host].name;
        bool same_host = strcmp(name, session->settings.host) == 0;
        for (uint32_t i = 0; i < response->hosts[host].size; i++, rank++) {
            read_peer(&response->peers[rank], name, same_host, &peers[rank]);
            contribution_numbers[rank] = response->peers[rank].order;
        }
    }
}

void muster_session_store_ranks(struct muster_session *session,
                                const struct muster_communicator *communicator)
{
    for (int scope = 0; scope < MUSTER_SCOPE_COUNT; scope++) {
        const struct muster_context *context = communicator->contexts[scope];
        atomic_store(&session->ranks[scope], muster_context_rank(context));
        atomic_store(&session->sizes[scope], muster_context_size(context));
    }
}

static muster_status create_communicator(struct muster_session *session,
                                         const struct muster_join_response *response,
                                         const struct muster_topology *topology,
                                         struct muster_communicator **ret_communicator)
{
    AUTO_FREE struct muster_peer *peers = calloc(response->size, sizeof *peers);
    AUTO_FREE uint32_t *contribution_numbers = calloc(response->size, sizeof *contribution_numbers);
    if (peers == NULL || contribution_numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    read_peers(session, response, peers, contribution_numbers);
    struct muster_communicator_options options = {
        .fabric = session->fabric,
        .generation = response->generation,
        .topology = topology,
        .peers = peers,
        .rank = response->rank,
        .contribution_numbers = contribution_numbers,
        .algorithm = session->settings.algorithm,
        .timeout_ms = session->settings.call_timeout_ms,
    };
    muster_session_digest_hosts(response, &options.hosts_digest, &options.shape_digest);
    muster_fabric_set_token(session->fabric, response->link_token);
    TRY(muster_session_move_sets(session, peers, response->size, response->rank));
    TRY(muster_communicator_create(&options, ret_communicator));
    muster_session_store_ranks(session, *ret_communicator);
    return MUSTER_OK;
}

/* Beginning and end ---------------------------------------------------------------------------- */

/* Fills in the generation and opens its links. Takes the lists that it owns out of the response. */
static muster_status fill(struct muster_session *session, struct muster_join_response *response)
{
    struct muster_generation *generation = &session->generation;
    struct muster_communicator *communicator = NULL;
    struct muster_topology topology;
    TRY(read_topology(session, response, &topology));
    muster_mutex_lock(&session->mutex);
    generation->number = response->generation;
    muster_mutex_unlock(&session->mutex);
    generation->state_version = response->state_version;
    generation->state_source = response->state_source;
    generation->stale_count = response->stale_count;
    generation->stale_ranks = TAKE(response->stale);
    muster_status status = create_communicator(session, response, &topology, &communicator);
    muster_topology_finish(&topology);
    TRY(status);
    AUTO_LOCK(&session->mutex);
    generation->communicator = communicator;
    return MUSTER_OK;
}

/* One line, in the first generation with several hosts, from one member of each host. */
static void mention_unused_device(struct muster_session *session,
                                  const struct muster_join_response *response)
{
    char text[512];
    if (session->mentioned_devices || response->host_count == 1 || session->settings.encrypted) {
        return;
    }
    session->mentioned_devices = true;
    if (atomic_load(&session->ranks[MUSTER_LOCAL]) == 0 &&
        muster_transports_find_unused(session->settings.transports, text, sizeof text)) {
        muster_log(MUSTER_LOG_WARN, "%s", text);
    }
}

/* From now on the lease thread watches this generation, and a death in it is noticed. */
static void publish(struct muster_session *session, const struct muster_join_response *response)
{
    AUTO_LOCK(&session->mutex);
    muster_session_set_stage_locked(session, MUSTER_STAGE_PREPARING);
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

/* The exchanges of the members before the first collective of the user. */
static muster_status prepare(struct muster_session *session)
{
    struct muster_communicator *communicator = session->generation.communicator;
    uint32_t suspect = UINT32_MAX;
    muster_session_count_reachable(session);
    muster_status status = muster_session_agree_figures(session, &suspect);
    if (status == MUSTER_OK) {
        status = muster_communicator_share_memory(communicator, &suspect);
    }
    if (status == MUSTER_OK) {
        muster_communicator_apply_figures(communicator);
        status = muster_session_keep_sets(session, &suspect);
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
    muster_session_set_stage_locked(session, status == MUSTER_OK ? MUSTER_STAGE_RUNNING
                                                                 : MUSTER_STAGE_JOINING);
    (void)pthread_cond_broadcast(&session->changed);
}

muster_status muster_session_begin_generation(struct muster_session *session,
                                              struct muster_join_response *response)
{
    muster_status status = fill(session, response);
    if (status == MUSTER_OK) {
        publish(session, response);
        mention_unused_device(session, response);
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
    muster_mutex_lock(&session->mutex);
    while (muster_session_has_calls(session)) {
        (void)pthread_cond_wait(&session->changed, &session->mutex);
    }
    struct muster_communicator *communicator = TAKE(generation->communicator);
    muster_mutex_unlock(&session->mutex);
    muster_session_end_operations(session);
    muster_session_end_sets(session);
    if (communicator != NULL) {
        muster_session_collect_tuned(session, communicator);
    }
    muster_communicator_destroy(communicator);
    free(TAKE(generation->stale_ranks));
    generation->stale_count = 0;
}
