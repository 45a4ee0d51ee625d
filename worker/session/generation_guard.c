/* The generation guard: counts the calls that use the generation, and closes it to new ones. */
#include "worker/session/generation_guard.h"

#include "worker/base/fork_guard.h"
#include "worker/base/thread.h"
#include "worker/session/engine_list.h"
#include "worker/session/sigterm.h"

/* The bit of active_calls that says that the stage is RUNNING. */
static const unsigned RUNNING = 1U << 31;

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

void muster_session_set_stage_locked(struct muster_session *session,
                                     enum muster_session_stage stage)
{
    session->stage = stage;
    if (stage == MUSTER_STAGE_RUNNING) {
        atomic_fetch_or(&session->active_calls, RUNNING);
    } else {
        atomic_fetch_and(&session->active_calls, ~RUNNING);
    }
}

bool muster_session_has_calls(struct muster_session *session)
{
    return (atomic_load(&session->active_calls) & ~RUNNING) != 0;
}

/* MUSTER_OK: the generation has begun in the meantime. */
static __attribute__((noinline)) muster_status explain(struct muster_session *session)
{
    AUTO_LOCK(&session->mutex);
    if (session->stage == MUSTER_STAGE_LEFT) {
        return muster_session_ended_error_locked(session);
    }
    return session->stage == MUSTER_STAGE_RUNNING
               ? MUSTER_OK
               : muster_error_set(MUSTER_REJOIN, "job %s: the membership is changing",
                                  session->settings.job);
}

/* Without the mutex, as long as a generation runs: this is a part of every small call's time. */
muster_status muster_session_hold_generation(struct muster_session *session)
{
    TRY(muster_session_check_process(session));
    for (;;) {
        unsigned calls = atomic_load_explicit(&session->active_calls, memory_order_relaxed);
        while ((calls & RUNNING) != 0) {
            if (atomic_compare_exchange_weak(&session->active_calls, &calls, calls + 1)) {
                return MUSTER_OK;
            }
        }
        TRY(explain(session));
    }
}

bool muster_session_hold_generation_alone(struct muster_session *session)
{
    unsigned expected = RUNNING;
    return atomic_compare_exchange_strong(&session->active_calls, &expected, RUNNING + 1);
}

/* The last call of a generation that is over leaves under the mutex: whoever waits for it may free
 * the session afterwards. */
void muster_session_release_generation(struct muster_session *session)
{
    unsigned calls = atomic_load_explicit(&session->active_calls, memory_order_relaxed);
    while ((calls & RUNNING) != 0) {
        if (atomic_compare_exchange_weak(&session->active_calls, &calls, calls - 1)) {
            return;
        }
    }
    AUTO_LOCK(&session->mutex);
    if (atomic_fetch_sub(&session->active_calls, 1) == 1) {
        (void)pthread_cond_broadcast(&session->changed);
    }
}

void muster_session_revoke_locked(struct muster_session *session, const char *why)
{
    session->rejoin_due = true;
    if (session->fabric != NULL && session->generation.number != 0) {
        muster_fabric_revoke(session->fabric, session->generation.number, why);
        muster_session_end_engines(session, why);
    }
}
