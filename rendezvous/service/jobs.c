#include "rendezvous/service/jobs.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdio.h>
#include <string.h>

muster_status muster_job_create(const char *name, struct muster_job **ret_job)
{
    struct muster_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = muster_membership_create(&job->membership);
    if (status != MUSTER_OK) {
        free(job);
        return status;
    }
    muster_mutex_init(&job->mutex);
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    job->origin_ms = muster_clock_ms() - 1; /* no event is at 0, which means "not yet" in records */
    job->next_ns = MUSTER_NEVER;
    job->compact_at = MUSTER_EVENTS_TO_COMPACT;
    *ret_job = job;
    return MUSTER_OK;
}

void muster_job_destroy(struct muster_job *job)
{
    if (job == NULL) {
        return;
    }
    json_decref(job->formed);
    muster_values_finish(&job->values);
    muster_membership_destroy(job->membership);
    (void)pthread_mutex_destroy(&job->mutex);
    free(job);
}

int64_t muster_job_now_ms(const struct muster_job *job)
{
    return muster_clock_ms() - job->origin_ms;
}

void muster_job_schedule(struct muster_service *service, struct muster_job *job, int64_t at_ns)
{
    if (at_ns < job->next_ns) {
        job->next_ns = at_ns;
        muster_clock_thread_wake_by(service, at_ns);
    }
}

/* The table ----------------------------------------------------------------------------------- */

bool muster_jobs_add_locked(struct muster_service *service, struct muster_job *job)
{
    job->hh.tbl = NULL;
    HASH_ADD_STR(service->jobs, name, job);
    job->listed = job->hh.tbl != NULL;
    job->hold_count = job->listed ? 1 : 0;
    return job->listed;
}

static struct muster_job *find_locked(struct muster_service *service, const char *name)
{
    struct muster_job *job;
    HASH_FIND_STR(service->jobs, name, job);
    return job;
}

static void release_locked(struct muster_job *job)
{
    if (--job->hold_count == 0) {
        muster_job_destroy(job);
    }
}

static void unlist_locked(struct muster_service *service, struct muster_job *job)
{
    if (job->listed) {
        HASH_DEL(service->jobs, job);
        job->listed = false;
        release_locked(job);
    }
}

/* The job that ended first makes room. */
static bool evict_locked(struct muster_service *service)
{
    struct muster_job *oldest = NULL;
    int64_t oldest_ns = MUSTER_NEVER;
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        AUTO_LOCK(&job->mutex);
        if (job->ended_ns != 0 && job->ended_ns < oldest_ns) {
            oldest = job;
            oldest_ns = job->ended_ns;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    muster_mutex_lock(&oldest->mutex);
    bool gone = oldest->ended_ns == oldest_ns && /* nobody has begun it anew */
                service->store->ops->remove(service->store, oldest->name) == MUSTER_OK;
    oldest->removed = gone;
    muster_mutex_unlock(&oldest->mutex);
    if (gone) {
        unlist_locked(service, oldest);
    }
    return gone;
}

static struct muster_job *create_locked(struct muster_rpc_call *call, const char *name)
{
    struct muster_service *service = call->service;
    if (HASH_COUNT(service->jobs) >= MUSTER_JOBS_MAX && !evict_locked(service)) {
        call->response =
            muster_rpc_response_error(MUSTER_RPC_RESOURCE_EXHAUSTED,
                                      "job %s: there are %d jobs already", name, MUSTER_JOBS_MAX);
        return NULL;
    }
    struct muster_job *job = NULL;
    muster_status status = muster_job_create(name, &job);
    if (status == MUSTER_OK && !muster_jobs_add_locked(service, job)) {
        muster_job_destroy(job);
        status = muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return NULL;
    }
    (void)snprintf(job->token, sizeof job->token, "%s",
                   call->request->token != NULL ? call->request->token : "");
    muster_random_hex((MUSTER_LINK_TOKEN_SIZE - 1) / 2, job->link_token);
    return job;
}

/* Visits -------------------------------------------------------------------------------------- */

static void unlock_job(struct muster_service *service, struct muster_job *job)
{
    bool removed = job->removed;
    muster_mutex_unlock(&job->mutex);
    AUTO_LOCK(&service->table_mutex);
    if (removed) {
        unlist_locked(service, job);
    }
    release_locked(job);
}

/* Holds and locks the job; NULL: there is none. */
static struct muster_job *lock_job(struct muster_service *service, const char *name,
                                   struct muster_rpc_call *creator)
{
    for (;;) {
        muster_mutex_lock(&service->table_mutex);
        struct muster_job *job = find_locked(service, name);
        if (job == NULL && creator != NULL) {
            job = create_locked(creator, name);
        }
        if (job != NULL) {
            job->hold_count++;
        }
        muster_mutex_unlock(&service->table_mutex);
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

/* Takes equally long wherever they differ. */
static bool token_matches(const struct muster_job *job, const char *token)
{
    char given[sizeof job->token] = "";
    if (token != NULL && strlen(token) < sizeof given) {
        (void)snprintf(given, sizeof given, "%s", token);
    }
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof given; i++) {
        differs |= (unsigned char)(given[i] ^ job->token[i]);
    }
    return job->token[0] == '\0' || differs == 0;
}

static bool begin(struct muster_rpc_call *call, const char *name, struct muster_job *job,
                  struct muster_transaction *ret_visit)
{
    if (!token_matches(job, call->request->token)) {
        call->response = muster_rpc_response_error(MUSTER_RPC_UNAUTHENTICATED, "job %s: %s", name,
                                                   call->request->token == NULL
                                                       ? "it wants a token, and none was given"
                                                       : "this is not its token");
        unlock_job(call->service, job);
        return false;
    }
    *ret_visit = (struct muster_transaction){.service = call->service, .job = job};
    return true;
}

bool muster_transaction_begin(struct muster_rpc_call *call, const char *name,
                              struct muster_transaction *ret_visit)
{
    struct muster_job *job = lock_job(call->service, name, NULL);
    if (job == NULL) {
        call->response =
            muster_rpc_response_error(MUSTER_RPC_NOT_FOUND, "job %s is not known here", name);
        return false;
    }
    return begin(call, name, job, ret_visit);
}

bool muster_transaction_begin_or_create(struct muster_rpc_call *call, const char *name,
                                        struct muster_transaction *ret_visit)
{
    struct muster_job *job = lock_job(call->service, name, call);
    return job != NULL && begin(call, name, job, ret_visit);
}

bool muster_transaction_begin_internal(struct muster_service *service, const char *name,
                                       struct muster_transaction *ret_visit)
{
    struct muster_job *job = lock_job(service, name, NULL);
    if (job != NULL) {
        *ret_visit = (struct muster_transaction){.service = service, .job = job};
    }
    return job != NULL;
}

void muster_transaction_end(struct muster_transaction *transaction)
{
    transaction->job->removed = transaction->job->removed || transaction->job->event_count == 0;
    unlock_job(transaction->service, transaction->job);
    muster_ready_responses_send(&transaction->responses);
}

int64_t muster_transaction_each(struct muster_service *service, int64_t due_ns,
                                void (*look)(struct muster_transaction *transaction, void *user),
                                void *user)
{
    struct muster_job *due[MUSTER_JOBS_MAX];
    size_t count = 0;
    int64_t next_ns = MUSTER_NEVER;
    muster_mutex_lock(&service->table_mutex);
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        int64_t at_ns = job->next_ns;
        if (at_ns <= due_ns && count < MUSTER_JOBS_MAX) {
            job->hold_count++;
            due[count++] = job;
        } else if (at_ns < next_ns) {
            next_ns = at_ns;
        }
    }
    muster_mutex_unlock(&service->table_mutex);
    for (size_t i = 0; i < count; i++) {
        struct muster_transaction transaction = {.service = service, .job = due[i]};
        muster_mutex_lock(&due[i]->mutex);
        if (!due[i]->removed) {
            look(&transaction, user);
        }
        muster_transaction_end(&transaction);
    }
    return next_ns;
}

/* Held requests ------------------------------------------------------------------------------- */

void muster_job_respond(struct muster_transaction *transaction, struct muster_held_request *held,
                        struct muster_rpc_response response)
{
    muster_held_requests_remove(&transaction->job->held_requests, held);
    muster_ready_responses_add(&transaction->responses, held, response);
}

bool muster_job_hold(struct muster_transaction *transaction, struct muster_rpc_call *call,
                     uint32_t hold_ms)
{
    struct muster_service *service = transaction->service;
    if (atomic_load(&service->quiet)) {
        call->response = muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending");
        return true;
    }
    struct muster_held_request *held = call->held;
    held->method = call->request->method;
    (void)snprintf(held->job, sizeof held->job, "%s", transaction->job->name);
    held->serial = atomic_fetch_add(&service->serials, 1) + 1;
    uint32_t patience_ms = call->request->timeout_ms - call->request->timeout_ms / 8; /* and back */
    muster_held_requests_add(&transaction->job->held_requests, held,
                             hold_ms < patience_ms ? hold_ms : patience_ms);
    muster_job_schedule(service, transaction->job, held->deadline_ns);
    return false;
}
