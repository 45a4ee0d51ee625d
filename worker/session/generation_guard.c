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
    return muster_session_is_inherited(session)
               ? muster_error_set(MUSTER_INVALID,
                                  "job %s: this process was forked from a member: it must not use "
                                  "the session of its parent",
                                  session->settings.job)
               : MUSTER_OK;
}

/* Without the mutex, as long as a generation runs: this is a part of every small call's time. */
muster_status muster_session_hold_generation(struct muster_session *session)
{
    TRY(muster_session_check_process(session));
    do {
        uint32_t calls = atomic_load_explicit(&session->active_calls, memory_order_relaxed);
        while ((calls & MUSTER_CALLS_CLOSED) == 0) {
            if (atomic_compare_exchange_weak(&session->active_calls, &calls, calls + 1)) {
                return MUSTER_OK;
            }
        }
        AUTO_LOCK(&session->mutex);
        if (session->stage == MUSTER_STAGE_LEFT) {
            return muster_session_ended_error_locked(session);
        }
        if (session->stage != MUSTER_STAGE_RUNNING) {
            return muster_error_set(MUSTER_REJOIN, "job %s: the membership is changing",
                                    session->settings.job);
        }
    } while (true); /* it has begun to run meanwhile */
}

/* The last call of a generation that is over leaves under the mutex: whoever waits for it may free
 * the session afterwards. */
void muster_session_release_generation(struct muster_session *session)
{
    uint32_t calls = atomic_load_explicit(&session->active_calls, memory_order_relaxed);
    while ((calls & MUSTER_CALLS_CLOSED) == 0) {
        if (atomic_compare_exchange_weak(&session->active_calls, &calls, calls - 1)) {
            return;
        }
    }
    AUTO_LOCK(&session->mutex);
    if (((atomic_fetch_sub(&session->active_calls, 1) - 1) & ~MUSTER_CALLS_CLOSED) == 0) {
        (void)pthread_cond_broadcast(&session->changed);
    }
}

void muster_session_set_stage_locked(struct muster_session *session,
                                     enum muster_session_stage stage)
{
    session->stage = stage;
    if (stage == MUSTER_STAGE_RUNNING) {
        (void)atomic_fetch_and(&session->active_calls, ~MUSTER_CALLS_CLOSED);
    } else {
        (void)atomic_fetch_or(&session->active_calls, MUSTER_CALLS_CLOSED);
    }
}

void muster_session_revoke_locked(struct muster_session *session, const char *why)
{
    session->rejoin_due = true;
    if (session->fabric != NULL && session->generation.number != 0) {
        muster_fabric_revoke(session->fabric, session->generation.number, why);
    }
}
