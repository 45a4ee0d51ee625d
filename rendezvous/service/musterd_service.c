/* The life of the service: start, what the clock thread does for each job, and the end. */
#include "rendezvous/service/musterd_service.h"

#include "rendezvous/service/damaged_jobs.h"
#include "rendezvous/service/job_events.h"
#include "rendezvous/service/journal.h"
#include "rendezvous/service/ownership.h"
#include "rendezvous/service/quotas.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    REMOVE_RETRY_MS = 1000, /* between attempts to remove an ended job from the store */
    KEEP_ENDED_MS = 3600 * 1000,
    SERVER_LEASE_MS = 5000,
    HOLD_MS = 1000,
    WATCH_MS = 30000,
};

void muster_service_config_init(struct muster_service_config *config)
{
    *config = (struct muster_service_config){.hold_ms = HOLD_MS,
                                             .watch_ms = WATCH_MS,
                                             .jobs_max = MUSTER_JOBS_MAX,
                                             .jobs_per_address = MUSTER_JOBS_PER_ADDRESS,
                                             .keep_ended_ms = KEEP_ENDED_MS,
                                             .url = "",
                                             .server_lease_ms = SERVER_LEASE_MS};
    muster_job_settings_init(&config->settings);
}

/* Time ---------------------------------------------------------------------------------------- */

static void forget_if_due(struct muster_transaction *transaction, int64_t now_ns)
{
    struct muster_service *service = transaction->service;
    struct muster_job *job = transaction->job;
    int64_t at_ns = job->ended_ns + (int64_t)service->config.keep_ended_ms * MUSTER_NS_PER_MS;
    if (at_ns > now_ns) {
        muster_job_schedule(service, job, at_ns);
        return;
    }
    if (service->store->ops->remove(service->store, job->name) == MUSTER_OK) {
        job->removed = true;
        muster_transaction_wrote(transaction);
        muster_log(MUSTER_LOG_INFO, "job=%s forgotten", job->name);
    } else {
        muster_log(MUSTER_LOG_WARN, "job=%s stays in the store: %s", job->name,
                   muster_last_error());
        muster_job_schedule(service, job, muster_clock_after_ms(REMOVE_RETRY_MS));
    }
}

/* The table of jobs is full, and the address that made this one has many. */
static void give_way(struct muster_transaction *transaction)
{
    struct muster_event event = {.kind = MUSTER_EVENT_END};
    (void)snprintf(event.why, sizeof event.why,
                   "it had not formed, and gave way to a job of another address");
    if (muster_job_accept(transaction, &event) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "job=%s does not give way: %s", transaction->job->name,
                   muster_last_error());
    }
    transaction->job->gives_way = false;
}

/* Runs a job whose time has come: events that are due, an ended job that is to be forgotten, held
 * requests whose time is over. Then schedules it for its next deadline. */
static void run_job(struct muster_transaction *transaction, void *user)
{
    (void)user;
    struct muster_job *job = transaction->job;
    int64_t now_ns = muster_clock_ns();
    muster_job_detect_pause(job);
    job->due_ns = MUSTER_NEVER;
    if (job->gives_way && job->ended_ns == 0) {
        give_way(transaction);
    }
    muster_job_end_grace(transaction, now_ns);
    if (job->ended_ns == 0) {
        muster_job_accept_due(transaction);
    }
    if (job->ended_ns != 0) {
        forget_if_due(transaction, now_ns);
    }
    if (muster_doubts_renew(&job->doubts, job->membership, now_ns)) {
        muster_doubts_ask_held(transaction);
    }
    muster_job_schedule(transaction->service, job, muster_doubts_next_ns(&job->doubts));
    muster_transaction_expire(transaction, now_ns);
    muster_job_schedule(transaction->service, job,
                        muster_held_requests_next_ns(&job->held_requests));
}

static int64_t tick(void *user)
{
    return muster_transaction_each(user, muster_clock_ns(), run_job, NULL);
}

/* Life ---------------------------------------------------------------------------------------- */

static muster_status start_compactor(struct muster_service *service)
{
    if (service->config.without_threads) {
        muster_compactor_drive(&service->compactor);
        return MUSTER_OK;
    }
    return muster_compactor_start(&service->compactor);
}

static muster_status start_threads(struct muster_service *service)
{
    if (service->config.without_threads) {
        return MUSTER_OK;
    }
    TRY(muster_commits_start(&service->commits));
    return muster_clock_thread_start(&service->clock);
}

/* The jobs are loaded and have fresh leases before the clock thread can declare anybody dead. */
muster_status muster_service_create(const struct muster_service_config *config,
                                    struct muster_store *store, struct muster_service **ret_service)
{
    struct muster_service *service = calloc(1, sizeof *service);
    if (service == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    service->config = *config;
    service->store = store;
    muster_metrics_init(&service->metrics);
    muster_readiness_init(&service->readiness);
    muster_mutex_init(&service->table_mutex);
    muster_clock_thread_init(&service->clock, tick, service);
    muster_compactor_init(&service->compactor, service);
    muster_commits_init(&service->commits, store, &service->metrics);
    muster_ownership_init(&service->ownership, service);
    muster_status status = muster_journal_load(service);
    if (status == MUSTER_OK) {
        status = start_compactor(service);
    }
    if (status == MUSTER_OK) {
        status = muster_jobs_restart(service);
    }
    if (status == MUSTER_OK) {
        status = start_threads(service);
    }
    if (status == MUSTER_OK) {
        status = muster_ownership_start(service);
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
    struct muster_held_requests *requests = &transaction->job->held_requests;
    struct muster_held_request *held = NULL;
    while ((held = muster_held_requests_first(requests)) != NULL) {
        muster_transaction_respond(
            transaction, held,
            muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending"));
    }
}

void muster_service_quiesce(struct muster_service *service)
{
    atomic_store(&service->quiesced, true);
    (void)muster_transaction_each(service, MUSTER_NEVER, respond_to_all, NULL);
}

void muster_service_destroy(struct muster_service *service)
{
    if (service == NULL) {
        return;
    }
    muster_ownership_stop(service);
    muster_clock_thread_finish(&service->clock);
    muster_compactor_finish(&service->compactor);
    muster_commits_finish(&service->commits);
    struct muster_job *job;
    struct muster_job *next;
    HASH_ITER(hh, service->jobs, job, next)
    {
        HASH_DEL(service->jobs, job);
        muster_quotas_release_locked(service, job);
        muster_job_destroy(job);
    }
    muster_damaged_jobs_finish(service);
    (void)pthread_mutex_destroy(&service->table_mutex);
    muster_readiness_finish(&service->readiness);
    muster_ownership_finish(&service->ownership);
    free(service);
}
