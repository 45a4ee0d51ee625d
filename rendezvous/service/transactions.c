/* Job transactions, and the requests that are held and answered in them. */
#include "rendezvous/service/transactions.h"

#include "rendezvous/service/damaged_jobs.h"
#include "rendezvous/service/quotas.h"
#include "worker/base/clock.h"
#include "worker/base/keepalive.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Of a client's timeout an eighth is left for the response to reach it, and no more than: */
    RESPONSE_MAX_MS = 1000,
    /* How long a Watch is held after a change that all were told: below keepalive's idle time. */
    CROWD_MAX_MS = (MUSTER_KEEPALIVE_IDLE_S - 1) * 1000,
};

static void unlock_job(struct muster_service *service, struct muster_job *job)
{
    bool removed = job->removed;
    muster_mutex_unlock(&job->mutex);
    muster_jobs_release(service, job, removed);
}

/* Holds and locks the job; NULL as muster_jobs_hold(). A job that was removed between the two locks
 * leaves the table, and the search begins again: it may have a successor. */
static struct muster_job *lock_job(struct muster_service *service, const char *name,
                                   struct muster_rpc_call *creator)
{
    for (;;) {
        struct muster_job *job = muster_jobs_hold(service, name, creator);
        if (job == NULL) {
            return NULL;
        }
        muster_mutex_lock(&job->mutex);
        if (!job->removed) {
            return job;
        }
        unlock_job(service, job);
    }
}

static bool begin(struct muster_rpc_call *call, const char *name, struct muster_job *job,
                  struct muster_transaction *ret_transaction)
{
    if (!call->needs_no_token && !muster_token_matches(job->token, call->request->token)) {
        call->response = muster_rpc_response_error(
            MUSTER_RPC_UNAUTHENTICATED, "job %s: %s", name,
            call->request->token == NULL ? "needs a token, and the request has none"
                                         : "the token of the request is not the job's");
        unlock_job(call->service, job);
        return false;
    }
    call->claim = job->claim;
    *ret_transaction =
        (struct muster_transaction){.service = call->service, .job = job, .call = call};
    return true;
}

bool muster_transaction_begin(struct muster_rpc_call *call, const char *name,
                              struct muster_transaction *ret_transaction)
{
    struct muster_job *job = lock_job(call->service, name, NULL);
    if (job == NULL && muster_damaged_jobs_refuse(call, name)) {
        return false;
    }
    if (job == NULL) {
        call->response =
            muster_rpc_response_error(MUSTER_RPC_NOT_FOUND, "job %s is not known here", name);
        return false;
    }
    return begin(call, name, job, ret_transaction);
}

bool muster_transaction_begin_or_create(struct muster_rpc_call *call, const char *name,
                                        struct muster_transaction *ret_transaction)
{
    if (muster_damaged_jobs_refuse(call, name)) {
        return false;
    }
    struct muster_job *job = lock_job(call->service, name, call);
    return job != NULL && begin(call, name, job, ret_transaction);
}

bool muster_transaction_begin_internal(struct muster_service *service, const char *name,
                                       struct muster_transaction *ret_transaction)
{
    struct muster_job *job = lock_job(service, name, NULL);
    if (job != NULL) {
        *ret_transaction = (struct muster_transaction){.service = service, .job = job};
    }
    return job != NULL;
}

void muster_transaction_wrote(struct muster_transaction *transaction)
{
    transaction->job->written = muster_commits_ticket(&transaction->service->commits);
}

void muster_transaction_end(struct muster_transaction *transaction)
{
    transaction->job->removed = transaction->job->removed || transaction->job->event_count == 0;
    uint64_t written = transaction->job->written;
    muster_quotas_count_values(transaction->service, transaction->job);
    if (transaction->call != NULL) {
        transaction->call->written = written;
    }
    for (struct muster_held_request *held = transaction->responses.first; held != NULL;
         held = held->next) {
        held->claim = transaction->job->claim;
    }
    unlock_job(transaction->service, transaction->job);
    muster_commits_send(&transaction->service->commits, &transaction->responses, written);
}

int64_t muster_transaction_each(struct muster_service *service, int64_t due_ns,
                                void (*run)(struct muster_transaction *transaction, void *user),
                                void *user)
{
    struct muster_job *due[MUSTER_JOBS_MAX];
    int64_t next_ns;
    size_t count = muster_jobs_hold_due(service, due_ns, due, &next_ns);
    for (size_t i = 0; i < count; i++) {
        struct muster_transaction transaction = {.service = service, .job = due[i]};
        muster_mutex_lock(&due[i]->mutex);
        if (!due[i]->removed) {
            run(&transaction, user);
        }
        muster_transaction_end(&transaction);
    }
    return next_ns;
}

/* Held requests ------------------------------------------------------------------------------- */

bool muster_transaction_hold(struct muster_transaction *transaction, struct muster_rpc_call *call,
                             const struct muster_held_kind *kind, uint32_t hold_ms)
{
    struct muster_service *service = transaction->service;
    if (atomic_load(&service->quiesced)) {
        call->response = muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending");
        return true;
    }
    struct muster_held_request *held = call->held;
    held->kind = kind;
    held->method = call->request->method;
    (void)atomic_fetch_add(&service->metrics.held, 1);
    (void)snprintf(held->id.job, sizeof held->id.job, "%s", transaction->job->name);
    held->id.serial = atomic_fetch_add(&service->serials, 1) + 1;
    held->id.forwarded = call->request->forwarded;
    uint32_t timeout_ms = call->request->timeout_ms;
    timeout_ms -= timeout_ms / 8 < RESPONSE_MAX_MS ? timeout_ms / 8 : RESPONSE_MAX_MS;
    if (muster_rpc_call_failed(
            call, muster_held_requests_add(&transaction->job->held_requests, held,
                                           hold_ms < timeout_ms ? hold_ms : timeout_ms))) {
        return true;
    }
    if (kind->of_member) {
        muster_membership_begin_hold(transaction->job->membership, held->id.member);
    }
    muster_job_schedule(service, transaction->job, held->deadline_ns);
    return false;
}

void muster_transaction_expect_forwarded(struct muster_transaction *transaction, const char *member)
{
    struct muster_job *job = transaction->job;
    int64_t until_ns = muster_clock_after_ms(1000 * MUSTER_KEEPALIVE_ENDS_S);
    muster_membership_begin_hold(job->membership, member);
    job->unheard_until_ns = until_ns > job->unheard_until_ns ? until_ns : job->unheard_until_ns;
    muster_job_schedule(transaction->service, job, job->unheard_until_ns);
}

/* The member's lease begins. From now on the job is looked at so often that a pause of the server
 * is noticed before it is taken for the member's. */
static void begin_lease(struct muster_transaction *transaction, const struct muster_held_id *id)
{
    struct muster_job *job = transaction->job;
    if (id->forwarded) {
        muster_transaction_expect_forwarded(transaction, id->member);
        return;
    }
    muster_membership_end_hold(job->membership, id->member, muster_job_now_ms(job));
    muster_job_schedule(transaction->service, job, muster_clock_after_ms(muster_job_check_ms(job)));
}

void muster_transaction_respond(struct muster_transaction *transaction,
                                struct muster_held_request *held,
                                struct muster_rpc_response response)
{
    struct muster_metrics *metrics = &transaction->service->metrics;
    muster_held_requests_remove(&transaction->job->held_requests, held);
    if (held->kind->of_member) {
        begin_lease(transaction, &held->id);
    }
    (void)atomic_fetch_sub(&metrics->held, 1);
    muster_metrics_response(metrics, held->method, response.code);
    muster_ready_responses_add(&transaction->responses, held, response);
}

static void respond_ready(struct muster_transaction *transaction, struct muster_held_request *list)
{
    struct muster_held_request *next;
    for (struct muster_held_request *held = list; held != NULL; held = next) {
        struct muster_rpc_response response;
        next = held->next;
        if (held->kind->ready(transaction, held, &response)) {
            muster_transaction_respond(transaction, held, response);
        }
    }
}

uint32_t muster_transaction_watch_ms(const struct muster_transaction *transaction,
                                     const char *member)
{
    const int64_t idle_ns = (int64_t)MUSTER_KEEPALIVE_IDLE_S * 1000 * MUSTER_NS_PER_MS;
    uint32_t most_ms = transaction->service->config.watch_ms;
    uint32_t least_ms = most_ms - most_ms / 4;
    unsigned hash = 0;
    HASH_JEN(member, strlen(member), hash);
    if (muster_clock_ns() - transaction->job->crowd_ns < idle_ns) {
        most_ms = most_ms < CROWD_MAX_MS ? most_ms : CROWD_MAX_MS;
        least_ms = most_ms / 4;
    }
    return most_ms - (uint32_t)((uint64_t)(most_ms - least_ms) * (hash % 1024) / 1024);
}

void muster_transaction_expect_crowd(struct muster_transaction *transaction)
{
    transaction->job->crowd_ns = muster_clock_ns();
}

void muster_transaction_respond_ready(struct muster_transaction *transaction)
{
    muster_transaction_expect_crowd(transaction);
    respond_ready(transaction, transaction->job->held_requests.members);
    respond_ready(transaction, transaction->job->held_requests.waits);
}

void muster_transaction_respond_ready_member(struct muster_transaction *transaction,
                                             const char *member)
{
    struct muster_held_request *held =
        muster_held_requests_find_member(&transaction->job->held_requests, member);
    struct muster_rpc_response response;
    if (held != NULL && held->kind->ready(transaction, held, &response)) {
        muster_transaction_respond(transaction, held, response);
    }
}

void muster_transaction_respond_ready_waits(struct muster_transaction *transaction)
{
    respond_ready(transaction, transaction->job->held_requests.waits);
}

void muster_transaction_respond_ready_viewers(struct muster_transaction *transaction)
{
    respond_ready(transaction, transaction->job->held_requests.viewers);
}

void muster_transaction_expire(struct muster_transaction *transaction, int64_t now_ns)
{
    const struct muster_held_requests *requests = &transaction->job->held_requests;
    struct muster_held_request *held = muster_held_requests_first(requests);
    while (held != NULL && held->deadline_ns <= now_ns) {
        muster_transaction_respond(transaction, held, held->kind->expire(transaction, held));
        held = muster_held_requests_first(requests);
    }
}

/* False: they were asked a moment ago. */
static bool may_ask(const struct muster_transaction *transaction, int64_t now_ns)
{
    struct muster_job *job = transaction->job;
    int64_t lease_ns =
        (int64_t)muster_membership_settings(job->membership).lease_ms * MUSTER_NS_PER_MS;
    int64_t most_ns = (int64_t)transaction->service->config.watch_ms * MUSTER_NS_PER_MS;
    int64_t since_ns = now_ns - job->asked_ns;
    if (job->asked_ns != 0 && since_ns < job->ask_pause_ns) {
        return false;
    }
    bool again = job->asked_ns != 0 && since_ns < 2 * job->ask_pause_ns;
    int64_t pause_ns = again ? 2 * job->ask_pause_ns : lease_ns;
    job->ask_pause_ns = pause_ns < most_ns ? pause_ns : most_ns;
    job->asked_ns = now_ns;
    return true;
}

void muster_transaction_ask(struct muster_transaction *transaction)
{
    struct muster_held_request *held = transaction->job->held_requests.members;
    if (!may_ask(transaction, muster_clock_ns())) {
        return;
    }
    muster_transaction_expect_crowd(transaction);
    while (held != NULL) {
        struct muster_held_request *next = held->next;
        if (held->kind->ends_by_ask) {
            muster_transaction_respond(transaction, held, held->kind->expire(transaction, held));
        }
        held = next;
    }
}
