/* Turns that others wait for: the caller whose turn ends passes it to the first one that waits. */
#include "worker/context/turns.h"

#include "worker/base/thread.h"

void muster_turns_init(struct muster_turns *turns)
{
    atomic_init(&turns->state, MUSTER_TURNS_FREE);
    atomic_init(&turns->missed, false);
    muster_mutex_init(&turns->mutex);
    muster_condition_init(&turns->passed);
    STAILQ_INIT(&turns->waiters);
}

void muster_turns_finish(struct muster_turns *turns)
{
    pthread_cond_destroy(&turns->passed);
    pthread_mutex_destroy(&turns->mutex);
}

/* With the mutex, by the owner of the turn or while the turn is taken. */
static void set_state_locked(struct muster_turns *turns)
{
    atomic_store(&turns->state,
                 STAILQ_EMPTY(&turns->waiters) ? MUSTER_TURNS_TAKEN : MUSTER_TURNS_AWAITED);
}

bool muster_turns_acquire_slowly(struct muster_turns *turns, int64_t deadline_ns)
{
    AUTO_LOCK(&turns->mutex);
    turns->waits++;
    if (atomic_exchange(&turns->state, MUSTER_TURNS_AWAITED) == MUSTER_TURNS_FREE) {
        set_state_locked(turns); /* nobody waits where the turn was free */
        return true;
    }
    struct muster_turn_waiter self = {.has_turn = false};
    STAILQ_INSERT_TAIL(&turns->waiters, &self, next);
    while (!self.has_turn) {
        if (!muster_condition_wait(&turns->passed, &turns->mutex, deadline_ns) && !self.has_turn) {
            STAILQ_REMOVE(&turns->waiters, &self, muster_turn_waiter, next);
            atomic_store(&turns->missed, true);
            return false;
        }
    }
    return true;
}

void muster_turns_pass(struct muster_turns *turns)
{
    AUTO_LOCK(&turns->mutex);
    struct muster_turn_waiter *first = STAILQ_FIRST(&turns->waiters);
    if (first == NULL) { /* it has given up */
        atomic_store(&turns->state, MUSTER_TURNS_FREE);
        return;
    }
    STAILQ_REMOVE_HEAD(&turns->waiters, next);
    first->has_turn = true;
    set_state_locked(turns);
    (void)pthread_cond_broadcast(&turns->passed);
}
