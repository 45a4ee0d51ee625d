/* A thread that sleeps until a given time, calls a function, and sleeps until the time that the
 * function returns. It is independent of jobs. */
#ifndef MUSTER_RENDEZVOUS_SERVICE_CLOCK_THREAD_H
#define MUSTER_RENDEZVOUS_SERVICE_CLOCK_THREAD_H

#include "worker/base/status.h"
#include "worker/base/thread.h"

#include <stdint.h>

struct muster_clock_thread {
    int64_t (*tick)(void *user); /* does what is due; returns when the next is */
    void *user;
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t wake_ns; /* under the lock */
    bool stopping;   /* under the lock */
};

/* Prepares zeroed storage: wake_by may be called from now on, tick is not before start. */
void muster_clock_thread_init(struct muster_clock_thread *clock, int64_t (*tick)(void *user),
                              void *user);
MUSTER_CHECKED muster_status muster_clock_thread_start(struct muster_clock_thread *clock);
/* Stops the thread, if it was started; tick is not called any more. */
void muster_clock_thread_finish(struct muster_clock_thread *clock);

/* Without the thread: one of its rounds, and when the next is due. */
void muster_clock_thread_run_once(struct muster_clock_thread *clock);
int64_t muster_clock_thread_next_ns(struct muster_clock_thread *clock);

/* tick is called at at_ns at the latest. Any thread. */
void muster_clock_thread_wake_by(struct muster_clock_thread *clock, int64_t at_ns);

#endif
