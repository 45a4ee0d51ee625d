/* The public calls of state that need no other member's memory: register, commit, restore. */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/session/session_parts.h"

muster_status muster_register(muster_session *session, const char *name, void *data,
                              size_t size_bytes)
{
    AUTO_LOCK(&session->state.mutex);
    return muster_state_register(&session->state, name, data, size_bytes);
}

/* True on every member if one of them knows that the membership is to change. */
static muster_status ask_for_changes(struct muster_session *session, bool *ret_change)
{
    int32_t mine =
        (int32_t)(atomic_load(&session->pending) || muster_session_leaving(session) ? 1 : 0);
    int32_t anyone = 0;
    struct muster_request request = {
        .collective = MUSTER_ALLREDUCE,
        .in = &mine,
        .out = &anyone,
        .count = 1,
        .type = MUSTER_INT32,
        .op = MUSTER_MAX,
        .deadline_ns = muster_clock_after_ms(session->settings.call_timeout_ms),
    };
    TRY(muster_session_run(session, MUSTER_GLOBAL, &request));
    *ret_change = anyone != 0;
    return MUSTER_OK;
}

/* Makes the copy inside the gate, so that it belongs to one generation. */
static muster_status keep_commit(struct muster_session *session)
{
    struct muster_state *state = &session->state;
    TRY(muster_session_enter(session));
    muster_status status = MUSTER_OK;
    if (state->count > 0) {
        status = muster_state_reserve(state);
        if (status == MUSTER_OK) {
            muster_state_keep(state, atomic_load(&state->version) + 1, session->generation.number);
        }
    }
    muster_session_exit(session);
    return status;
}

muster_status muster_commit(muster_session *session)
{
    AUTO_LOCK(&session->state.mutex);
    TRY(keep_commit(session));
    bool change = false;
    muster_status status = ask_for_changes(session, &change);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "commit");
    }
    if (change) {
        atomic_store(&session->planned, true);
        return muster_session_settle(
            session, muster_generation(session),
            muster_error_set(MUSTER_REJOIN, "commit: the membership is to change"), UINT32_MAX);
    }
    status = muster_session_tune_late(session);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "commit");
}

muster_status muster_restore(muster_session *session)
{
    AUTO_LOCK(&session->state.mutex);
    if (!session->state.kept) {
        return muster_error_set(MUSTER_INVALID, "restore: nothing was ever committed or synced");
    }
    muster_state_put_back(&session->state);
    return MUSTER_OK;
}

uint64_t muster_version_of_state(const muster_session *session)
{
    return atomic_load(&session->state.version);
}
