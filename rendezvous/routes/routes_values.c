/* Put, Get, Wait: small values that the members of a job exchange. */
#include "rendezvous/routes/routes.h"
#include "rendezvous/service/transactions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Generation 0 is the whole life of the job; of the others only the one that runs has values. */
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

/* Decodes the request and begins the transaction that all three methods need; end() ends both.
 * False: the call is answered, and there is nothing to end. */
static bool begin(struct muster_rpc_call *call, struct muster_value_request *ret_request,
                  struct muster_transaction *ret_transaction)
{
    if (muster_rpc_call_failed(call, muster_value_request_decode(call->json, ret_request))) {
        return false;
    }
    if (!muster_transaction_begin(call, ret_request->job, ret_transaction)) {
        muster_value_request_finish(ret_request);
        return false;
    }
    if (muster_rpc_call_failed(call,
                               check_generation(ret_transaction->job, ret_request->generation))) {
        muster_transaction_end(ret_transaction);
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

/* True if the value is there; *ret_response then has it. */
static bool find_value(const struct muster_job *job, uint64_t generation, const char *key,
                       struct muster_rpc_response *ret_response)
{
    struct muster_value_response response;
    if (!muster_values_get(&job->values, generation, key, &response)) {
        return false;
    }
    *ret_response = muster_rpc_response_json(muster_value_response_encode(&response));
    return true;
}

/* Put, Get ------------------------------------------------------------------------------------ */

static muster_status put(struct muster_transaction *transaction,
                         const struct muster_value_request *request)
{
    struct muster_store *store = transaction->service->store;
    struct muster_job *job = transaction->job;
    TRY(muster_values_check(&job->values, request->generation, request->key, request->value_size));
    TRY(store->ops->put(store, job->name, request->generation, request->key, request->value,
                        request->value_size));
    muster_transaction_wrote(transaction);
    TRY(muster_values_put(&job->values, request->generation, request->key, request->value,
                          request->value_size));
    muster_transaction_respond_ready_waits(transaction);
    return MUSTER_OK;
}

bool muster_route_put(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    if (!muster_rpc_call_failed(call, put(&transaction, &request))) {
        call->response = muster_rpc_response_json(json_object());
    }
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
    if (!find_value(transaction.job, request.generation, request.key, &call->response)) {
        call->response =
            muster_rpc_response_error(MUSTER_RPC_NOT_FOUND, "key \"%s\": not there", request.key);
    }
    end(&request, &transaction);
    return true;
}

/* Wait ---------------------------------------------------------------------------------------- */

static bool wait_ready(struct muster_transaction *transaction,
                       const struct muster_held_request *held,
                       struct muster_rpc_response *ret_response)
{
    muster_status status = check_generation(transaction->job, held->generation);
    if (status != MUSTER_OK) {
        *ret_response = muster_rpc_response_status(status);
        return true;
    }
    return find_value(transaction->job, held->generation, held->key, ret_response);
}

static struct muster_rpc_response expire_wait(struct muster_transaction *transaction,
                                              const struct muster_held_request *held)
{
    (void)transaction;
    return muster_rpc_response_error(MUSTER_RPC_DEADLINE_EXCEEDED,
                                     "key \"%s\": not put within the time", held->key);
}

static const struct muster_held_kind wait_kind = {
    .of_member = false, .ready = wait_ready, .expire = expire_wait};

bool muster_route_wait(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    bool answered = find_value(transaction.job, request.generation, request.key, &call->response);
    if (!answered && transaction.job->held_requests.wait_count >= MUSTER_WAITS_MAX) {
        call->response = muster_rpc_response_error(MUSTER_RPC_RESOURCE_EXHAUSTED,
                                                   "job %s: %d Waits are held already", request.job,
                                                   MUSTER_WAITS_MAX);
        answered = true;
    }
    if (!answered) {
        call->held->generation = request.generation;
        (void)snprintf(call->held->key, sizeof call->held->key, "%s", request.key);
        answered = muster_transaction_hold(&transaction, call, &wait_kind, request.timeout_ms);
    }
    end(&request, &transaction);
    return answered;
}
