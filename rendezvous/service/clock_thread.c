/* The clock's thread: sleeps until a job wants to be looked at. */
#include "rendezvous/service/jobs.h"
#include "worker/base/clock.h"

void muster_clock_thread_wake_by(struct muster_service *service, int64_t at_ns)
{
    AUTO_LOCK(&service->clock_mutex);
    if (at_ns < service->wake_ns) {
        service->wake_ns = at_ns;
        (void)pthread_cond_signal(&service->clock_condition);
    }
}

/* Sleeps until somebody's time has come; false: the end. */
static bool sleep_until_due(struct muster_service *service)
{
    AUTO_LOCK(&service->clock_mutex);
    while (!service->stopping && service->wake_ns > muster_clock_ns()) {
        (void)muster_condition_wait(&service->clock_condition, &service->clock_mutex,
                                    service->wake_ns);
    }
    service->wake_ns = MUSTER_NEVER;
    return !service->stopping;
}

static void *run(void *user)
{
    struct muster_service *service = user;
    while (sleep_until_due(service)) {
        muster_clock_thread_wake_by(service, service->tick(service));
    }
    return NULL;
}

muster_status muster_clock_thread_start(struct muster_service *service)
{
    int failed = pthread_create(&service->clock_thread, NULL, run, service);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    service->clock_runs = true;
    return MUSTER_OK;
}

void muster_clock_thread_stop(struct muster_service *service)
{
    if (!service->clock_runs) {
        return;
    }
    muster_mutex_lock(&service->clock_mutex);
    service->stopping = true;
    (void)pthread_cond_signal(&service->clock_condition);
    muster_mutex_unlock(&service->clock_mutex);
    (void)pthread_join(service->clock_thread, NULL);
    service->clock_runs = false;
}
