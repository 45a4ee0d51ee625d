/*
 * The floor: locks that cannot fail, and the order in which they are taken.
 *
 * Lock order: a thread that holds a lock may only take locks further down.
 *   worker      1. session: rejoin, state, client, mutex (in this order), clients; the table of
 *               operations; an engine of named tensors, then the table of engines
 *               2. context; its calls in flight; the progress engine   3. fabric, then the finder
 *               of its peers
 *               4. one end of a link   5. unmap_watch.c: start_mutex, then mutex (a thread that
 *               holds that one neither allocates, frees nor unmaps memory)
 *               6. log, timeline   7. fork guard: also held by fork()
 *   musterd     1. table of jobs   2. one job   3. store   4. clock thread, commits,
 *               compactor   5. log
 *               1. Horovod's jobs   2. clock thread   3. log
 *               with none of these: 1. one HTTP request   2. connections; queues
 *               with none of these: 1. readiness   2. store
 *               with none of these: claims of jobs, then all of the above; in an etcd store 1. what
 *               sends changes   2. its jobs   3. connections
 * No callback of a user runs under a lock.
 */
#ifndef MUSTER_WORKER_BASE_THREAD_H
#define MUSTER_WORKER_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A failure of these can only be a bug of ours: they abort. */
void muster_mutex_init(pthread_mutex_t *mutex);
void muster_mutex_lock(pthread_mutex_t *mutex);
void muster_mutex_unlock(pthread_mutex_t *mutex);

/* A condition whose deadlines are times of muster_clock_ns(). Destroy it with
 * pthread_cond_destroy(). */
void muster_condition_init(pthread_cond_t *condition);
/* Returns when the condition is signalled, spuriously, or when the deadline has passed: then false.
 */
bool muster_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_ns);

/* Starts a thread that handles no signals: these are for the program's own threads. Returns 0 or
 * the error of pthread_create(). */
int muster_thread_start(pthread_t *ret_thread, void *(*run)(void *user), void *user);

static inline void muster_cleanup_unlock(pthread_mutex_t **mutex)
{
    if (*mutex != NULL) {
        muster_mutex_unlock(*mutex);
    }
}

/* Holds the mutex until the scope ends: `AUTO_LOCK(&job->mutex);`. At most one in a scope. */
#define AUTO_LOCK(mutex)                                                                           \
    __attribute__((cleanup(muster_cleanup_unlock), unused)) pthread_mutex_t *auto_lock_ = (mutex); \
    muster_mutex_lock(auto_lock_)

#endif
