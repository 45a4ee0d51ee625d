/* The service's life, and what time brings to its jobs. */
#include "rendezvous/service/jobs.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdlib.h>

enum {
    STORE_RETRY_MS = 1000, /* between ticks that the store does not take */
    KEEP_ENDED_MS = 3600 * 1000,
    HOLD_MS = 1000,
};

void muster_service_config_init(struct muster_service_config *config)
{
    *config = (struct muster_service_config){.hold_ms = HOLD_MS, .keep_ended_ms = KEEP_ENDED_MS};
    muster_job_settings_init(&config->settings);
}

/* One job ------------------------------------------------------------------------------------- */

static void expire(struct muster_visit *visit, int64_t now_ns)
{
    struct muster_watchers *watchers = &visit->job->watchers;
    while (watchers->members != NULL && watchers->members->deadline_ns <= now_ns) {
        struct muster_watcher *watcher = watchers->members;
        muster_job_answer(visit, watcher, muster_members_expire(visit, watcher));
    }
    while (watchers->waits != NULL && watchers->waits->deadline_ns <= now_ns) {
        struct muster_watcher *watcher = watchers->waits;
        muster_job_answer(visit, watcher, muster_values_expire(watcher));
    }
}

static void forget_ended(struct muster_visit *visit, int64_t now_ns)
{
    struct muster_job *job = visit->job;
    struct muster_store *store = visit->service->store;
    int64_t at_ns =
        job->ended_ns + (int64_t)visit->service->config.keep_ended_ms * MUSTER_NS_PER_MS;
    if (at_ns > now_ns) {
        muster_job_look_by(visit->service, job, at_ns);
        return;
    }
    if (store->ops->remove(store, job->name) == MUSTER_OK) {
        job->removed = true;
        muster_log(MUSTER_LOG_INFO, "job=%s forgotten", job->name);
    } else {
        muster_log(MUSTER_LOG_WARN, "job=%s stays: %s", job->name, muster_last_error());
        muster_job_look_by(visit->service, job,
                           now_ns + (int64_t)STORE_RETRY_MS * MUSTER_NS_PER_MS);
    }
}

static void look(struct muster_visit *visit, void *user)
{
    (void)user;
    struct muster_job *job = visit->job;
    int64_t now_ns = muster_clock_ns();
    muster_job_wake(job);
    job->next_ns = MUSTER_NEVER;
    if (job->ended_ns == 0) {
        muster_job_catch_up(visit);
    }
    if (job->ended_ns != 0) {
        forget_ended(visit, now_ns);
    }
    expire(visit, now_ns);
    muster_job_look_by(visit->service, job, muster_watchers_next_ns(&job->watchers));
}

/* Looks at each job whose time has come. */
static int64_t tick(struct muster_service *service)
{
    return muster_visit_each(service, muster_clock_ns(), look, NULL);
}

static void answer_ready(struct muster_visit *visit)
{
    muster_members_answer_ready(visit);
    muster_values_answer_ready(visit);
}

/* The service --------------------------------------------------------------------------------- */

muster_status muster_service_create(const struct muster_service_config *config,
                                    struct muster_store *store, struct muster_service **ret_service)
{
    struct muster_service *service = calloc(1, sizeof *service);
    if (service == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    service->config = *config;
    service->store = store;
    service->tick = tick;
    service->answer_ready = answer_ready;
    service->wake_ns = MUSTER_NEVER;
    muster_mutex_init(&service->table_mutex);
    muster_mutex_init(&service->clock_mutex);
    muster_condition_init(&service->clock_condition);
    muster_status status = muster_jobs_load(service);
    if (status == MUSTER_OK) {
        status = muster_clockwork_start(service);
    }
    if (status != MUSTER_OK) {
        muster_service_destroy(service);
        return status;
    }
    *ret_service = service;
    return MUSTER_OK;
}

static void answer_all(struct muster_visit *visit, void *user)
{
    (void)user;
    struct muster_watchers *watchers = &visit->job->watchers;
    while (watchers->members != NULL || watchers->waits != NULL) {
        struct muster_watcher *watcher =
            watchers->members != NULL ? watchers->members : watchers->waits;
        muster_job_answer(visit, watcher,
                          muster_answer_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending"));
    }
}

void muster_service_quiesce(struct muster_service *service)
{
    atomic_store(&service->quiet, true);
    (void)muster_visit_each(service, MUSTER_NEVER, answer_all, NULL);
}

void muster_service_destroy(struct muster_service *service)
{
    if (service == NULL) {
        return;
    }
    muster_clockwork_stop(service);
    struct muster_job *job;
    struct muster_job *next;
    HASH_ITER(hh, service->jobs, job, next)
    {
        HASH_DEL(service->jobs, job);
        muster_job_destroy(job);
    }
    (void)pthread_cond_destroy(&service->clock_condition);
    (void)pthread_mutex_destroy(&service->clock_mutex);
    (void)pthread_mutex_destroy(&service->table_mutex);
    free(service);
}
