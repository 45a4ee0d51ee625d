/* Put, Get, Wait, Add, CompareAndSwap, Delete, CountKeys: small values that members exchange. */
#include "rendezvous/routes/routes.h"
#include "rendezvous/service/quotas.h"
#include "rendezvous/service/transactions.h"
#include "worker/base/epoch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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
                            muster_epoch_shown(generation), muster_epoch_shown(number));
}

/* Decodes the request and begins the transaction that nearly all methods need; end() ends both.
 * False: the call is answered, and there is nothing to end. */
static bool begin(struct muster_rpc_call *call, struct muster_value_request *ret_request,
                  struct muster_transaction *ret_transaction)
{
    if (muster_rpc_call_failed(call, muster_value_request_decode(call->json, ret_request))) {
        return false;
    }
    if (ret_request->key[0] == '\0' && call->request->method != MUSTER_RPC_WAIT) {
        muster_value_request_finish(ret_request);
        (void)muster_rpc_call_failed(call,
                                     muster_error_set(MUSTER_INVALID, "key: missing or empty"));
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

/* Changes ------------------------------------------------------------------------------------- */

/* Check, store, apply, in this order: no response is sent for a value that is not stored. */
static muster_status change_value(struct muster_transaction *transaction,
                                  const struct muster_value_change *change)
{
    struct muster_store *store = transaction->service->store;
    struct muster_job *job = transaction->job;
    struct muster_kept_value *prepared = NULL;
    TRY(muster_quotas_check_value(transaction->service, job, change->value_size));
    TRY(muster_values_prepare(&job->values, change, &prepared));
    size_t size_bytes;
    const void *record = muster_value_record(prepared, &size_bytes);
    muster_status status =
        store->ops->put(store, job->name, change->generation, change->key, record, size_bytes);
    if (status != MUSTER_OK) {
        muster_value_destroy(prepared);
        return status;
    }
    muster_transaction_wrote(transaction);
    TRY(muster_values_commit(&job->values, prepared));
    muster_transaction_respond_ready_waits(transaction);
    return MUSTER_OK;
}

/* A request that comes late, after its own repetition, changes nothing. */
static muster_status put(struct muster_transaction *transaction,
                         const struct muster_value_request *request)
{
    int64_t unused;
    const struct muster_value_change change = {.generation = request->generation,
                                               .key = request->key,
                                               .value = request->value,
                                               .value_size = request->value_size,
                                               .request_id = request->request_id};
    return muster_values_find_request(&transaction->job->values, request->generation, request->key,
                                      request->request_id, &unused)
               ? MUSTER_OK
               : change_value(transaction, &change);
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

/* A value as Add reads it; one that is not there is 0. */
static muster_status read_number(const struct muster_job *job, uint64_t generation, const char *key,
                                 int64_t *ret_number)
{
    struct muster_value_response value = {0};
    char text[24] = "0";
    size_t length = 1;
    if (muster_values_get(&job->values, generation, key, &value)) {
        length = value.value_size < sizeof text ? value.value_size : 0;
        memcpy(text, length > 0 ? value.value : "", length);
        text[length] = '\0';
    }
    char *stop = text;
    errno = 0;
    long long number = strtoll(text, &stop, 10);
    bool plain = length > 0 && strspn(text, "-0123456789") == length;
    if (errno != 0 || !plain || stop != text + length) {
        return muster_error_set(MUSTER_INVALID,
                                "key \"%s\": its value is not a whole number of 64 bits", key);
    }
    *ret_number = number;
    return MUSTER_OK;
}

static muster_status add(struct muster_transaction *transaction,
                         const struct muster_value_request *request, int64_t *ret_sum)
{
    struct muster_job *job = transaction->job;
    if (muster_values_find_request(&job->values, request->generation, request->key,
                                   request->request_id, ret_sum)) {
        return MUSTER_OK;
    }
    int64_t number = 0;
    int64_t sum = 0;
    TRY(read_number(job, request->generation, request->key, &number));
    if (__builtin_add_overflow(number, request->amount, &sum)) {
        return muster_error_set(MUSTER_INVALID,
                                "key \"%s\": %" PRId64 " + %" PRId64 " needs more than 64 bits",
                                request->key, number, request->amount);
    }
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, sum);
    const struct muster_value_change change = {.generation = request->generation,
                                               .key = request->key,
                                               .value = text,
                                               .value_size = (size_t)size,
                                               .request_id = request->request_id,
                                               .result = sum};
    TRY(change_value(transaction, &change));
    *ret_sum = sum;
    return MUSTER_OK;
}

bool muster_route_add(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    struct muster_add_response response;
    if (!muster_rpc_call_failed(call, add(&transaction, &request, &response.value))) {
        call->response = muster_rpc_response_json(muster_add_response_encode(&response));
    }
    end(&request, &transaction);
    return true;
}

/* A swap that was made before by the same request counts as made; the response then has the value
 * that it put, whatever the value is now. */
static muster_status compare_and_swap(struct muster_transaction *transaction,
                                      const struct muster_value_request *request,
                                      struct muster_swap_response *ret_response)
{
    struct muster_job *job = transaction->job;
    struct muster_value_response now = {0};
    int64_t result;
    bool again = muster_values_find_request(&job->values, request->generation, request->key,
                                            request->request_id, &result);
    (void)muster_values_get(&job->values, request->generation, request->key, &now);
    bool equal = now.value_size == request->expected_size &&
                 (now.value_size == 0 || memcmp(now.value, request->expected, now.value_size) == 0);
    if (!again && !equal) {
        *ret_response = (struct muster_swap_response){
            .swapped = false, .value_size = now.value_size, .value = now.value};
        return MUSTER_OK;
    }
    if (!again) {
        const struct muster_value_change change = {.generation = request->generation,
                                                   .key = request->key,
                                                   .value = request->value,
                                                   .value_size = request->value_size,
                                                   .request_id = request->request_id};
        TRY(change_value(transaction, &change));
    }
    *ret_response = (struct muster_swap_response){
        .swapped = true, .value_size = request->value_size, .value = request->value};
    return MUSTER_OK;
}

bool muster_route_compare_and_swap(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    struct muster_swap_response response; /* its value is borrowed */
    if (!muster_rpc_call_failed(call, compare_and_swap(&transaction, &request, &response))) {
        call->response = muster_rpc_response_json(muster_swap_response_encode(&response));
    }
    end(&request, &transaction);
    return true;
}

static muster_status delete_value(struct muster_transaction *transaction,
                                  const struct muster_value_request *request, bool *ret_deleted)
{
    struct muster_store *store = transaction->service->store;
    struct muster_job *job = transaction->job;
    struct muster_value_response value;
    if (!muster_values_get(&job->values, request->generation, request->key, &value)) {
        *ret_deleted = false;
        return MUSTER_OK;
    }
    TRY(store->ops->remove_value(store, job->name, request->generation, request->key));
    muster_transaction_wrote(transaction);
    *ret_deleted = muster_values_remove(&job->values, request->generation, request->key);
    return MUSTER_OK;
}

bool muster_route_delete(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    struct muster_delete_response response;
    if (!muster_rpc_call_failed(call, delete_value(&transaction, &request, &response.deleted))) {
        call->response = muster_rpc_response_json(muster_delete_response_encode(&response));
    }
    end(&request, &transaction);
    return true;
}

/* Reading ------------------------------------------------------------------------------------- */

bool muster_route_count_keys(struct muster_rpc_call *call)
{
    struct muster_count_request request;
    struct muster_transaction transaction;
    if (muster_rpc_call_failed(call, muster_count_request_decode(call->json, &request)) ||
        !muster_transaction_begin(call, request.job, &transaction)) {
        return true;
    }
    if (!muster_rpc_call_failed(call, check_generation(transaction.job, request.generation))) {
        const struct muster_count_response response = {
            .count =
                muster_values_count(&transaction.job->values, request.generation, request.prefix)};
        call->response = muster_rpc_response_json(muster_count_response_encode(&response));
    }
    muster_transaction_end(&transaction);
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

/* Looks at the keys from the first that had no value on. Once all have been seen, all are looked up
 * again: a key may have been deleted. */
static bool keys_have_values(const struct muster_job *job, uint64_t generation,
                             struct muster_wait_keys *several)
{
    struct muster_value_response value;
    int passes = several->seen > 0 ? 2 : 1;
    for (int pass = 0; pass < passes; pass++) {
        while (several->seen < several->count) {
            if (!muster_values_get(&job->values, generation, several->keys[several->seen],
                                   &value)) {
                return false;
            }
            several->seen++;
        }
        several->seen = pass + 1 < passes ? 0 : several->seen;
    }
    return true;
}

/* True if the key, and every one of the keys, has a value; *ret_response then has that of the key.
 */
static bool find_values(const struct muster_job *job, const struct muster_held_request *held,
                        struct muster_rpc_response *ret_response)
{
    if (held->several != NULL && !keys_have_values(job, held->generation, held->several)) {
        return false;
    }
    if (held->key[0] != '\0') {
        return find_value(job, held->generation, held->key, ret_response);
    }
    *ret_response = muster_rpc_response_json(json_object());
    return true;
}

static bool wait_ready(struct muster_transaction *transaction,
                       const struct muster_held_request *held,
                       struct muster_rpc_response *ret_response)
{
    muster_status status = check_generation(transaction->job, held->generation);
    if (status != MUSTER_OK) {
        *ret_response = muster_rpc_response_status(status);
        return true;
    }
    return find_values(transaction->job, held, ret_response);
}

static struct muster_rpc_response expire_wait(struct muster_transaction *transaction,
                                              const struct muster_held_request *held)
{
    (void)transaction;
    const struct muster_wait_keys *several = held->several;
    const char *missing = several != NULL && several->seen < several->count
                              ? several->keys[several->seen]
                              : held->key;
    return muster_rpc_response_error(MUSTER_RPC_DEADLINE_EXCEEDED,
                                     "key \"%s\": not put within the time", missing);
}

static const struct muster_held_kind wait_kind = {
    .of_member = false, .ready = wait_ready, .expire = expire_wait};

/* Takes the keys of the request. False: no memory, and the call is answered. */
static bool prepare_wait(struct muster_rpc_call *call, struct muster_value_request *request)
{
    struct muster_held_request *held = call->held;
    held->generation = request->generation;
    (void)snprintf(held->key, sizeof held->key, "%s", request->key);
    held->several = NULL;
    if (request->key_count > 0) {
        held->several = muster_wait_keys_create(request->keys, request->key_count);
        request->keys = NULL;
        if (held->several == NULL) {
            call->response = muster_rpc_response_error(MUSTER_RPC_INTERNAL, "no memory");
            return false;
        }
    }
    return true;
}

/* True: the call is answered. */
static bool wait_for(struct muster_transaction *transaction, struct muster_rpc_call *call,
                     struct muster_value_request *request)
{
    if (!prepare_wait(call, request)) {
        return true;
    }
    bool answered = find_values(transaction->job, call->held, &call->response);
    if (!answered && transaction->job->held_requests.wait_count >= MUSTER_WAITS_MAX) {
        call->response = muster_rpc_response_error(MUSTER_RPC_RESOURCE_EXHAUSTED,
                                                   "job %s: %d Waits are held already",
                                                   request->job, MUSTER_WAITS_MAX);
        answered = true;
    }
    if (!answered) {
        answered = muster_transaction_hold(transaction, call, &wait_kind, request->timeout_ms);
    }
    if (answered) {
        muster_wait_keys_destroy(call->held->several);
        call->held->several = NULL;
    }
    return answered;
}

bool muster_route_wait(struct muster_rpc_call *call)
{
    struct muster_value_request request;
    struct muster_transaction transaction;
    if (!begin(call, &request, &transaction)) {
        return true;
    }
    bool answered = wait_for(&transaction, call, &request);
    end(&request, &transaction);
    return answered;
}
