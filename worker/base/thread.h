/*
 * The floor: locks that cannot fail, and the order in which they are taken.
 *
 * Lock order (a thread that holds one may only take ones further down):
 *   worker      1. session: rejoin, state, client, mutex (in this order)   2. context
 *               3. fabric   4. one end of a link   5. starting the watch over memory, then its list
 *               of what went away (unmap_watch.c; who has it allocates, frees and unmaps nothing)
 *               6. log, timeline
 *   musterd     1. table of jobs   2. one job   3. store   4. watchers   5. log
 * No callback of a user runs under a lock.
 */
#ifndef MUSTER_WORKER_BASE_THREAD_H
#define MUSTER_WORKER_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* pthread calls whose failure can only be our bug: they abort then. */
void muster_mutex_init(pthread_mutex_t *mutex);
void muster_mutex_lock(pthread_mutex_t *mutex);
void muster_mutex_unlock(pthread_mutex_t *mutex);

/* A condition that goes by muster_clock_ns(). Destroyed with pthread_cond_destroy(). */
void muster_condition_init(pthread_cond_t *condition);
/* Returns when signalled, without a reason, or when the deadline has passed: false then. */
bool muster_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_ns);

static inline void muster_cleanup_unlock(pthread_mutex_t **mutex)
{
    if (*mutex != NULL) {
        muster_mutex_unlock(*mutex);
    }
}

/* Holds the mutex until the scope ends: `AUTO_LOCK(&job->mutex);`. One a scope. */
#define AUTO_LOCK(mutex)                                                                           \
    __attribute__((cleanup(muster_cleanup_unlock), unused)) pthread_mutex_t *auto_lock_ = (mutex); \
    muster_mutex_lock(auto_lock_)

#endif
