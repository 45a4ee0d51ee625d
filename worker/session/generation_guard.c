/* The generation guard: counts the calls that use the generation, and closes it to new ones. */
#include "worker/session/generation_guard.h"

#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/session/sigterm.h"

bool muster_session_is_leaving(struct muster_session *session)
{
    return atomic_load(&session->leave_called) || atomic_load(&session->leave_requested) ||
           (session->sigterm_held && muster_sigterm_count() != session->sigterm_count_at_open);
}

muster_status muster_session_ended_error_locked(const struct muster_session *session)
{
    return session->without_service
               ? muster_error_set(MUSTER_ENDED, "the communicator has ended: %s", session->why)
               : muster_error_set(MUSTER_ENDED, "job %s: %s", session->settings.job, session->why);
}

bool muster_session_is_inherited(const struct muster_session *session)
{
    return session->forks != muster_fork_guard_forks();
}

muster_status muster_session_check_process(const struct muster_session *session)
{
    if (!muster_session_is_inherited(session)) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID,
                            "%s%s: this process was forked from a member: it must not use the "
                            "session of its parent",
                            session->without_service ? "communicator" : "job ",
                            session->without_service ? "" : session->settings.job);
}

muster_status muster_session_hold_generation(struct muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->mutex);
    if (session->stage == MUSTER_STAGE_LEFT) {
        return muster_session_ended_error_locked(session);
    }
    if (session->stage != MUSTER_STAGE_RUNNING) {
        return muster_error_set(MUSTER_REJOIN, "job %s: the membership is changing",
                                session->settings.job);
    }
    session->active_calls++;
    return MUSTER_OK;
}

void muster_session_release_generation(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    session->active_calls--;
    if (session->active_calls == 0 && session->stage != MUSTER_STAGE_RUNNING) {
        (void)pthread_cond_broadcast(&session->changed);
    }
}

void muster_session_revoke_locked(struct muster_session *session, const char *why)
{
    session->rejoin_due = true;
    if (session->fabric != NULL && session->generation.number != 0) {
        muster_fabric_revoke(session->fabric, session->generation.number, why);
    }
}
