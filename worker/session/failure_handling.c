/* What follows from the status of a collective, and the run of one collective. */
#include "worker/session/failure_handling.h"

#include <stdio.h>

#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"
#include "worker/session/lease_thread.h"
#include "worker/session/scopes.h"
#include "worker/session/without_service.h"

/* A collective ended with MUSTER_REJOIN: reports the suspect, and finds out whether the job is over
 * for this member. */
static muster_status handle_rejoin(struct muster_session *session, uint64_t generation,
                                   uint32_t suspect)
{
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    if (session->without_service) {
        return muster_session_end_without_service(session, text);
    }
    if (suspect != UINT32_MAX) {
        muster_session_report(session, generation, suspect, text);
    }
    AUTO_LOCK(&session->mutex);
    if (session->ended) {
        return muster_session_ended_error_locked(session);
    }
    if (session->generation.number == generation) {
        session->rejoin_due = true;
    }
    return muster_error_set(MUSTER_REJOIN, "%s", text);
}

muster_status muster_session_handle_result(struct muster_session *session, uint64_t generation,
                                           muster_status status, uint32_t suspect)
{
    if (status == MUSTER_REJOIN) {
        status = handle_rejoin(session, generation, suspect);
    }
    if (atomic_load(&session->last_status) != (int)status) {
        atomic_store(&session->last_status, (int)status);
    }
    return status;
}

muster_status muster_session_run(struct muster_session *session, muster_scope scope,
                                 const struct muster_request *request)
{
    uint32_t suspect = UINT32_MAX;
    TRY(muster_session_hold_generation(session));
    uint64_t generation = session->generation.number;
    struct muster_context *context = NULL;
    muster_status status = muster_session_context(session, scope, &context);
    if (status == MUSTER_OK) {
        status = muster_context_run(context, request, &suspect);
    } else {
        status = muster_error_prefix(status, "%s", muster_collective_name(request->collective));
    }
    muster_session_release_generation(session);
    return muster_session_handle_result(session, generation, status, suspect);
}
