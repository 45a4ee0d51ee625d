/* From one generation to the next, under a new identity if the service has declared this member
 * dead, and out of the job. */
#include "worker/session/rejoin.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/failed_generations.h"
#include "worker/session/generation.h"
#include "worker/session/generation_guard.h"
#include "worker/session/join.h"
#include "worker/session/service_policy.h"
#include "worker/session/slot.h"
#include "worker/session/without_service.h"

/* Leaving -------------------------------------------------------------------------------------- */

void muster_session_send_leave(struct muster_session *session, enum muster_leave_reason reason,
                               const char *why, uint32_t timeout_ms)
{
    struct muster_leave_request leave = {.generation = session->generation.number,
                                         .reason = reason};
    struct muster_retry_policy retry_policy = {.attempt_ms = timeout_ms,
                                               .deadline_ns = muster_clock_after_ms(timeout_ms)};
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    (void)snprintf(leave.job, sizeof leave.job, "%s", session->settings.job);
    (void)snprintf(leave.member, sizeof leave.member, "%s", session->member);
    (void)snprintf(leave.why, sizeof leave.why, "%s", why);
    AUTO_LOCK(&session->client_mutex);
    muster_status status =
        muster_client_call(session->caller_client, MUSTER_RPC_LEAVE,
                           muster_leave_request_encode(&leave), &retry_policy, &answer, &code);
    if (status == MUSTER_OK) {
        json_decref(answer);
    } else if (status != MUSTER_ENDED && code != MUSTER_RPC_NOT_FOUND) {
        muster_log(MUSTER_LOG_WARN, "Leave did not reach the service: %s", muster_last_error());
    }
}

void muster_session_finish(struct muster_session *session)
{
    AUTO_LOCK(&session->rejoin_mutex);
    muster_mutex_lock(&session->mutex);
    bool first = !session->finished;
    session->finished = true; /* before Leave, so that answers about the others' Leave do not revoke
                                 the generation here */
    (void)pthread_cond_broadcast(&session->changed);
    muster_mutex_unlock(&session->mutex);
    if (first && !session->without_service) {
        muster_session_send_leave(session, MUSTER_LEAVE_FINISHED, "finished",
                                  MUSTER_LEAVE_TOTAL_MS);
    }
}

void muster_session_set_left(struct muster_session *session, const char *why)
{
    AUTO_LOCK(&session->mutex);
    muster_session_set_stage_locked(session, MUSTER_STAGE_LEFT);
    if (why != NULL) {
        (void)snprintf(session->why, sizeof session->why, "%s", why);
    }
    (void)pthread_cond_broadcast(&session->changed);
}

/* Joining -------------------------------------------------------------------------------------- */

/* The service has declared this member dead: the process gets a new member id, and a new fabric
 * for it. */
static void change_identity(struct muster_session *session)
{
    muster_mutex_lock(&session->mutex);
    muster_log(MUSTER_LOG_WARN, "member=%s was declared dead (%s): joining again as a new member",
               session->member, session->why);
    struct muster_fabric *fabric = session->fabric;
    session->fabric = NULL;
    session->declared_dead = false;
    session->known_to_service = false;
    session->generation.number = 0;
    muster_random_uuid(session->member);
    muster_mutex_unlock(&session->mutex);
    muster_fabric_destroy(fabric, 0);
}

static bool is_declared_dead(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    return session->declared_dead;
}

static muster_status join_once(struct muster_session *session, int64_t deadline_ns)
{
    struct muster_join_response response = {0};
    TRY(muster_session_ask_to_join(session, deadline_ns, &response));
    muster_status status = muster_session_adopt_slot(session, response.slot);
    if (status == MUSTER_OK) {
        status = muster_session_begin_generation(session, &response);
    }
    muster_join_response_finish(&response);
    return status;
}

muster_status muster_session_join(struct muster_session *session)
{
    int64_t deadline_ns = muster_clock_after_ms(session->settings.join_timeout_ms);
    for (;;) {
        if (is_declared_dead(session)) {
            change_identity(session);
        }
        muster_status status = join_once(session, deadline_ns);
        if (status == MUSTER_OK || !is_declared_dead(session) ||
            muster_clock_left_ms(deadline_ns) == 0) {
            return status;
        }
    }
}

/* From generation to generation ---------------------------------------------------------------- */

/* False if nothing calls for a rejoin. Otherwise no call can begin any more, and those inside
 * return soon. */
static bool stop_generation(struct muster_session *session, bool force)
{
    AUTO_LOCK(&session->mutex);
    if (session->stage == MUSTER_STAGE_RUNNING) {
        if (!force && !session->rejoin_due && !muster_session_is_leaving(session)) {
            return false;
        }
        muster_session_set_stage_locked(session, MUSTER_STAGE_JOINING);
        muster_session_revoke_locked(session, "this member moves on to the next generation");
    }
    return true;
}

/* MUSTER_ENDED: there is no next generation for this member. */
static muster_status check_not_ended(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    if (session->finished) {
        return muster_error_set(MUSTER_ENDED, "finished");
    }
    if (session->ended) {
        return muster_error_set(MUSTER_ENDED, "%s", session->why);
    }
    return MUSTER_OK;
}

static muster_status leave_or_join(struct muster_session *session)
{
    TRY(check_not_ended(session));
    if (muster_session_is_leaving(session)) {
        muster_session_send_leave(session, MUSTER_LEAVE_PLANNED, "left as asked",
                                  MUSTER_LEAVE_TOTAL_MS);
        return muster_error_set(MUSTER_ENDED, "left as asked");
    }
    return muster_session_join(session);
}

static bool has_left(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    return session->stage == MUSTER_STAGE_LEFT;
}

muster_status muster_session_rejoin(struct muster_session *session, bool force)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->rejoin_mutex);
    if (session->without_service) {
        return muster_session_rejoin_without_service(session, force);
    }
    if (has_left(session)) {
        return muster_session_hold_generation(session); /* fails with the reason */
    }
    char why[MUSTER_ERROR_MAX];
    (void)snprintf(why, sizeof why, "%s", muster_last_error());
    if (!stop_generation(session, force)) {
        return MUSTER_OK;
    }
    TRY(muster_session_count_failed_generation(session, why));
    muster_session_end_generation(session);
    muster_session_back_off(session);
    muster_status status = leave_or_join(session);
    if (status == MUSTER_ENDED) {
        muster_session_set_left(session, muster_last_error());
        return muster_error_prefix(MUSTER_ENDED, "job %s", session->settings.job);
    }
    return status;
}

muster_status muster_rejoin(muster_session *session)
{
    return muster_session_rejoin(session, false);
}
