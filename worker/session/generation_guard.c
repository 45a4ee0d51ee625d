/* The gate: who is inside has the generation as it is; and what closes it. */
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

bool muster_session_leaving(struct muster_session *session)
{
    return atomic_load(&session->leave_wished) || atomic_load(&session->leave_asked) ||
           (session->sigterm_held && muster_sigterm_count() != session->sigterm_seen);
}

muster_status muster_session_out_of_job_locked(const struct muster_session *session)
{
    return muster_error_set(MUSTER_ENDED, "job %s: %s", session->settings.job, session->why);
}

muster_status muster_session_enter(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    if (session->stage == MUSTER_STAGE_LEFT) {
        return muster_session_out_of_job_locked(session);
    }
    if (session->stage != MUSTER_STAGE_RUNNING) {
        return muster_error_set(MUSTER_REJOIN, "job %s: the membership is changing",
                                session->settings.job);
    }
    session->users++;
    return MUSTER_OK;
}

void muster_session_exit(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    session->users--;
    if (session->users == 0 && session->stage != MUSTER_STAGE_RUNNING) {
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
