/*
 * The session thread: one Watch after the other, which is the member's lease. It learns that the
 * generation is revoked, that newcomers wait, that this member is to leave. When the service
 * cannot be reached it goes on trying for ever; the running job does not notice.
 *
 * It also speaks for a member whose generation was revoked and which has not joined again yet (its
 * caller may be far from the next collective): such a Watch is answered at once and still is a sign
 * of life. The first follows at once, because this member may be the one that was reported; the
 * others several times in the time that a suspected member has by default.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

enum {
    REPORT_ATTEMPT_MS = 500,
    REPORT_TOTAL_MS = 1000,
    WATCH_MARGIN_LEAST_MS = 100,
    ATTEMPTS_AT_ONCE = 12, /* then progress and generation are read anew */
    REFUSED_PAUSE_MS = 1000,
    REVOKED_PAUSE_MAX_MS = 250, /* between signs of life in a generation that is over */
    REVOKED_PAUSES = 4,         /* in the time that a Watch would have been held */
};

/* What the thread knows of the service, to say each change once. */
struct follower {
    bool unreachable, refused;
    uint64_t revoked; /* the generation that this thread knows to be over */
    bool shown;       /* since it knows, the service has been asked again */
};

static void wait_locked(struct muster_session *session, uint32_t timeout_ms)
{
    (void)muster_condition_wait(&session->changed, &session->mutex,
                                muster_clock_after_ms(timeout_ms));
}

static bool nothing_to_watch_locked(const struct muster_session *session)
{
    bool formed = session->stage == MUSTER_STAGE_RUNNING || session->stage == MUSTER_STAGE_TUNING;
    return !formed || session->finished || session->lost || session->ended;
}

static uint64_t progress_locked(const struct muster_session *session)
{
    uint64_t progress = 0;
    for (int i = 0; i < MUSTER_SCOPE_COUNT; i++) {
        if (session->generation.contexts[i] != NULL) {
            progress += muster_context_progress(session->generation.contexts[i]);
        }
    }
    return progress;
}

static uint32_t revoked_pause_ms(const struct muster_session *session)
{
    uint32_t pause_ms = session->hold_ms / REVOKED_PAUSES;
    return pause_ms < REVOKED_PAUSE_MAX_MS ? pause_ms : REVOKED_PAUSE_MAX_MS;
}

/* Waits for something to watch. False: the session is closing. */
static bool prepare(struct muster_session *session, struct follower *follower,
                    struct muster_watch_request *request, struct muster_retry_policy *retry_policy)
{
    AUTO_LOCK(&session->mutex);
    if (follower->revoked != 0 && follower->revoked == session->generation.number &&
        !session->closing) {
        if (follower->shown) {
            wait_locked(session, revoked_pause_ms(session)); /* it would be answered at once */
        }
        follower->shown = true;
    }
    while (!session->closing && nothing_to_watch_locked(session)) {
        (void)pthread_cond_wait(&session->changed, &session->mutex);
    }
    uint32_t spare_ms =
        session->lease_ms > session->hold_ms ? (session->lease_ms - session->hold_ms) / 3 : 0;
    *retry_policy = (struct muster_retry_policy){
        .attempt_ms = session->hold_ms +
                      (spare_ms > WATCH_MARGIN_LEAST_MS ? spare_ms : WATCH_MARGIN_LEAST_MS),
        .deadline_ns = MUSTER_NEVER,
        .attempts = follower->unreachable ? ATTEMPTS_AT_ONCE : 1,
    };
    *request = (struct muster_watch_request){
        .generation = session->generation.number,
        .pending_known = atomic_load(&session->pending),
        .leave_known = atomic_load(&session->leave_asked),
        .progress = progress_locked(session),
    };
    (void)snprintf(request->job, sizeof request->job, "%s", session->settings.job);
    memcpy(request->member, session->member, sizeof request->member);
    return !session->closing;
}

static void heed_answer(struct muster_session *session, struct follower *follower,
                        uint64_t generation, const struct muster_watch_response *response)
{
    AUTO_LOCK(&session->mutex);
    if (session->generation.number != generation) {
        return; /* the session has moved on meanwhile */
    }
    atomic_store(&session->pending, response->pending);
    atomic_store(&session->leave_asked, response->leave);
    if (response->revoked && follower->revoked != generation) {
        follower->revoked = generation;
        follower->shown = false;
        muster_log(MUSTER_LOG_INFO, "the generation is over: %s", response->reason);
        muster_session_revoke_locked(session, response->reason);
    }
}

void muster_session_heed(struct muster_session *session, uint64_t generation,
                         enum muster_rpc_code code, const char *why)
{
    if (code != MUSTER_RPC_NOT_FOUND && code != MUSTER_RPC_FAILED_PRECONDITION) {
        return;
    }
    AUTO_LOCK(&session->mutex);
    if (session->finished || session->closing || session->generation.number != generation) {
        return;
    }
    (void)snprintf(session->why, sizeof session->why, "%s", why);
    if (code == MUSTER_RPC_NOT_FOUND) {
        session->lost = true;
    } else {
        session->ended = true;
    }
    muster_session_revoke_locked(session, why);
}

/* The service refused the Watch, or could not be reached. */
static void heed_failure(struct muster_session *session, struct follower *follower,
                         uint64_t generation, muster_status status, enum muster_rpc_code code)
{
    if (code == MUSTER_RPC_CANCELED) {
        return; /* the caller's Join took its place, or the session closes */
    }
    muster_session_heed(session, generation, code, muster_last_error());
    if (status == MUSTER_RETRY) {
        if (!follower->unreachable) {
            muster_log(MUSTER_LOG_WARN, "the job goes on without the service: %s",
                       muster_last_error());
        }
        follower->unreachable = true;
        return;
    }
    if (status == MUSTER_REJOIN) {
        const struct muster_watch_response over = {.revoked = true,
                                                   .reason = "the service says so"};
        heed_answer(session, follower, generation, &over);
        return;
    }
    AUTO_LOCK(&session->mutex);
    if (!nothing_to_watch_locked(session) && !session->closing) {
        if (!follower->refused) {
            muster_log(MUSTER_LOG_ERROR, "the service cannot be watched: %s", muster_last_error());
        }
        follower->refused = true;
        wait_locked(session, REFUSED_PAUSE_MS);
    }
}

static void watch_once(struct muster_session *session, struct follower *follower,
                       const struct muster_watch_request *request,
                       const struct muster_retry_policy *retry_policy)
{
    enum muster_rpc_code code = MUSTER_RPC_OK;
    json_t *answer = NULL;
    struct muster_watch_response response = {0};
    muster_status status =
        muster_client_call(session->follower, MUSTER_RPC_WATCH,
                           muster_watch_request_encode(request), retry_policy, &answer, &code);
    if (status == MUSTER_OK) {
        status = muster_watch_response_decode(answer, &response);
        json_decref(answer);
    }
    if (status != MUSTER_OK) {
        heed_failure(session, follower, request->generation, status, code);
        return;
    }
    if (follower->unreachable) {
        muster_log(MUSTER_LOG_WARN, "the service is back");
        follower->unreachable = false;
    }
    follower->refused = false;
    heed_answer(session, follower, request->generation, &response);
}

static void *follow(void *argument)
{
    struct muster_session *session = argument;
    struct follower follower = {0};
    struct muster_watch_request request;
    struct muster_retry_policy retry_policy;
    while (prepare(session, &follower, &request, &retry_policy)) {
        watch_once(session, &follower, &request, &retry_policy);
    }
    return NULL;
}

muster_status muster_session_follow(struct muster_session *session)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the user's threads */
    int failed = pthread_create(&session->thread, NULL, follow, session);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "session thread: %s", strerror(failed));
    }
    session->thread_begun = true;
    return MUSTER_OK;
}

void muster_session_unfollow(struct muster_session *session)
{
    muster_mutex_lock(&session->mutex);
    session->closing = true;
    (void)pthread_cond_broadcast(&session->changed);
    muster_mutex_unlock(&session->mutex);
    if (session->thread_begun) {
        muster_client_interrupt(session->follower);
        (void)pthread_join(session->thread, NULL);
        session->thread_begun = false;
    }
}

/* True for the first report of a generation that nobody has revoked yet. */
static bool begin_report(struct muster_session *session, uint64_t generation, uint32_t suspect,
                         struct muster_report_request *request)
{
    AUTO_LOCK(&session->mutex);
    if (nothing_to_watch_locked(session) || session->generation.number != generation ||
        session->rejoin_due || session->reported == generation) {
        return false;
    }
    session->reported = generation;
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
        .attempt_ms = REPORT_ATTEMPT_MS,
        .deadline_ns = muster_clock_after_ms(REPORT_TOTAL_MS),
        .attempts = 2,
    };
    /* The client is busy when another caller reports or joins already: that says it all. */
    if (pthread_mutex_trylock(&session->calling) != 0) {
        return;
    }
    (void)snprintf(request.why, sizeof request.why, "%s", why);
    if (begin_report(session, generation, suspect, &request)) {
        enum muster_rpc_code code = MUSTER_RPC_OK;
        json_t *answer = NULL;
        muster_status status = muster_client_call(session->caller, MUSTER_RPC_REPORT,
                                                  muster_report_request_encode(&request),
                                                  &retry_policy, &answer, &code);
        if (status == MUSTER_OK) {
            json_decref(answer);
        } else {
            muster_session_heed(session, generation, code, muster_last_error());
        }
    }
    muster_mutex_unlock(&session->calling);
}
