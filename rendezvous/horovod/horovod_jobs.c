/* The jobs of Horovod's workers: found by name and secret, with their workers and scopes. */
#include "rendezvous/horovod/horovod_parts.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* A job without a plan gives way to a new one after this; one with a plan after its own time. */
enum { EVICT_IDLE_MS = 60 * 1000 };

/* In constant time, so that the time does not show where two secrets differ. */
static bool secrets_equal(const char a[MUSTER_HOROVOD_SECRET_SIZE],
                          const char b[MUSTER_HOROVOD_SECRET_SIZE])
{
    unsigned char differs = 0;
    for (size_t i = 0; i < MUSTER_HOROVOD_SECRET_SIZE; i++) {
        differs |= (unsigned char)(a[i] ^ b[i]);
    }
    return differs == 0;
}

static bool has_plan(const struct muster_horovod_job *job)
{
    return job->rounds.running.number != 0;
}

/* The job that has been idle for longest, if that is long enough to give way. */
static struct muster_horovod_job *find_idle(const struct muster_horovod *horovod)
{
    struct muster_horovod_job *found = NULL;
    int64_t found_ns = 0;
    int64_t now_ns = muster_clock_ns();
    for (struct muster_horovod_job *job = horovod->jobs; job != NULL; job = job->hh.next) {
        int64_t least_ms = has_plan(job) ? MUSTER_HOROVOD_PLAN_IDLE_MS : EVICT_IDLE_MS;
        int64_t idle_ns = now_ns - job->used_ns;
        if (job->asks == NULL && idle_ns > least_ms * MUSTER_NS_PER_MS && idle_ns > found_ns) {
            found = job;
            found_ns = idle_ns;
        }
    }
    return found;
}

static muster_status create_job(struct muster_horovod *horovod,
                                const struct muster_horovod_path *path,
                                struct muster_horovod_job **ret_job, enum muster_rpc_code *ret_code)
{
    struct muster_horovod_job *idle = find_idle(horovod);
    if (HASH_COUNT(horovod->jobs) >= MUSTER_HOROVOD_JOBS_MAX && idle == NULL) {
        *ret_code = MUSTER_RPC_RESOURCE_EXHAUSTED;
        return muster_error_set(MUSTER_RETRY, "job %s: there are %d jobs of Horovod already",
                                path->job, MUSTER_HOROVOD_JOBS_MAX);
    }
    if (HASH_COUNT(horovod->jobs) >= MUSTER_HOROVOD_JOBS_MAX) {
        muster_log(MUSTER_LOG_INFO, "horovod job=%s gives way to job=%s", idle->name, path->job);
        muster_horovod_job_remove(horovod, idle);
    }
    struct muster_horovod_job *job = calloc(1, sizeof *job);
    if (job != NULL) {
        memcpy(job->name, path->job, sizeof job->name);
        memcpy(job->secret, path->secret, sizeof job->secret);
        HASH_ADD_STR(horovod->jobs, name, job);
    }
    if (job == NULL || job->hh.tbl == NULL) {
        free(job);
        *ret_code = MUSTER_RPC_INTERNAL;
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    *ret_job = job;
    return MUSTER_OK;
}

muster_status muster_horovod_job_find(struct muster_horovod *horovod,
                                      const struct muster_horovod_path *path, bool creates,
                                      struct muster_horovod_job **ret_job,
                                      enum muster_rpc_code *ret_code)
{
    struct muster_horovod_job *job = NULL;
    HASH_FIND_STR(horovod->jobs, path->job, job);
    if (job == NULL && creates) {
        TRY(create_job(horovod, path, &job, ret_code));
    }
    if (job != NULL && !secrets_equal(job->secret, path->secret)) {
        *ret_code = MUSTER_RPC_UNAUTHENTICATED;
        return muster_error_set(MUSTER_INVALID, "job %s: the secret in the path is not the job's",
                                path->job);
    }
    if (job != NULL) {
        job->used_ns = muster_clock_ns();
    }
    *ret_job = job;
    return MUSTER_OK;
}

static void remove_workers(struct muster_horovod_job *job, uint64_t keep_from_round)
{
    struct muster_horovod_worker *worker = NULL;
    struct muster_horovod_worker *next = NULL;
    HASH_ITER(hh, job->workers, worker, next)
    {
        if (worker->round < keep_from_round) {
            HASH_DEL(job->workers, worker);
            free(worker);
        }
    }
}

void muster_horovod_job_remove(struct muster_horovod *horovod, struct muster_horovod_job *job)
{
    HASH_DEL(horovod->jobs, job);
    horovod->size_bytes -= muster_horovod_job_size_bytes(job);
    muster_horovod_rounds_finish(&job->rounds);
    muster_horovod_scopes_finish(&job->running);
    muster_horovod_scopes_finish(&job->next);
    muster_horovod_scopes_finish(&job->lasting);
    remove_workers(job, UINT64_MAX);
    free(job);
}

size_t muster_horovod_job_size_bytes(const struct muster_horovod_job *job)
{
    return job->running.size_bytes + job->next.size_bytes + job->lasting.size_bytes;
}

/* Workers and rounds -------------------------------------------------------------------------- */

muster_status muster_horovod_job_worker(struct muster_horovod_job *job, const char *name,
                                        struct muster_horovod_worker **ret_worker)
{
    struct muster_horovod_worker *worker = NULL;
    const struct muster_horovod_rounds *rounds = &job->rounds;
    HASH_FIND_STR(job->workers, name, worker);
    if (name[0] == '\0' || worker != NULL) {
        *ret_worker = worker;
        return MUSTER_OK;
    }
    if (HASH_COUNT(job->workers) >= MUSTER_HOROVOD_WORKERS_MAX && job->asks == NULL) {
        remove_workers(job, rounds->running.number);
    }
    if (HASH_COUNT(job->workers) >= MUSTER_HOROVOD_WORKERS_MAX) {
        return muster_error_set(MUSTER_RETRY, "job %s has %d workers with names already", job->name,
                                MUSTER_HOROVOD_WORKERS_MAX);
    }
    worker = calloc(1, sizeof *worker);
    if (worker != NULL) {
        (void)snprintf(worker->name, sizeof worker->name, "%s", name);
        worker->round = rounds->next.number != 0 ? rounds->next.number : rounds->running.number;
        HASH_ADD_STR(job->workers, name, worker);
    }
    if (worker == NULL || worker->hh.tbl == NULL) {
        free(worker);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    *ret_worker = worker;
    return MUSTER_OK;
}

struct muster_horovod_scopes *muster_horovod_job_scopes(struct muster_horovod_job *job,
                                                        const struct muster_horovod_worker *worker)
{
    if (worker == NULL || worker->round == job->rounds.running.number) {
        return &job->running;
    }
    return worker->round == job->rounds.next.number ? &job->next : NULL;
}

/* Newcomers that have put their names into the global scope while the round was forming have come.
 */
static void note_newcomers(struct muster_horovod_job *job)
{
    for (uint32_t rank = 0; rank < job->rounds.running.plan.size; rank++) {
        char key[MUSTER_HOROVOD_KEY_MAX_BYTES + 1];
        const void *value;
        size_t size_bytes;
        (void)snprintf(key, sizeof key, "rank_%u", rank);
        if (muster_horovod_scopes_get(&job->running, "global", key, &value, &size_bytes)) {
            muster_horovod_rounds_seen(&job->rounds, rank);
        }
    }
}

/* Workers that were there before the first plan are in its round, with what they have put. */
static void adopt_workers(struct muster_horovod_job *job)
{
    for (struct muster_horovod_worker *worker = job->workers; worker != NULL;
         worker = worker->hh.next) {
        worker->round = job->rounds.running.number;
    }
}

/* Responses: raw bytes; the place of a worker; that of a worker that has none. */
struct muster_rpc_response muster_horovod_response(enum muster_rpc_code code, const void *bytes,
                                                   size_t size_bytes)
{
    char *body = malloc(size_bytes + 1);
    if (body == NULL) {
        return (struct muster_rpc_response){.code = MUSTER_RPC_INTERNAL};
    }
    memcpy(body, bytes, size_bytes);
    body[size_bytes] = '\0';
    return (struct muster_rpc_response){.code = code, .body = body, .size_bytes = size_bytes};
}

struct muster_rpc_response muster_horovod_place(const struct muster_horovod_ranks *ranks)
{
    char text[MUSTER_HOROVOD_RANKS_SIZE];
    muster_horovod_ranks_format(ranks, text);
    return muster_horovod_response(MUSTER_RPC_OK, text, strlen(text));
}

struct muster_rpc_response muster_horovod_removed(void)
{
    const struct muster_horovod_ranks none = {.rank = MUSTER_HOROVOD_NONE};
    return muster_horovod_place(&none);
}

void muster_horovod_ask_respond(struct muster_horovod_job *job, struct muster_horovod_ask *ask,
                                struct muster_rpc_response response,
                                struct muster_ready_responses *ready)
{
    DL_DELETE(job->asks, ask);
    muster_ready_responses_add(ready, ask->held, response);
    free(ask);
}

/* The scopes of the round that is over go with it, so that no late message can be found in the next
 * one; what newcomers have put stays. */
void muster_horovod_job_form(struct muster_horovod_job *job, struct muster_ready_responses *ready)
{
    bool first = job->rounds.running.number == 0;
    if (!muster_horovod_rounds_form(&job->rounds)) {
        return;
    }
    if (first) {
        adopt_workers(job);
    } else {
        muster_horovod_scopes_finish(&job->running);
        job->running = job->next;
        job->next = (struct muster_horovod_scopes){0};
    }
    note_newcomers(job);
    muster_log(MUSTER_LOG_INFO, "horovod job=%s round=%llu size=%u", job->name,
               (unsigned long long)job->rounds.running.number, job->rounds.running.plan.size);
    struct muster_horovod_ask *ask = NULL;
    struct muster_horovod_ask *next = NULL;
    DL_FOREACH_SAFE(job->asks, ask, next)
    {
        struct muster_horovod_ranks ranks =
            muster_horovod_rounds_answer(&job->rounds, ask->rank, ask->host, ask->local_rank);
        if (ask->worker != NULL && ranks.rank != MUSTER_HOROVOD_NONE) {
            ask->worker->round = job->rounds.running.number;
        }
        muster_horovod_ask_respond(job, ask, muster_horovod_place(&ranks), ready);
    }
}
