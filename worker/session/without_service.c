/* The end of a session without a service. */
#include "worker/session/without_service.h"

#include <stdio.h>

#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"

/* The same for every member and every call. */
#define ENDED_TEXT "the communicator has ended, and without a service none follows it: %s"

static void set_ended(struct muster_session *session, const char *text)
{
    AUTO_LOCK(&session->mutex);
    if (session->stage != MUSTER_STAGE_LEFT) {
        muster_session_set_stage_locked(session, MUSTER_STAGE_LEFT);
        (void)snprintf(session->why, sizeof session->why, "%s", text);
        muster_fabric_revoke_for_all(session->fabric, session->generation.number, text);
        (void)pthread_cond_broadcast(&session->changed);
    }
}

muster_status muster_session_end_without_service(struct muster_session *session, const char *text)
{
    set_ended(session, text);
    return muster_error_set(MUSTER_ENDED, ENDED_TEXT, text);
}

static bool is_running(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    return session->stage == MUSTER_STAGE_RUNNING;
}

muster_status muster_session_rejoin_without_service(struct muster_session *session, bool force)
{
    if (is_running(session)) {
        if (!force) {
            return MUSTER_OK;
        }
        set_ended(session, "the program's function has returned MUSTER_REJOIN");
    }
    AUTO_LOCK(&session->mutex);
    return muster_error_set(MUSTER_ENDED, ENDED_TEXT, session->why);
}
