/* muster_register, muster_commit with its two parts, and muster_restore: the state calls that move
 * no data between members. */
#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/session/failure_handling.h"
#include "worker/session/generation_guard.h"
#include "worker/session/link_figures.h"

muster_status muster_register(muster_session *session, const char *name, void *data,
                              size_t size_bytes)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    return muster_state_register(&session->state, name, data, size_bytes);
}

/* *ret_change is true on every member if one of them knows of a reason to change the membership. */
static muster_status agree_on_change(struct muster_session *session, bool *ret_change)
{
    int32_t mine =
        (int32_t)(atomic_load(&session->newcomers_pending) || muster_session_is_leaving(session)
                      ? 1
                      : 0);
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

/* Makes the copy, or takes the one that was begun, while the generation is held, so that it belongs
 * to one generation. */
static muster_status copy_state(struct muster_session *session)
{
    struct muster_state *state = &session->state;
    TRY(muster_session_hold_generation(session));
    muster_status status = MUSTER_OK;
    uint64_t version = atomic_load(&state->version) + 1;
    if (state->begun != NULL) {
        muster_state_end_commit(state, version, session->generation.number);
    } else if (state->count > 0) {
        status = muster_state_reserve(state);
        if (status == MUSTER_OK) {
            muster_state_copy_commit(state, version, session->generation.number);
        }
    }
    if (status == MUSTER_OK) {
        muster_state_mark_committed(state);
    }
    muster_session_release_generation(session);
    return status;
}

static muster_status commit(struct muster_session *session)
{
    TRY(copy_state(session));
    bool change = false;
    muster_status status = agree_on_change(session, &change);
    if (status != MUSTER_OK) {
        return muster_error_prefix(status, "commit");
    }
    if (change) {
        return muster_session_handle_result(
            session, muster_generation(session),
            muster_error_set(MUSTER_REJOIN, "commit: the membership is to change"), UINT32_MAX);
    }
    status = muster_session_refresh_figures(session);
    return status == MUSTER_OK ? MUSTER_OK : muster_error_prefix(status, "commit");
}

muster_status muster_commit(muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    muster_state_abandon_commit(&session->state);
    return commit(session);
}

muster_status muster_commit_begin(muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    struct muster_state *state = &session->state;
    if (state->begun != NULL) {
        return muster_error_set(MUSTER_INVALID, "commit begin: one was begun and has not ended");
    }
    if (state->count == 0) {
        return muster_error_set(MUSTER_INVALID, "commit begin: no memory is registered");
    }
    return muster_state_begin_commit(state);
}

muster_status muster_commit_end(muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    if (session->state.begun == NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "commit end: none was begun, or the membership has "
                                "changed since");
    }
    return commit(session);
}

muster_status muster_restore(muster_session *session)
{
    TRY(muster_session_check_process(session));
    AUTO_LOCK(&session->state.mutex);
    muster_state_abandon_commit(&session->state);
    if (!session->state.has_copy) {
        return muster_error_set(MUSTER_INVALID, "restore: nothing was ever committed or synced");
    }
    muster_state_restore_commit(&session->state);
    return MUSTER_OK;
}

uint64_t muster_version_of_state(const muster_session *session)
{
    return atomic_load(&session->state.version);
}
