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

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/engine_list.h"
#include "worker/session/failed_generations.h"
#include "worker/session/failure_handling.h"
#include "worker/session/formed_answer.h"
#include "worker/session/generation_guard.h"
#include "worker/session/kept_sets.h"
#include "worker/session/link_figures.h"
#include "worker/session/operations.h"
#include "worker/session/peer_finder.h"
#include "worker/session/session_sets.h"

enum { HOLD_LEAST_MS = 50 };

/* The communicator ----------------------------------------------------------------------------- */

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
                                         const struct muster_formed_answer *answer,
                                         struct muster_communicator **ret_communicator)
{
    struct muster_session_finder *finder = NULL;
    if (answer->peer_ranks != NULL) {
        TRY(muster_peer_finder_create(session, response->generation, response->rank,
                                      &answer->topology, &finder));
        session->generation.finder = finder;
    }
    const struct muster_communicator_options options = {
        .fabric = session->fabric,
        .generation = response->generation,
        .topology = &answer->topology,
        .peers = answer->peers,
        .peer_ranks = answer->peer_ranks,
        .peer_count = answer->peer_count,
        .host = session->settings.host,
        .finder = finder != NULL ? muster_peer_finder_slots(finder) : NULL,
        .rank = response->rank,
        .contribution_numbers = answer->orders,
        .hosts_digest = answer->hosts_digest,
        .shape_digest = answer->shape_digest,
        .algorithm = session->settings.algorithm,
        .timeout_ms = session->settings.call_timeout_ms,
    };
    muster_fabric_set_token(session->fabric, response->link_token);
    muster_session_begin_sets(session);
    TRY(muster_communicator_create(&options, ret_communicator));
    muster_session_store_ranks(session, *ret_communicator);
    return MUSTER_OK;
}

/* Beginning and end ---------------------------------------------------------------------------- */

/* Fills in the generation and opens its links. */
static muster_status fill(struct muster_session *session,
                          const struct muster_join_response *response)
{
    struct muster_generation *generation = &session->generation;
    struct muster_communicator *communicator = NULL;
    struct muster_formed_answer answer;
    const struct muster_answer_reader reader = {.member = session->member,
                                                .host = session->settings.host,
                                                .last_generation = generation->number};
    TRY(muster_formed_answer_read(response, &reader, &answer));
    muster_mutex_lock(&session->mutex);
    generation->number = response->generation;
    muster_mutex_unlock(&session->mutex);
    generation->state_version = response->state_version;
    generation->state_source = response->state_source;
    generation->stale_count = answer.stale_count;
    generation->stale_ranks = TAKE(answer.stale);
    muster_status status = create_communicator(session, response, &answer, &communicator);
    muster_formed_answer_finish(&answer);
    TRY(status);
    AUTO_LOCK(&session->mutex);
    generation->communicator = communicator;
    return MUSTER_OK;
}

static uint32_t hosts_of(const struct muster_session *session)
{
    return session->generation.communicator->topology.hosts;
}

/* One line, in the first generation with several hosts, from one member of each host. */
static void mention_unused_device(struct muster_session *session)
{
    char text[512];
    if (session->mentioned_devices || hosts_of(session) == 1 || session->settings.encrypted) {
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
    muster_log(MUSTER_LOG_INFO, "size=%u hosts=%u joined job %s", response->size, hosts_of(session),
               session->settings.job);
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
                                              const struct muster_join_response *response)
{
    muster_status status = fill(session, response);
    if (status == MUSTER_OK) {
        publish(session, response);
        mention_unused_device(session);
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
    muster_session_stop_engines(session);
    muster_session_end_operations(session);
    muster_session_end_sets(session);
    if (communicator != NULL) {
        muster_session_collect_tuned(session, communicator);
    }
    muster_peer_finder_destroy(TAKE(generation->finder)); /* it uses the communicator */
    muster_communicator_destroy(communicator);
    free(TAKE(generation->stale_ranks));
    generation->stale_count = 0;
}
