/*
 * muster_open_with(): a session whose members come from the program's exchange function, without a
 * service.
 *
 * Each member makes its links first, because it tells the others their addresses, and takes part in
 * the exchange even if that has failed, so that the others learn why. All members have the same
 * introductions then, so that all come to the same verdict about them. The first message over links
 * is a barrier: it shows which members are missing.
 */
#include "worker/session/open_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/communicator/introduction.h"
#include "worker/session/generation.h"
#include "worker/session/generation_guard.h"
#include "worker/session/kept_sets.h"
#include "worker/session/link_figures.h"
#include "worker/session/slot.h"
#include "worker/trace/timeline.h"

enum {
    GENERATION = 1,      /* there is no other */
    LINKED_TO_ONE = 128, /* up to this size all members link to rank 0 in the first barrier, which
                            can name all that are missing */
};

/* All that opening needs. */
struct opening {
    struct muster_session *session;
    const struct muster_exchange_call *exchange;
    struct muster_introduction own;
    struct muster_introduction *all; /* owned [size], after the exchange */
    uint32_t *callers;               /* owned [size], after the exchange */
    struct muster_topology topology; /* after the exchange */
};

static void finish_opening(struct opening *opening)
{
    free(opening->all);
    free(opening->callers);
    muster_topology_finish(&opening->topology);
}

/* The exchange --------------------------------------------------------------------------------- */

static muster_status make_fabric(struct muster_session *session)
{
    const struct muster_fabric_options options = {.member = session->member,
                                                  .link_token = "",
                                                  .transports = session->settings.transports,
                                                  .timeline = session->timeline,
                                                  .loss_revokes = true};
    return muster_fabric_create(&options, &session->fabric);
}

/* status: of what came before; if it has failed, the others are told why. */
static void introduce(struct opening *opening, muster_status status)
{
    const struct muster_session *session = opening->session;
    struct muster_introduction *own = &opening->own;
    *own = (struct muster_introduction){
        .rank = opening->exchange->rank,
        .size = opening->exchange->size,
        .order = session->settings.order,
        .reproducible = session->settings.reproducible,
    };
    muster_introduction_set_algorithm(own, session->settings.algorithm);
    muster_random_hex((sizeof own->token - 1) / 2, own->token);
    memcpy(own->peer.member, session->member, sizeof own->peer.member);
    (void)snprintf(own->rack, sizeof own->rack, "%s",
                   session->settings.rack != NULL ? session->settings.rack : "");
    (void)snprintf(own->peer.host, sizeof own->peer.host, "%s",
                   session->settings.host != NULL ? session->settings.host : "unknown");
    (void)snprintf(own->library, sizeof own->library, "%s", muster_version());
    if (status != MUSTER_OK) {
        (void)snprintf(own->failure, sizeof own->failure, "%s", muster_last_error());
        return;
    }
    uint32_t count = muster_fabric_address_count(session->fabric);
    for (uint32_t i = 0; i < count && i < MUSTER_ADDRESSES_MAX; i++) {
        (void)snprintf(own->peer.addresses[i], sizeof own->peer.addresses[0], "%s",
                       muster_fabric_address(session->fabric, i));
        own->peer.address_count = i + 1;
    }
}

static muster_status exchange(struct opening *opening)
{
    const struct muster_exchange_call *with = opening->exchange;
    unsigned char mine[MUSTER_INTRODUCTION_SIZE];
    AUTO_FREE unsigned char *all = calloc(with->size, sizeof mine);
    opening->all = calloc(with->size, sizeof *opening->all);
    opening->callers = calloc(with->size, sizeof *opening->callers);
    if (all == NULL || opening->all == NULL || opening->callers == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", with->size);
    }
    muster_introduction_encode(&opening->own, mine);
    int failed = with->function(mine, all, sizeof mine, with->user_data);
    if (failed != 0) {
        return muster_error_set(MUSTER_RETRY, "the exchange function of rank %u of %u returned %d",
                                with->rank, with->size, failed);
    }
    for (uint32_t rank = 0; rank < with->size; rank++) {
        TRY(muster_introduction_decode(all + rank * sizeof mine, rank, &opening->all[rank]));
    }
    return MUSTER_OK;
}

/* Also where this member has failed: the others wait for it in the exchange. */
static muster_status meet(struct opening *opening, muster_status status)
{
    char text[MUSTER_ERROR_MAX];
    introduce(opening, status);
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    muster_status met = exchange(opening);
    if (status != MUSTER_OK) {
        return muster_error_set(status, "%s", text);
    }
    TRY(met);
    TRY(muster_introductions_check(opening->all, opening->exchange->size, &opening->own));
    return muster_introductions_place(opening->all, opening->exchange->size, opening->callers,
                                      &opening->topology);
}

/* The generation ------------------------------------------------------------------------------- */

/* Of the names of hosts and racks, and of the number of members on each host. */
static void digest(const struct opening *opening, uint32_t *ret_hosts, uint32_t *ret_shape)
{
    const struct muster_topology *topology = &opening->topology;
    uLong hosts = crc32(0, NULL, 0);
    uLong shape = hosts;
    for (uint32_t host = 0; host < topology->hosts; host++) {
        const struct muster_introduction *first =
            &opening->all[opening->callers[topology->host_first[host]]];
        hosts = crc32(hosts, (const Bytef *)first->peer.host, (uInt)strlen(first->peer.host) + 1);
        hosts = crc32(hosts, (const Bytef *)first->rack, (uInt)strlen(first->rack) + 1);
        shape = crc32(shape, (const Bytef *)&topology->host_sizes[host], sizeof(uint32_t));
    }
    *ret_hosts = (uint32_t)hosts;
    *ret_shape = (uint32_t)shape;
}

static muster_status create_communicator(struct opening *opening,
                                         struct muster_communicator **ret_communicator)
{
    struct muster_session *session = opening->session;
    uint32_t size = opening->exchange->size;
    AUTO_FREE struct muster_peer *peers = calloc(size, sizeof *peers);
    AUTO_FREE uint32_t *orders = calloc(size, sizeof *orders);
    if (peers == NULL || orders == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", size);
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        peers[rank] = opening->all[rank].peer;
        orders[rank] = opening->all[rank].order;
        if (strcmp(peers[rank].host, session->settings.host) != 0) {
            muster_peer_remove_local_addresses(&peers[rank]);
        }
    }
    struct muster_communicator_options options = {
        .fabric = session->fabric,
        .generation = GENERATION,
        .topology = &opening->topology,
        .callers = opening->callers,
        .peers = peers,
        .rank = opening->exchange->rank,
        .contribution_numbers = orders,
        .algorithm = session->settings.algorithm,
        .timeout_ms = session->settings.join_timeout_ms,
        .keeps_watch = true,
    };
    digest(opening, &options.hosts_digest, &options.shape_digest);
    muster_fabric_set_token(session->fabric, opening->all[0].token);
    muster_session_begin_sets(session);
    return muster_communicator_create(&options, ret_communicator);
}

/* All but rank 0 get the state in the first sync. */
static muster_status fill_generation(struct opening *opening)
{
    struct muster_generation *generation = &opening->session->generation;
    uint32_t size = opening->exchange->size;
    struct muster_communicator *communicator = NULL;
    generation->stale_ranks = calloc(size, sizeof *generation->stale_ranks);
    if (generation->stale_ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u members", size);
    }
    for (uint32_t rank = 1; rank < size; rank++) {
        generation->stale_ranks[generation->stale_count++] = rank;
    }
    TRY(create_communicator(opening, &communicator));
    AUTO_LOCK(&opening->session->mutex);
    generation->number = GENERATION;
    generation->communicator = communicator;
    return MUSTER_OK;
}

static void publish(const struct opening *opening)
{
    struct muster_session *session = opening->session;
    muster_session_store_ranks(session, session->generation.communicator);
    muster_session_set_slot_without_service(session);
    AUTO_LOCK(&session->mutex);
    muster_session_set_stage_locked(session, MUSTER_STAGE_PREPARING);
    atomic_store(&session->last_status, (int)MUSTER_OK);
    atomic_store(&session->generation_number, GENERATION);
    muster_log_set_identity(opening->exchange->rank, GENERATION);
    muster_log(MUSTER_LOG_INFO, "size=%u hosts=%u opened without a service",
               opening->exchange->size, opening->topology.hosts);
}

/* Rank 0, which knows who is missing, gives up first and tells the others. */
static muster_status wait_for_all(struct muster_session *session)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    int64_t most_ms = session->settings.join_timeout_ms;
    int64_t wait_ms = communicator->rank == 0 ? most_ms * 9 / 10 : most_ms;
    const struct muster_request request = {
        .collective = MUSTER_BARRIER,
        .algorithm = communicator->topology.ranks <= LINKED_TO_ONE ? "all_to_one" : "dissemination",
        .deadline_ns = muster_clock_after_ms((uint32_t)wait_ms),
    };
    if (communicator->topology.ranks == 1) {
        return MUSTER_OK;
    }
    return muster_context_run(communicator->contexts[MUSTER_GLOBAL], &request, NULL);
}

static muster_status prepare(struct muster_session *session)
{
    struct muster_communicator *communicator = session->generation.communicator;
    uint32_t suspect = UINT32_MAX;
    TRY(wait_for_all(session));
    TRY(muster_session_agree_figures(session, &suspect));
    TRY(muster_communicator_share_memory(communicator, &suspect));
    muster_communicator_apply_figures(communicator);
    return MUSTER_OK;
}

/* A member that was missing or died is the reason to try again, with all. */
static muster_status begin(struct opening *opening)
{
    struct muster_session *session = opening->session;
    TRY(fill_generation(opening));
    publish(opening);
    muster_status status = prepare(session);
    if (status == MUSTER_REJOIN) {
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        muster_fabric_revoke_for_all(session->fabric, GENERATION, text);
        return muster_error_set(MUSTER_RETRY, "%s", text);
    }
    TRY(status);
    AUTO_LOCK(&session->mutex);
    muster_session_set_stage_locked(session, MUSTER_STAGE_RUNNING);
    return MUSTER_OK;
}

muster_status muster_session_start_with(struct muster_session *session,
                                        const struct muster_exchange_call *exchange,
                                        muster_status status)
{
    struct opening opening = {.session = session, .exchange = exchange};
    AUTO_LOCK(&session->rejoin_mutex);
    session->timeline = muster_timeline_create(
        &(struct muster_timeline_options){.prefix = session->settings.timeline,
                                          .startable = true,
                                          .print_algorithm = muster_algorithm_print});
    status = meet(&opening, status == MUSTER_OK ? make_fabric(session) : status);
    status = status == MUSTER_OK ? begin(&opening) : status;
    finish_opening(&opening);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "open_with");
}
