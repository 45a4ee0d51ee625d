/* rank_and_size: a worker that was reset asks for its place in the next round. */
#include "rendezvous/horovod/horovod_parts.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

static const uint64_t serial_mark = UINT64_C(1) << 63; /* the service's own are below */

bool muster_horovod_holds(const struct muster_held_id *id)
{
    return (id->serial & serial_mark) != 0;
}

/* HOST:LOCAL_RANK */
static muster_status parse_slot(const char *key, char ret_host[MUSTER_HOROVOD_HOST_SIZE],
                                uint32_t *ret_local_rank)
{
    const char *colon = strrchr(key, ':');
    size_t size_bytes = colon != NULL ? (size_t)(colon - key) : 0;
    uint32_t local_rank;
    if (!muster_horovod_host_valid(key, size_bytes) ||
        !muster_horovod_parse_rank(colon + 1, &local_rank)) {
        return muster_error_set(MUSTER_INVALID, "key: \"%s\" is not HOST:LOCAL_RANK", key);
    }
    memcpy(ret_host, key, size_bytes);
    ret_host[size_bytes] = '\0';
    *ret_local_rank = local_rank;
    return MUSTER_OK;
}

/* A worker has one request: an older one of the same slot is answered. */
static void end_older(struct muster_horovod_call *call, const char *host, uint32_t local_rank)
{
    struct muster_horovod_ask *ask = NULL;
    struct muster_horovod_ask *next = NULL;
    DL_FOREACH_SAFE(call->job->asks, ask, next)
    {
        if (ask->local_rank == local_rank && strcmp(ask->host, host) == 0) {
            muster_horovod_ask_respond(call->job, ask,
                                       muster_rpc_response_error(MUSTER_RPC_CANCELED,
                                                                 "%s:%u has asked again", host,
                                                                 local_rank),
                                       call->ready);
        }
    }
}

/* Adds the ask and forms the round that it may complete. False: held. */
static bool hold(struct muster_horovod_call *call, struct muster_horovod_worker *worker,
                 const char *host, uint32_t local_rank, uint32_t rank)
{
    struct muster_horovod *horovod = call->horovod;
    struct muster_horovod_ask *ask = calloc(1, sizeof *ask);
    if (horovod->quiesced || ask == NULL) {
        free(ask);
        muster_horovod_rounds_unask(&call->job->rounds, rank);
        call->response = muster_rpc_response_error(
            horovod->quiesced ? MUSTER_RPC_UNAVAILABLE : MUSTER_RPC_INTERNAL,
            horovod->quiesced ? "musterd is ending" : "no memory");
        return true;
    }
    ask->held = call->held;
    (void)snprintf(ask->host, sizeof ask->host, "%s", host);
    ask->local_rank = local_rank;
    ask->rank = rank;
    ask->worker = worker;
    ask->deadline_ns = muster_clock_after_ms(horovod->config.ask_ms);
    call->held->id = (struct muster_held_id){.serial = ++horovod->last_serial | serial_mark};
    (void)snprintf(call->held->id.job, sizeof call->held->id.job, "%s", call->job->name);
    DL_APPEND(call->job->asks, ask);
    muster_clock_thread_wake_by(&horovod->clock, ask->deadline_ns);
    muster_horovod_job_form(call->job, call->ready);
    return false;
}

bool muster_horovod_ask(struct muster_horovod_call *call)
{
    char host[MUSTER_HOROVOD_HOST_SIZE];
    uint32_t local_rank = 0;
    uint32_t rank = MUSTER_HOROVOD_NONE;
    struct muster_horovod_ranks ranks;
    struct muster_horovod_worker *worker = NULL;
    struct muster_horovod_job *job = call->job;
    muster_status status = parse_slot(call->path.key, host, &local_rank);
    if (status == MUSTER_OK) {
        status = muster_horovod_job_worker(job, call->path.worker, &worker);
    }
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    if (muster_horovod_job_scopes(job, worker) == NULL) { /* its round is over: it was removed */
        call->response = muster_horovod_removed();
        return true;
    }
    end_older(call, host, local_rank);
    switch (muster_horovod_rounds_ask(&job->rounds, host, local_rank, &rank)) {
    case MUSTER_HOROVOD_WAIT:
        return hold(call, worker, host, local_rank, rank);
    case MUSTER_HOROVOD_PLACED:
        ranks = muster_horovod_round_ranks(&job->rounds.running, &job->rounds.running.slots[rank]);
        call->response = muster_horovod_place(&ranks);
        return true;
    case MUSTER_HOROVOD_REMOVED:
    default:
        muster_log(MUSTER_LOG_INFO, "horovod job=%s slot=%s:%u is removed", job->name, host,
                   local_rank);
        call->response = muster_horovod_removed();
        muster_horovod_job_form(job, call->ready); /* it may have been the last one missing */
        return true;
    }
}

bool muster_horovod_exited(struct muster_horovod_call *call)
{
    char host[MUSTER_HOROVOD_HOST_SIZE];
    uint32_t local_rank = 0;
    muster_status status = parse_slot(call->path.key, host, &local_rank);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return true;
    }
    end_older(call, host, local_rank);
    if (muster_horovod_rounds_exit(&call->job->rounds, host, local_rank)) {
        muster_log(MUSTER_LOG_INFO, "horovod job=%s slot=%s:%u exited", call->job->name, host,
                   local_rank);
        muster_horovod_scopes_delete(&call->job->lasting, "worker_addresses", call->path.key);
        muster_horovod_job_form(call->job, call->ready);
    }
    call->response = muster_horovod_response(MUSTER_RPC_OK, "", 0);
    return true;
}

/* A worker whose time is over is told that it is removed: it ends with that message. */
int64_t muster_horovod_asks_expire(struct muster_horovod_job *job, int64_t now_ns,
                                   struct muster_ready_responses *ready)
{
    while (job->asks != NULL && job->asks->deadline_ns <= now_ns) { /* the oldest is first */
        struct muster_horovod_ask *ask = job->asks;
        char host[MUSTER_HOROVOD_HOST_SIZE];
        uint32_t local_rank = ask->local_rank;
        (void)snprintf(host, sizeof host, "%s", ask->host);
        muster_log(MUSTER_LOG_WARN, "horovod job=%s slot=%s:%u: no round formed in time", job->name,
                   host, local_rank);
        if (ask->worker != NULL) {
            ask->worker->round = UINT64_MAX; /* of no round */
        }
        muster_horovod_ask_respond(job, ask, muster_horovod_removed(), ready);
        (void)muster_horovod_rounds_exit(&job->rounds, host, local_rank);
    }
    muster_horovod_job_form(job, ready);
    return job->asks != NULL ? job->asks->deadline_ns : MUSTER_NEVER;
}

void muster_horovod_disconnected(struct muster_horovod *horovod, const struct muster_held_id *id)
{
    struct muster_ready_responses ready = {0};
    struct muster_horovod_job *job = NULL;
    struct muster_horovod_ask *ask = NULL;
    muster_mutex_lock(&horovod->mutex);
    HASH_FIND_STR(horovod->jobs, id->job, job);
    DL_FOREACH((job != NULL ? job->asks : NULL), ask)
    {
        if (ask->held->id.serial == id->serial) {
            muster_horovod_rounds_unask(&job->rounds, ask->rank);
            muster_horovod_ask_respond(
                job, ask, muster_rpc_response_error(MUSTER_RPC_CANCELED, "the connection closed"),
                &ready);
            break;
        }
    }
    muster_mutex_unlock(&horovod->mutex);
    muster_ready_responses_send(&ready);
}

void muster_horovod_quiesce(struct muster_horovod *horovod)
{
    struct muster_ready_responses ready = {0};
    muster_mutex_lock(&horovod->mutex);
    horovod->quiesced = true;
    for (struct muster_horovod_job *job = horovod->jobs; job != NULL; job = job->hh.next) {
        while (job->asks != NULL) {
            muster_horovod_rounds_unask(&job->rounds, job->asks->rank);
            muster_horovod_ask_respond(
                job, job->asks,
                muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending"), &ready);
        }
    }
    muster_mutex_unlock(&horovod->mutex);
    muster_ready_responses_send(&ready);
}
