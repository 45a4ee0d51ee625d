/* Locks that cannot fail, and conditions on the monotonic clock. */
#include "worker/base/thread.h"

#include "worker/base/clock.h"

#include <assert.h>
#include <signal.h>

void muster_mutex_init(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_init(mutex, NULL);
    assert(failed == 0);
    (void)failed;
}

void muster_mutex_lock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_lock(mutex);
    assert(failed == 0);
    (void)failed;
}

void muster_mutex_unlock(pthread_mutex_t *mutex)
{
    int failed = pthread_mutex_unlock(mutex);
    assert(failed == 0);
    (void)failed;
}

void muster_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(condition, &attributes);
    assert(failed == 0);
    (void)failed;
    (void)pthread_condattr_destroy(&attributes);
}

bool muster_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    if (deadline_ns == MUSTER_NEVER) {
        return pthread_cond_wait(condition, mutex) == 0;
    }
    const struct timespec until = muster_clock_timespec(deadline_ns);
    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}

int muster_thread_start(pthread_t *ret_thread, void *(*run)(void *user), void *user)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits the mask */
    int error = pthread_create(ret_thread, NULL, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
