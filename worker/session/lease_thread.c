/*
 * The lease thread: one Watch after the other, which is this member's lease. The answers say that
 * the generation is revoked, that newcomers are waiting, that this member is to leave. While the
 * service cannot be reached the thread retries for ever; the running job does not notice.
 *
 * While a Watch is held the thread reports if this member's calls wait for too long
 * (stall_report.h).
 *
 * The thread also sends signs of life after the generation is revoked and until the member joins
 * again, as its caller may be far from the next collective. The service answers such
 * a Watch at once, and it still counts as a sign of life. The first one is sent at once, because
 * this member may be the one that was reported as dead; later ones follow so often that several fit
 * into the default time limit of a suspected member.
 */
#include "worker/session/lease_thread.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/doubted_members.h"
#include "worker/session/generation_guard.h"
#include "worker/session/service_policy.h"

enum {
    REFUSED_PAUSE_MS = 1000,
};

/* What the thread knows of the service; each change is logged once. */
struct watch_state {
    bool unreachable, refused;
    uint64_t revoked;       /* the generation that is known to be revoked */
    bool sign_of_life_sent; /* a Watch was sent after the revocation was known */
};

static void wait_locked(struct muster_session *session, uint32_t timeout_ms)
{
    (void)muster_condition_wait(&session->changed, &session->mutex,
                                muster_clock_after_ms(timeout_ms));
}

static bool nothing_to_watch_locked(const struct muster_session *session)
{
    bool formed =
        session->stage == MUSTER_STAGE_RUNNING || session->stage == MUSTER_STAGE_PREPARING;
    return !formed || session->finished || session->declared_dead || session->ended;
}

/* Waits until there is a generation to watch, and fills in the request. False: the session is
 * closing. */
static bool next_watch(struct muster_session *session, struct watch_state *watch,
                       struct muster_watch_request *request,
                       struct muster_retry_policy *retry_policy)
{
    AUTO_LOCK(&session->mutex);
    if (watch->revoked != 0 && watch->revoked == session->generation.number && !session->closing) {
        if (watch->sign_of_life_sent) {
            wait_locked(session, muster_policy_revoked_pause_ms(session->hold_ms));
        }
        watch->sign_of_life_sent = true;
    }
    while (!session->closing && nothing_to_watch_locked(session)) {
        (void)pthread_cond_wait(&session->changed, &session->mutex);
    }
    *retry_policy = (struct muster_retry_policy){
        .attempt_ms = muster_policy_watch_attempt_ms(session->hold_ms, session->lease_ms),
        .deadline_ns = MUSTER_NEVER,
        .attempts = watch->unreachable ? MUSTER_WATCH_ATTEMPTS : 1,
    };
    *request = (struct muster_watch_request){
        .generation = session->generation.number,
        .pending_known = atomic_load(&session->newcomers_pending),
        .leave_known = atomic_load(&session->leave_requested),
        .progress = muster_session_progress_locked(session),
    };
    (void)snprintf(request->job, sizeof request->job, "%s", session->settings.job);
    memcpy(request->member, session->member, sizeof request->member);
    return !session->closing;
}

static void apply_answer(struct muster_session *session, struct watch_state *watch,
                         uint64_t generation, const struct muster_watch_response *response)
{
    AUTO_LOCK(&session->mutex);
    muster_stall_watch_asked(&session->stall, session->hold_ms, muster_clock_ns());
    if (session->generation.number != generation) {
        return; /* the session is in another generation by now */
    }
    atomic_store(&session->newcomers_pending, response->pending);
    atomic_store(&session->leave_requested, response->leave);
    if (response->revoked && watch->revoked != generation) {
        watch->revoked = generation;
        watch->sign_of_life_sent = false;
        muster_log(MUSTER_LOG_INFO, "the generation is revoked: %s", response->reason);
        muster_session_revoke_locked(session, response->reason);
    }
}

void muster_session_apply_service_error(struct muster_session *session, uint64_t generation,
                                        enum muster_rpc_code code, const char *why)
{
    enum muster_policy_place place = muster_policy_place(code);
    if (place == MUSTER_PLACE_KEPT) {
        return;
    }
    AUTO_LOCK(&session->mutex);
    if (session->finished || session->closing || session->generation.number != generation) {
        return;
    }
    (void)snprintf(session->why, sizeof session->why, "%s", why);
    if (place == MUSTER_PLACE_LOST) {
        session->declared_dead = true;
    } else {
        session->ended = true;
    }
    muster_session_revoke_locked(session, why);
}

/* The service refused the Watch, or could not be reached. After any other error the thread pauses,
 * so that it does not send Watch in a tight loop. */
static void apply_failure(struct muster_session *session, struct watch_state *watch,
                          uint64_t generation, muster_status status, enum muster_rpc_code code)
{
    enum muster_policy_watch meaning = muster_policy_watch(status, code);
    if (meaning == MUSTER_WATCH_REPLACED) {
        return;
    }
    muster_session_apply_service_error(session, generation, code, muster_last_error());
    if (meaning == MUSTER_WATCH_UNREACHABLE) {
        if (!watch->unreachable) {
            muster_log(MUSTER_LOG_WARN,
                       "the service cannot be reached; the job goes on without it: %s",
                       muster_last_error());
        }
        watch->unreachable = true;
        return;
    }
    AUTO_LOCK(&session->mutex);
    if (!nothing_to_watch_locked(session) && !session->closing) {
        if (!watch->refused) {
            muster_log(MUSTER_LOG_ERROR, "the service cannot be watched: %s", muster_last_error());
        }
        watch->refused = true;
        wait_locked(session, REFUSED_PAUSE_MS);
    }
}

static void watch_once(struct muster_session *session, struct watch_state *watch,
                       const struct muster_watch_request *request,
                       const struct muster_retry_policy *retry_policy)
{
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    struct muster_watch_response response = {0};
    muster_status status =
        muster_client_call(session->lease_client, MUSTER_RPC_WATCH,
                           muster_watch_request_encode(request), retry_policy, &answer, &code);
    if (status == MUSTER_OK) {
        status = muster_watch_response_decode(answer, &response);
        json_decref(answer);
    }
    if (status != MUSTER_OK) {
        apply_failure(session, watch, request->generation, status, code);
        return;
    }
    if (watch->unreachable) {
        muster_log(MUSTER_LOG_WARN, "the service can be reached again");
        watch->unreachable = false;
    }
    watch->refused = false;
    apply_answer(session, watch, request->generation, &response);
    muster_session_dial_doubted(session, session->lease_client, response.doubted,
                                response.doubted_count);
    muster_watch_response_finish(&response);
}

static void *run_lease_thread(void *argument)
{
    struct muster_session *session = argument;
    struct watch_state watch = {0};
    struct muster_watch_request request;
    struct muster_retry_policy retry_policy;
    while (next_watch(session, &watch, &request, &retry_policy)) {
        watch_once(session, &watch, &request, &retry_policy);
    }
    return NULL;
}

/* While a Watch is held. */
static uint32_t meanwhile(void *user)
{
    struct muster_session *session = user;
    muster_session_exchange_figures(session);
    return muster_session_report_stall(session);
}

muster_status muster_session_start_lease_thread(struct muster_session *session)
{
    muster_client_set_meanwhile(session->lease_client, meanwhile, session);
    int failed = muster_thread_start(&session->lease_thread, run_lease_thread, session);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "lease thread: %s", strerror(failed));
    }
    session->lease_thread_started = true;
    return MUSTER_OK;
}

void muster_session_stop_lease_thread(struct muster_session *session)
{
    muster_mutex_lock(&session->mutex);
    session->closing = true;
    (void)pthread_cond_broadcast(&session->changed);
    muster_mutex_unlock(&session->mutex);
    if (session->lease_thread_started) {
        muster_client_interrupt(session->lease_client);
        (void)pthread_join(session->lease_thread, NULL);
        session->lease_thread_started = false;
    }
}

/* Fills in the request. False: the generation is revoked, or this member has reported in it. */
static bool begin_report(struct muster_session *session, uint64_t generation, uint32_t suspect,
                         struct muster_report_request *request)
{
    AUTO_LOCK(&session->mutex);
    if (nothing_to_watch_locked(session) || session->generation.number != generation ||
        session->rejoin_due || session->reported_generation == generation) {
        return false;
    }
    session->reported_generation = generation;
    request->generation = generation;
    request->suspect = suspect;
    (void)snprintf(request->job, sizeof request->job, "%s", session->settings.job);
    memcpy(request->member, session->member, sizeof request->member);
    return true;
}

void muster_session_report(struct muster_session *session, uint64_t generation, uint32_t suspect,
                           const char *why)
{
    struct muster_report_request request = {0};
    struct muster_retry_policy retry_policy = {
        .attempt_ms = MUSTER_REPORT_ATTEMPT_MS,
        .deadline_ns = muster_clock_after_ms(MUSTER_REPORT_TOTAL_MS),
        .attempts = MUSTER_REPORT_ATTEMPTS,
    };
    /* If the client is in use, another caller is reporting or joining already. */
    if (pthread_mutex_trylock(&session->client_mutex) != 0) {
        return;
    }
    (void)snprintf(request.why, sizeof request.why, "%s", why);
    if (begin_report(session, generation, suspect, &request)) {
        enum muster_rpc_code code = MUSTER_RPC_OK;
        json_t *answer = NULL;
        muster_status status = muster_client_call(session->caller_client, MUSTER_RPC_REPORT,
                                                  muster_report_request_encode(&request),
                                                  &retry_policy, &answer, &code);
        if (status == MUSTER_OK) {
            json_decref(answer);
        } else {
            muster_session_apply_service_error(session, generation, code, muster_last_error());
        }
    }
    muster_mutex_unlock(&session->client_mutex);
}
