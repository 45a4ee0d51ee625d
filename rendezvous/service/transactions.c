/* Job transactions, and the requests that are held and answered in them. */
#include "rendezvous/service/transactions.h"

#include "worker/base/clock.h"

#include <stdio.h>
#include <string.h>

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

/* Compares in constant time, so that the time does not show where two tokens differ. */
static bool token_matches(const struct muster_job *job, const char *token)
{
    char sent[sizeof job->token] = "";
    if (token != NULL && strlen(token) < sizeof sent) {
        (void)snprintf(sent, sizeof sent, "%s", token);
    }
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof sent; i++) {
        differs |= (unsigned char)(sent[i] ^ job->token[i]);
    }
    return job->token[0] == '\0' || differs == 0;
}

static bool begin(struct muster_rpc_call *call, const char *name, struct muster_job *job,
                  struct muster_transaction *ret_transaction)
{
    if (!token_matches(job, call->request->token)) {
        call->response = muster_rpc_response_error(
            MUSTER_RPC_UNAUTHENTICATED, "job %s: %s", name,
            call->request->token == NULL ? "needs a token, and the request has none"
                                         : "the token of the request is not the job's");
        unlock_job(call->service, job);
        return false;
    }
    *ret_transaction =
        (struct muster_transaction){.service = call->service, .job = job, .call = call};
    return true;
}

bool muster_transaction_begin(struct muster_rpc_call *call, const char *name,
                              struct muster_transaction *ret_transaction)
{
    struct muster_job *job = lock_job(call->service, name, NULL);
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
    if (transaction->call != NULL) {
        transaction->call->written = written;
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
    /* An eighth of the client's timeout is left for the response to reach it. */
    uint32_t timeout_ms = call->request->timeout_ms - call->request->timeout_ms / 8;
    if (muster_rpc_call_failed(
            call, muster_held_requests_add(&transaction->job->held_requests, held,
                                           hold_ms < timeout_ms ? hold_ms : timeout_ms))) {
        return true;
    }
    muster_job_schedule(service, transaction->job, held->deadline_ns);
    return false;
}

void muster_transaction_respond(struct muster_transaction *transaction,
                                struct muster_held_request *held,
                                struct muster_rpc_response response)
{
    struct muster_metrics *metrics = &transaction->service->metrics;
    muster_held_requests_remove(&transaction->job->held_requests, held);
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

void muster_transaction_respond_ready(struct muster_transaction *transaction)
{
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

static void expire(struct muster_transaction *transaction, struct muster_held_request *list,
                   int64_t now_ns)
{
    struct muster_held_request *next;
    for (struct muster_held_request *held = list; held != NULL && held->deadline_ns <= now_ns;
         held = next) {
        next = held->next;
        muster_transaction_respond(transaction, held, held->kind->expire(transaction, held));
    }
}

void muster_transaction_expire(struct muster_transaction *transaction, int64_t now_ns)
{
    expire(transaction, transaction->job->held_requests.members, now_ns);
    expire(transaction, transaction->job->held_requests.waits, now_ns);
    expire(transaction, transaction->job->held_requests.viewers, now_ns);
}
