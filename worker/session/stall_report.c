/* When calls wait for too long, and the report of it. */
#include "worker/session/stall_report.h"
#include "worker/session/engine_list.h"

#include <stdio.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"
#include "worker/session/session_parts.h"
#include "worker/session/session_sets.h"

enum {
    LOOK_MIN_MS = 500, /* members that were asked together do not look together */
    LOOK_MAX_MS = 1000,
    ATTEMPT_MS = 500,
};

bool muster_stall_watch_look(struct muster_stall_watch *watch, bool calls_wait, uint64_t progress,
                             uint32_t lease_ms, uint32_t most_ms, int64_t now_ns)
{
    if (!calls_wait || progress != watch->progress || watch->since_ns == 0) {
        *watch = (struct muster_stall_watch){
            .progress = progress, .since_ns = now_ns, .pause_ms = lease_ms};
        return false;
    }
    if (now_ns - watch->since_ns < (int64_t)watch->pause_ms * MUSTER_NS_PER_MS) {
        return false;
    }
    muster_stall_watch_asked(watch, most_ms, now_ns);
    return true;
}

void muster_stall_watch_asked(struct muster_stall_watch *watch, uint32_t most_ms, int64_t now_ns)
{
    if (watch->since_ns != 0) {
        watch->since_ns = now_ns;
        watch->pause_ms = watch->pause_ms < most_ms / 2 ? 2 * watch->pause_ms : most_ms;
    }
}

uint64_t muster_session_progress_locked(struct muster_session *session)
{
    const struct muster_communicator *communicator = session->generation.communicator;
    return communicator != NULL ? muster_communicator_progress(communicator) +
                                      muster_session_sets_progress(session) +
                                      muster_session_engines_progress(session)
                                : 0;
}

/* Fills in the request. False: nothing is to be reported. */
static bool begin_report(struct muster_session *session, struct muster_report_request *request)
{
    AUTO_LOCK(&session->mutex);
    bool runs = session->stage == MUSTER_STAGE_RUNNING && !session->rejoin_due &&
                !session->finished && !session->closing;
    if (!muster_stall_watch_look(&session->stall, runs && muster_session_has_calls(session),
                                 muster_session_progress_locked(session), session->lease_ms,
                                 session->hold_ms, muster_clock_ns())) {
        return false;
    }
    *request = (struct muster_report_request){
        .generation = session->generation.number,
        .suspect = atomic_load(&session->ranks[MUSTER_GLOBAL]), /* it is not known who */
        .kind = MUSTER_REPORT_WAITING,
    };
    (void)snprintf(request->job, sizeof request->job, "%s", session->settings.job);
    memcpy(request->member, session->member, sizeof request->member);
    (void)snprintf(request->why, sizeof request->why, "a call waits");
    return true;
}

uint32_t muster_session_report_stall(void *user)
{
    struct muster_session *session = user;
    struct muster_report_request request;
    const struct muster_retry_policy retry_policy = {
        .attempt_ms = ATTEMPT_MS, .deadline_ns = muster_clock_after_ms(ATTEMPT_MS), .attempts = 1};
    json_t *answer = NULL;
    /* A client that is in use joins or reports already. A failure means that another report
     * follows, or that the service is away. */
    if (pthread_mutex_trylock(&session->client_mutex) == 0) {
        if (begin_report(session, &request) &&
            muster_client_call(session->caller_client, MUSTER_RPC_REPORT,
                               muster_report_request_encode(&request), &retry_policy, &answer,
                               NULL) == MUSTER_OK) {
            json_decref(answer);
        }
        muster_mutex_unlock(&session->client_mutex);
    }
    return LOOK_MIN_MS + muster_random_below(LOOK_MAX_MS - LOOK_MIN_MS);
}
