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

void muster_job_look_by(struct muster_service *service, struct muster_job *job, int64_t at_ns)
{
    if (at_ns < job->next_ns) {
        job->next_ns = at_ns;
        muster_clockwork_wake_by(service, at_ns);
    }
}

/* The table ----------------------------------------------------------------------------------- */

bool muster_jobs_add_locked(struct muster_service *service, struct muster_job *job)
{
    job->hh.tbl = NULL;
    HASH_ADD_STR(service->jobs, name, job);
    job->listed = job->hh.tbl != NULL;
    job->holders = job->listed ? 1 : 0;
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
    if (--job->holders == 0) {
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

static struct muster_job *make_locked(struct muster_call *call, const char *name)
{
    struct muster_service *service = call->service;
    if (HASH_COUNT(service->jobs) >= MUSTER_JOBS_MAX && !evict_locked(service)) {
        call->answer =
            muster_answer_error(MUSTER_RPC_RESOURCE_EXHAUSTED, "job %s: there are %d jobs already",
                                name, MUSTER_JOBS_MAX);
        return NULL;
    }
    struct muster_job *job = NULL;
    muster_status status = muster_job_create(name, &job);
    if (status == MUSTER_OK && !muster_jobs_add_locked(service, job)) {
        muster_job_destroy(job);
        status = muster_error_set(MUSTER_FATAL, "no memory");
    }
    if (status != MUSTER_OK) {
        call->answer = muster_answer_status(status);
        return NULL;
    }
    (void)snprintf(job->token, sizeof job->token, "%s",
                   call->request->token != NULL ? call->request->token : "");
    muster_random_hex((MUSTER_LINK_TOKEN_SIZE - 1) / 2, job->link_token);
    return job;
}

/* Visits -------------------------------------------------------------------------------------- */

static void leave(struct muster_service *service, struct muster_job *job)
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
static struct muster_job *enter(struct muster_service *service, const char *name,
                                struct muster_call *maker)
{
    for (;;) {
        muster_mutex_lock(&service->table_mutex);
        struct muster_job *job = find_locked(service, name);
        if (job == NULL && maker != NULL) {
            job = make_locked(maker, name);
        }
        if (job != NULL) {
            job->holders++;
        }
        muster_mutex_unlock(&service->table_mutex);
        if (job == NULL) {
            return NULL;
        }
        muster_mutex_lock(&job->mutex);
        if (!job->removed) {
            return job;
        }
        leave(service, job);
    }
}

/* Takes equally long wherever they differ. */
static bool token_fits(const struct muster_job *job, const char *token)
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

static bool begin(struct muster_call *call, const char *name, struct muster_job *job,
                  struct muster_visit *ret_visit)
{
    if (!token_fits(job, call->request->token)) {
        call->answer = muster_answer_error(MUSTER_RPC_UNAUTHENTICATED, "job %s: %s", name,
                                           call->request->token == NULL
                                               ? "it wants a token, and none was given"
                                               : "this is not its token");
        leave(call->service, job);
        return false;
    }
    *ret_visit = (struct muster_visit){.service = call->service, .job = job};
    return true;
}

bool muster_visit_begin(struct muster_call *call, const char *name, struct muster_visit *ret_visit)
{
    struct muster_job *job = enter(call->service, name, NULL);
    if (job == NULL) {
        call->answer = muster_answer_error(MUSTER_RPC_NOT_FOUND, "job %s is not known here", name);
        return false;
    }
    return begin(call, name, job, ret_visit);
}

bool muster_visit_begin_or_make(struct muster_call *call, const char *name,
                                struct muster_visit *ret_visit)
{
    struct muster_job *job = enter(call->service, name, call);
    return job != NULL && begin(call, name, job, ret_visit);
}

bool muster_visit_begin_inside(struct muster_service *service, const char *name,
                               struct muster_visit *ret_visit)
{
    struct muster_job *job = enter(service, name, NULL);
    if (job != NULL) {
        *ret_visit = (struct muster_visit){.service = service, .job = job};
    }
    return job != NULL;
}

void muster_visit_end(struct muster_visit *visit)
{
    visit->job->removed = visit->job->removed || visit->job->event_count == 0;
    leave(visit->service, visit->job);
    muster_answers_deliver(&visit->answers);
}

int64_t muster_visit_each(struct muster_service *service, int64_t due_ns,
                          void (*look)(struct muster_visit *visit, void *user), void *user)
{
    struct muster_job *due[MUSTER_JOBS_MAX];
    size_t count = 0;
    int64_t next_ns = MUSTER_NEVER;
    muster_mutex_lock(&service->table_mutex);
    for (struct muster_job *job = service->jobs; job != NULL; job = job->hh.next) {
        int64_t at_ns = job->next_ns;
        if (at_ns <= due_ns && count < MUSTER_JOBS_MAX) {
            job->holders++;
            due[count++] = job;
        } else if (at_ns < next_ns) {
            next_ns = at_ns;
        }
    }
    muster_mutex_unlock(&service->table_mutex);
    for (size_t i = 0; i < count; i++) {
        struct muster_visit visit = {.service = service, .job = due[i]};
        muster_mutex_lock(&due[i]->mutex);
        if (!due[i]->removed) {
            look(&visit, user);
        }
        muster_visit_end(&visit);
    }
    return next_ns;
}

/* Held requests ------------------------------------------------------------------------------- */

void muster_job_answer(struct muster_visit *visit, struct muster_watcher *watcher,
                       struct muster_rpc_answer answer)
{
    muster_watchers_take(&visit->job->watchers, watcher);
    muster_answers_add(&visit->answers, watcher, answer);
}

bool muster_job_hold(struct muster_visit *visit, struct muster_call *call, uint32_t hold_ms)
{
    struct muster_service *service = visit->service;
    if (atomic_load(&service->quiet)) {
        call->answer = muster_answer_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending");
        return true;
    }
    struct muster_watcher *watcher = call->watcher;
    watcher->method = call->request->method;
    (void)snprintf(watcher->job, sizeof watcher->job, "%s", visit->job->name);
    watcher->serial = atomic_fetch_add(&service->serials, 1) + 1;
    uint32_t patience_ms = call->request->timeout_ms - call->request->timeout_ms / 8; /* and back */
    muster_watchers_hold(&visit->job->watchers, watcher,
                         hold_ms < patience_ms ? hold_ms : patience_ms);
    muster_job_look_by(service, visit->job, watcher->deadline_ns);
    return false;
}
