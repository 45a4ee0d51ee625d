/* Claims jobs in a shared store, and drops those whose claims are lost. */
#include "rendezvous/service/ownership.h"

#include "rendezvous/service/damaged_jobs.h"
#include "rendezvous/service/job_events.h"
#include "rendezvous/service/journal.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdio.h>
#include <string.h>

/* Losing --------------------------------------------------------------------------------------- */

static void drop_if_lost(struct muster_transaction *transaction, void *user)
{
    struct muster_job *job = transaction->job;
    struct muster_held_request *held = NULL;
    (void)user;
    if (muster_ownership_check(transaction->service->store, job->claim) == MUSTER_OK) {
        return;
    }
    while ((held = muster_held_requests_first(&job->held_requests)) != NULL) {
        muster_transaction_respond(
            transaction, held,
            muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "%s", muster_last_error()));
    }
    muster_log(MUSTER_LOG_INFO, "job=%s dropped: %s", job->name, muster_last_error());
    job->removed = true;
}

static void drop_lost(void *user)
{
    struct muster_service *service = user;
    (void)muster_transaction_each(service, MUSTER_NEVER, drop_if_lost, NULL);
    if (muster_ownership_check(service->store, 0) != MUSTER_OK) {
        muster_damaged_jobs_forget(service);
    }
}

/* Claiming ------------------------------------------------------------------------------------- */

/* True: this server has the job. One whose claim is lost is dropped. */
static bool has_job(struct muster_service *service, const char *name)
{
    struct muster_job *job = muster_jobs_hold(service, name, NULL);
    if (job == NULL) {
        return false;
    }
    uint64_t claim = job->claim;
    muster_jobs_release(service, job, false);
    if (muster_ownership_check(service->store, claim) == MUSTER_OK) {
        return true;
    }
    struct muster_transaction transaction;
    if (muster_transaction_begin_internal(service, name, &transaction)) {
        drop_if_lost(&transaction, NULL);
        muster_transaction_end(&transaction);
    }
    return false;
}

/* Puts a job that was read into the table, and gives its members fresh leases. */
static muster_status enter(struct muster_service *service, struct muster_job *job)
{
    struct muster_transaction transaction;
    char name[MUSTER_JOB_NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s", job->name);
    job->restart_pending = true;
    muster_mutex_lock(&service->table_mutex);
    muster_status status = muster_jobs_add_locked(service, job);
    muster_mutex_unlock(&service->table_mutex);
    TRY(status);
    if (muster_transaction_begin_internal(service, name, &transaction)) {
        muster_log(MUSTER_LOG_INFO, "job=%s is served here from now on", name);
        muster_job_resume(&transaction);
        muster_transaction_end(&transaction);
    }
    return MUSTER_OK;
}

static pthread_mutex_t *lock_of(struct muster_service *service, const char *name)
{
    unsigned hash = 0;
    HASH_JEN(name, strlen(name), hash);
    return &service->ownership.claiming[hash % MUSTER_CLAIM_LOCKS];
}

/* Nobody else claims the same job meanwhile. */
static muster_status claim(struct muster_service *service, const char *name, bool creates,
                           struct muster_store_claim *ret_claim)
{
    struct muster_job *job = NULL;
    *ret_claim = (struct muster_store_claim){0};
    AUTO_LOCK(lock_of(service, name));
    if (has_job(service, name)) {
        return MUSTER_OK;
    }
    TRY(muster_journal_claim(service, name, creates, ret_claim, &job));
    if (job == NULL) {
        return MUSTER_OK;
    }
    job->claim = ret_claim->number;
    return enter(service, job);
}

static void set_owner(struct muster_rpc_call *call, const char *name, const char *owner)
{
    call->response =
        muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "job %s is served by %s", name, owner);
    call->response.owner = strdup(owner);
}

bool muster_ownership_ensure(struct muster_rpc_call *call, const char *name, bool creates)
{
    struct muster_service *service = call->service;
    struct muster_store_claim found = {0};
    if (service->store->shared == NULL || !muster_job_name_valid(name) || has_job(service, name)) {
        return true;
    }
    muster_status status = claim(service, name, creates, &found);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "job %s: %s", name,
                                                   muster_last_error());
        return false;
    }
    if (found.owner[0] != '\0') {
        set_owner(call, name, found.owner);
        return false;
    }
    call->claim = found.number;
    return true;
}

void muster_ownership_conclude(struct muster_service *service, uint64_t claim)
{
    if (claim != 0) {
        service->store->shared->release(service->store, claim);
        (void)muster_commits_ticket(&service->commits);
    }
}

static void adopt(void *user, const char *name)
{
    struct muster_service *service = user;
    struct muster_store_claim found;
    if (muster_job_name_valid(name) && claim(service, name, false, &found) != MUSTER_OK) {
        muster_log(MUSTER_LOG_WARN, "job=%s has no owner, and is not claimed: %s", name,
                   muster_last_error());
    }
}

/* Life ----------------------------------------------------------------------------------------- */

void muster_ownership_init(struct muster_ownership *ownership, struct muster_service *service)
{
    for (size_t i = 0; i < MUSTER_CLAIM_LOCKS; i++) {
        muster_mutex_init(&ownership->claiming[i]);
    }
    ownership->watcher =
        (struct muster_store_watcher){.lost = drop_lost, .ownerless = adopt, .user = service};
}

void muster_ownership_finish(struct muster_ownership *ownership)
{
    for (size_t i = 0; i < MUSTER_CLAIM_LOCKS; i++) {
        (void)pthread_mutex_destroy(&ownership->claiming[i]);
    }
}

muster_status muster_ownership_start(struct muster_service *service)
{
    struct muster_store *store = service->store;
    const struct muster_store_sharing sharing = {
        .url = service->config.url,
        .lease_ms = service->config.server_lease_ms,
        .without_threads = service->config.without_threads,
    };
    return store->shared == NULL
               ? MUSTER_OK
               : store->shared->start(store, &sharing, &service->ownership.watcher);
}

void muster_ownership_stop(struct muster_service *service)
{
    if (service->store->shared != NULL) {
        service->store->shared->stop(service->store);
    }
}
