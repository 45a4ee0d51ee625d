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
static bool begin(struct muster_rpc_call *call, struct muster_value_request *ret_request,
                  struct muster_transaction *ret_visit)
{
    muster_status status = muster_value_request_decode(call->json, ret_request);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        return false;
    }
    if (!muster_transaction_begin(call, ret_request->job, ret_visit)) {
        muster_value_request_finish(ret_request);
        return false;
    }
    status = check_generation(ret_visit->job, ret_request->generation);
    if (status != MUSTER_OK) {
        call->response = muster_rpc_response_status(status);
        muster_transaction_end(ret_visit);
        muster_value_request_finish(ret_request);
        return false;
    }
    return true;
}

static void end(struct muster_value_request *request, struct muster_transaction *transaction)
{
    muster_transaction_end(transaction);
    muster_value_request_finish(request);
}

/* Answers with the value if it is there. */
static bool value_ready(const struct muster_job *job, uint64_t generation, const char *key,
                        struct muster_rpc_response *ret_response)
{
    struct muster_value_response response;
    if (!muster_values_get(&job->values, generation, key, &response)) {
        return false;
    }
    *ret_response = muster_rpc_response_json(muster_value_response_encode(&response));
    return true;
}

static muster_status put(struct muster_transaction *transaction,
                         const struct muster_value_request *request)
{
    struct muster_store *store = transaction->service->store;
    struct muster_job *job = transaction->job;
    TRY(muster_values_check(&job->values, request->generation, request->key, request->value_size));
    TRY(store->ops->put(store, job->name, request->generation, request->key, request->value,
                        request->value_size));
    TRY(muster_values_put(&job->values, request->generation, request->key, request->value,
                          request->value_size));
    muster_values_respond_ready(transaction);
    return MUSTER_OK;
}

bool muster_route_put(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    muster_status status = put(&transaction, &request);
    call->response = status == MUSTER_OK ? muster_rpc_response_json(json_object())
                                         : muster_rpc_response_status(status);
    end(&request, &transaction);
    return true;
}

bool muster_route_get(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    if (!value_ready(transaction.job, request.generation, request.key, &call->response)) {
        call->response =
            muster_rpc_response_error(MUSTER_RPC_NOT_FOUND, "key \"%s\": not there", request.key);
    }
    end(&request, &transaction);
    return true;
}

bool muster_route_wait(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    bool answered = value_ready(transaction.job, request.generation, request.key, &call->response);
    if (!answered && transaction.job->held_requests.wait_count >= MUSTER_WAITS_MAX) {
        call->response = muster_rpc_response_error(MUSTER_RPC_RESOURCE_EXHAUSTED,
                                                   "job %s: %d Waits are held already", request.job,
                                                   MUSTER_WAITS_MAX);
        answered = true;
    }
    if (!answered) {
        call->held->member[0] = '\0';
        call->held->generation = request.generation;
        (void)snprintf(call->held->key, sizeof call->held->key, "%s", request.key);
        answered = muster_job_hold(&transaction, call, request.timeout_ms);
    }
    end(&request, &transaction);
    return answered;
}

void muster_values_respond_ready(struct muster_transaction *transaction)
{
    struct muster_held_request *next;
    for (struct muster_held_request *held = transaction->job->held_requests.waits; held != NULL;
         held = next) {
        next = held->next;
        struct muster_rpc_response response;
        muster_status status = check_generation(transaction->job, held->generation);
        if (status != MUSTER_OK) {
            muster_job_respond(transaction, held, muster_rpc_response_status(status));
        } else if (value_ready(transaction->job, held->generation, held->key, &response)) {
            muster_job_respond(transaction, held, response);
        }
    }
}

struct muster_rpc_response muster_values_expire(const struct muster_held_request *held)
{
    return muster_rpc_response_error(MUSTER_RPC_DEADLINE_EXCEEDED,
                                     "key \"%s\": nobody has put it yet", held->key);
}
