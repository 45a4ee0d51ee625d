/* Put, Get, Wait: small values for bootstrapping. */
#include "rendezvous/service/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Generation 0 is the job's whole life; of the others only the one that runs has values. */
static muster_status check_generation(const struct muster_job *job, uint64_t generation)
{
    enum muster_job_phase phase = muster_membership_phase(job->membership);
    uint64_t number = muster_membership_generation(job->membership).number;
    if (phase == MUSTER_JOB_ENDED) {
        return muster_error_set(MUSTER_ENDED, "job %s has ended: %s", job->name,
                                muster_membership_why(job->membership));
    }
    if (generation == 0 || (generation == number && phase == MUSTER_JOB_RUNNING)) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_REJOIN,
                            "generation %" PRIu64 " does not run: the last one is %" PRIu64,
                            generation, number);
}

/* False: the call is answered. Otherwise the request is to be finished and the visit ended. */
static bool begin(struct muster_call *call, struct muster_value_request *ret_request,
                  struct muster_visit *ret_visit)
{
    muster_status status = muster_value_request_decode(call->json, ret_request);
    if (status != MUSTER_OK) {
        call->answer = muster_answer_status(status);
        return false;
    }
    if (!muster_visit_begin(call, ret_request->job, ret_visit)) {
        muster_value_request_finish(ret_request);
        return false;
    }
    status = check_generation(ret_visit->job, ret_request->generation);
    if (status != MUSTER_OK) {
        call->answer = muster_answer_status(status);
        muster_visit_end(ret_visit);
        muster_value_request_finish(ret_request);
        return false;
    }
    return true;
}

static void end(struct muster_value_request *request, struct muster_visit *visit)
{
    muster_visit_end(visit);
    muster_value_request_finish(request);
}

/* Answers with the value if it is there. */
static bool value_ready(const struct muster_job *job, uint64_t generation, const char *key,
                        struct muster_rpc_answer *ret_answer)
{
    struct muster_value_response response;
    if (!muster_values_get(&job->values, generation, key, &response)) {
        return false;
    }
    *ret_answer = muster_answer_json(muster_value_response_encode(&response));
    return true;
}

static muster_status put(struct muster_visit *visit, const struct muster_value_request *request)
{
    struct muster_store *store = visit->service->store;
    struct muster_job *job = visit->job;
    TRY(muster_values_check(&job->values, request->generation, request->key, request->value_size));
    TRY(store->ops->put(store, job->name, request->generation, request->key, request->value,
                        request->value_size));
    TRY(muster_values_put(&job->values, request->generation, request->key, request->value,
                          request->value_size));
    muster_values_answer_ready(visit);
    return MUSTER_OK;
}

bool muster_route_put(struct muster_call *call)
{
    struct muster_value_request request;
    struct muster_visit visit;
    if (!begin(call, &request, &visit)) {
        return true;
    }
    muster_status status = put(&visit, &request);
    call->answer =
        status == MUSTER_OK ? muster_answer_json(json_object()) : muster_answer_status(status);
    end(&request, &visit);
    return true;
}

bool muster_route_get(struct muster_call *call)
{
    struct muster_value_request request;
    struct muster_visit visit;
    if (!begin(call, &request, &visit)) {
        return true;
    }
    if (!value_ready(visit.job, request.generation, request.key, &call->answer)) {
        call->answer =
            muster_answer_error(MUSTER_RPC_NOT_FOUND, "key \"%s\": not there", request.key);
    }
    end(&request, &visit);
    return true;
}

bool muster_route_wait(struct muster_call *call)
{
    struct muster_value_request request;
    struct muster_visit visit;
    if (!begin(call, &request, &visit)) {
        return true;
    }
    bool answered = value_ready(visit.job, request.generation, request.key, &call->answer);
    if (!answered && visit.job->watchers.wait_count >= MUSTER_WAITS_MAX) {
        call->answer =
            muster_answer_error(MUSTER_RPC_RESOURCE_EXHAUSTED, "job %s: %d Waits are held already",
                                request.job, MUSTER_WAITS_MAX);
        answered = true;
    }
    if (!answered) {
        call->watcher->member[0] = '\0';
        call->watcher->generation = request.generation;
        (void)snprintf(call->watcher->key, sizeof call->watcher->key, "%s", request.key);
        answered = muster_job_hold(&visit, call, request.timeout_ms);
    }
    end(&request, &visit);
    return answered;
}

void muster_values_answer_ready(struct muster_visit *visit)
{
    struct muster_watcher *next;
    for (struct muster_watcher *watcher = visit->job->watchers.waits; watcher != NULL;
         watcher = next) {
        next = watcher->next;
        struct muster_rpc_answer answer;
        muster_status status = check_generation(visit->job, watcher->generation);
        if (status != MUSTER_OK) {
            muster_job_answer(visit, watcher, muster_answer_status(status));
        } else if (value_ready(visit->job, watcher->generation, watcher->key, &answer)) {
            muster_job_answer(visit, watcher, answer);
        }
    }
}

struct muster_rpc_answer muster_values_expire(const struct muster_watcher *watcher)
{
    return muster_answer_error(MUSTER_RPC_DEADLINE_EXCEEDED, "key \"%s\": nobody has put it yet",
                               watcher->key);
}
