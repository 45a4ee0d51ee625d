/*
 * The turns of a context's callers: one call runs at a time, in the order in which the callers
 * came. A mutex would do neither that nor have deadlines; and no lock is held during a turn,
 * because a user's function may run in it. A turn that nobody else wants costs two atomic
 * operations.
 *
 * Private to the context. May use: base. Threads: any.
 */
#ifndef MUSTER_WORKER_CONTEXT_TURNS_H
#define MUSTER_WORKER_CONTEXT_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum muster_turn_state {
    MUSTER_TURNS_FREE = 0,
    MUSTER_TURNS_TAKEN = 1,
    MUSTER_TURNS_AWAITED = 2, /* taken, and its end is to be told */
};

struct muster_turn_waiter {
    bool has_turn;
    STAILQ_ENTRY(muster_turn_waiter) next;
};

struct muster_turns {
    atomic_uint state;  /* changed from or to AWAITED with the mutex only */
    atomic_bool missed; /* a caller's deadline has passed while it waited */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t passed; /* a turn, to a waiter */
    STAILQ_HEAD(muster_turn_waiters, muster_turn_waiter) waiters;
    uint64_t waits; /* callers that have had to wait */
};

void muster_turns_init(struct muster_turns *turns);
void muster_turns_finish(struct muster_turns *turns);

bool muster_turns_acquire_slowly(struct muster_turns *turns, int64_t deadline_ns);
void muster_turns_pass(struct muster_turns *turns);

/* Waits for the caller's turn. False: the deadline passed first; MUSTER_NEVER: never, as each turn
 * ends by the deadline of its caller. */
static inline bool muster_turns_acquire(struct muster_turns *turns, int64_t deadline_ns)
{
    unsigned expected = MUSTER_TURNS_FREE;
    return atomic_compare_exchange_strong_explicit(&turns->state, &expected, MUSTER_TURNS_TAKEN,
                                                   memory_order_acquire, memory_order_relaxed) ||
           muster_turns_acquire_slowly(turns, deadline_ns);
}

static inline void muster_turns_release(struct muster_turns *turns)
{
    unsigned expected = MUSTER_TURNS_TAKEN;
    if (!atomic_compare_exchange_strong_explicit(&turns->state, &expected, MUSTER_TURNS_FREE,
                                                 memory_order_release, memory_order_relaxed)) {
        muster_turns_pass(turns);
    }
}

/* Whether a caller has missed its turn: the calls of this member no longer have the numbers that
 * the other members give them. */
static inline bool muster_turns_missed(const struct muster_turns *turns)
{
    return atomic_load(&turns->missed);
}

#endif
