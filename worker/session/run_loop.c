/* muster_run: the user's function, again and again, until it is done on every member. */
#include <stdio.h>
#include <string.h>

#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

/* All members come to this barrier when their function is done, so whoever passes it knows that
 * the work is done everywhere. */
static muster_status vote(struct muster_session *session)
{
    muster_status status = muster_barrier(session, MUSTER_GLOBAL, NULL);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "the end of the work");
}

static void restore_if_kept(struct muster_session *session)
{
    AUTO_LOCK(&session->state.mutex);
    if (session->state.kept) {
        muster_state_put_back(&session->state);
    }
}

/* One generation's worth of work. *ret_done: the function has returned MUSTER_OK. */
static muster_status work_once(struct muster_session *session, muster_function function, void *user,
                               bool *ret_done)
{
    *ret_done = false;
    TRY(muster_sync(session));
    TRY(function(session, user));
    *ret_done = true;
    return vote(session);
}

/* Others may have passed the last vote when this member did not: the service then says that the
 * job has finished. A member that was asked to leave has left, done or not. */
static bool finished_elsewhere(struct muster_session *session, muster_status status, bool done)
{
    return status == MUSTER_ENDED && done && !muster_session_leaving(session);
}

muster_status muster_run(muster_session *session, muster_function function, void *user)
{
    for (;;) {
        bool done = false;
        uint64_t generation = muster_generation(session);
        muster_status status = work_once(session, function, user, &done);
        if (status == MUSTER_REJOIN) {
            muster_log(MUSTER_LOG_INFO, "moving over: %s", muster_last_error());
            bool force = muster_generation(session) == generation;
            status = muster_session_rejoin(session, force);
            if (status == MUSTER_OK) {
                restore_if_kept(session);
                continue;
            }
        }
        if (status == MUSTER_OK) {
            muster_session_finish(session);
            return MUSTER_OK;
        }
        if (finished_elsewhere(session, status, done)) {
            return MUSTER_OK;
        }
        atomic_store(&session->last_status, (int)status);
        return status;
    }
}
