/* The clock thread: sleeps on a condition until the earliest requested time. */
#include "rendezvous/service/clock_thread.h"

#include "worker/base/clock.h"

void muster_clock_thread_init(struct muster_clock_thread *clock, int64_t (*tick)(void *user),
                              void *user)
{
    clock->tick = tick;
    clock->user = user;
    clock->wake_ns = MUSTER_NEVER;
    muster_mutex_init(&clock->mutex);
    muster_condition_init(&clock->changed);
}

void muster_clock_thread_wake_by(struct muster_clock_thread *clock, int64_t at_ns)
{
    AUTO_LOCK(&clock->mutex);
    if (at_ns < clock->wake_ns) {
        clock->wake_ns = at_ns;
        (void)pthread_cond_signal(&clock->changed);
    }
}

/* False: the thread is to end. */
static bool sleep_until_due(struct muster_clock_thread *clock)
{
    AUTO_LOCK(&clock->mutex);
    while (!clock->stopping && clock->wake_ns > muster_clock_ns()) {
        (void)muster_condition_wait(&clock->changed, &clock->mutex, clock->wake_ns);
    }
    clock->wake_ns = MUSTER_NEVER;
    return !clock->stopping;
}

void muster_clock_thread_run_once(struct muster_clock_thread *clock)
{
    muster_mutex_lock(&clock->mutex);
    clock->wake_ns = MUSTER_NEVER;
    muster_mutex_unlock(&clock->mutex);
    muster_clock_thread_wake_by(clock, clock->tick(clock->user));
}

int64_t muster_clock_thread_next_ns(struct muster_clock_thread *clock)
{
    AUTO_LOCK(&clock->mutex);
    return clock->wake_ns;
}

static void *run(void *user)
{
    struct muster_clock_thread *clock = user;
    while (sleep_until_due(clock)) {
        muster_clock_thread_wake_by(clock, clock->tick(clock->user));
    }
    return NULL;
}

muster_status muster_clock_thread_start(struct muster_clock_thread *clock)
{
    int failed = pthread_create(&clock->thread, NULL, run, clock);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    clock->runs = true;
    return MUSTER_OK;
}

void muster_clock_thread_finish(struct muster_clock_thread *clock)
{
    if (clock->runs) {
        muster_mutex_lock(&clock->mutex);
        clock->stopping = true;
        (void)pthread_cond_signal(&clock->changed);
        muster_mutex_unlock(&clock->mutex);
        (void)pthread_join(clock->thread, NULL);
        clock->runs = false;
    }
    (void)pthread_cond_destroy(&clock->changed);
    (void)pthread_mutex_destroy(&clock->mutex);
}
