/* The service's life, and what time brings to its jobs. */
#include "rendezvous/service/jobs.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdlib.h>

enum {
    NS_PER_MS = 1000000,
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

static void expire(struct muster_transaction *transaction, int64_t now_ns)
{
    struct muster_held_requests *held_requests = &transaction->job->held_requests;
    while (held_requests->members != NULL && held_requests->members->deadline_ns <= now_ns) {
        struct muster_held_request *held = held_requests->members;
        muster_job_respond(transaction, held, muster_members_expire(transaction, held));
    }
    while (held_requests->waits != NULL && held_requests->waits->deadline_ns <= now_ns) {
        struct muster_held_request *held = held_requests->waits;
        muster_job_respond(transaction, held, muster_values_expire(held));
    }
}

static void forget_ended(struct muster_transaction *transaction, int64_t now_ns)
{
    struct muster_job *job = transaction->job;
    struct muster_store *store = transaction->service->store;
    int64_t at_ns = job->ended_ns + (int64_t)transaction->service->config.keep_ended_ms * NS_PER_MS;
    if (at_ns > now_ns) {
        muster_job_schedule(transaction->service, job, at_ns);
        return;
    }
    if (store->ops->remove(store, job->name) == MUSTER_OK) {
        job->removed = true;
        muster_log(MUSTER_LOG_INFO, "job=%s forgotten", job->name);
    } else {
        muster_log(MUSTER_LOG_WARN, "job=%s stays: %s", job->name, muster_last_error());
        muster_job_schedule(transaction->service, job,
                            now_ns + (int64_t)STORE_RETRY_MS * NS_PER_MS);
    }
}

static void look(struct muster_transaction *transaction, void *user)
{
    (void)user;
    struct muster_job *job = transaction->job;
    int64_t now_ns = muster_clock_ns();
    muster_job_check_lateness(job);
    job->next_ns = MUSTER_NEVER;
    if (job->ended_ns == 0) {
        muster_job_apply_due(transaction);
    }
    if (job->ended_ns != 0) {
        forget_ended(transaction, now_ns);
    }
    expire(transaction, now_ns);
    muster_job_schedule(transaction->service, job,
                        muster_held_requests_next_ns(&job->held_requests));
}

/* Looks at each job whose time has come. */
static int64_t tick(struct muster_service *service)
{
    return muster_transaction_each(service, muster_clock_ns(), look, NULL);
}

static void respond_ready(struct muster_transaction *transaction)
{
    muster_members_respond_ready(transaction);
    muster_values_respond_ready(transaction);
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
    service->respond_ready = respond_ready;
    service->wake_ns = MUSTER_NEVER;
    muster_mutex_init(&service->table_mutex);
    muster_mutex_init(&service->clock_mutex);
    muster_condition_init(&service->clock_condition);
    muster_status status = muster_jobs_load(service);
    if (status == MUSTER_OK) {
        status = muster_clock_thread_start(service);
    }
    if (status != MUSTER_OK) {
        muster_service_destroy(service);
        return status;
    }
    *ret_service = service;
    return MUSTER_OK;
}

static void respond_to_all(struct muster_transaction *transaction, void *user)
{
    (void)user;
    struct muster_held_requests *held_requests = &transaction->job->held_requests;
    while (held_requests->members != NULL || held_requests->waits != NULL) {
        struct muster_held_request *held =
            held_requests->members != NULL ? held_requests->members : held_requests->waits;
        muster_job_respond(transaction, held,
                           muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending"));
    }
}

void muster_service_quiesce(struct muster_service *service)
{
    atomic_store(&service->quiet, true);
    (void)muster_transaction_each(service, MUSTER_NEVER, respond_to_all, NULL);
}

void muster_service_destroy(struct muster_service *service)
{
    if (service == NULL) {
        return;
    }
    muster_clock_thread_stop(service);
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
