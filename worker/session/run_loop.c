/* muster_run: calls the user's function in each generation until it is done on every member. */
#include <stdio.h>
#include <string.h>

#include "worker/base/log.h"
#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"
#include "worker/session/rejoin.h"

/* Every member calls this barrier when its function is done. A member that passes it knows that the
 * work is done everywhere. */
static muster_status finish_together(struct muster_session *session)
{
    muster_status status = muster_barrier(session, MUSTER_GLOBAL, NULL);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "the end of the work");
}

static void restore_if_committed(struct muster_session *session)
{
    AUTO_LOCK(&session->state.mutex);
    muster_state_abandon_commit(&session->state);
    if (session->state.has_copy) {
        muster_state_restore_commit(&session->state);
    }
}

/* Sync, the user's function, and the barrier at its end. *ret_done: the function has returned
 * MUSTER_OK. */
static muster_status run_in_generation(struct muster_session *session, muster_function function,
                                       void *user, bool *ret_done)
{
    *ret_done = false;
    TRY(muster_sync(session));
    TRY(function(session, user));
    *ret_done = true;
    return finish_together(session);
}

/* The others may have passed the last barrier when this member did not; the service then says that
 * the job has finished. That is success if the function was done here, unless this member was to
 * leave. */
static bool finished_elsewhere(struct muster_session *session, muster_status status, bool done)
{
    return status == MUSTER_ENDED && done && !session->without_service &&
           !muster_session_is_leaving(session);
}

/* After MUSTER_REJOIN the state of the last commit is restored before the next sync. If the
 * generation is still the one of that call, the rejoin is forced: the function may return
 * MUSTER_REJOIN when the library has not; otherwise another thread has rejoined already. */
muster_status muster_run(muster_session *session, muster_function function, void *user)
{
    for (;;) {
        bool done = false;
        uint64_t generation = muster_generation(session);
        muster_status status = run_in_generation(session, function, user, &done);
        if (status == MUSTER_REJOIN) {
            muster_log(MUSTER_LOG_INFO, "joining the next generation: %s", muster_last_error());
            bool force = muster_generation(session) == generation;
            atomic_store(&session->done, done);
            status = muster_session_rejoin(session, force);
            if (status == MUSTER_OK) {
                restore_if_committed(session);
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
