/* The public functions about values: each is a request to the service, repeated until an answer has
 * come or the time is over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/option_parse.h"
#include "worker/base/random.h"
#include "worker/base/thread.h"
#include "worker/session/generation_guard.h"
#include "worker/session/session_clients.h"
#include "worker/session/session_parts.h"

enum {
    DEFAULT_TIMEOUT_MS = 30000,
    ATTEMPT_MS = 5000,
    HELD_MS = 10000, /* of a Wait; then it is sent again */
    HELD_MARGIN_MS = 2000,
    EARLY_MS = 50,         /* before a program's limit */
    KEYS_OF_REQUEST = 256, /* so many are shorter than a body may be */
};
_Static_assert((int)MUSTER_VALUE_KEY_MAX_BYTES == MUSTER_KEY_MAX_BYTES, "muster_values.h says so");
_Static_assert((int)MUSTER_VALUE_BYTES_MAX == MUSTER_VALUE_MAX_BYTES, "muster_values.h says so");

/* One call of a program. */
struct value_call {
    struct muster_session *session;
    const char *name; /* of the public function, for error texts */
    enum muster_rpc_method method;
    muster_value_lifetime lifetime;
    uint64_t generation; /* 0: the values of the job */
    int64_t deadline_ns;
    const char *request_id;    /* NULL: it makes one */
    enum muster_rpc_code code; /* of the answer */
};

void muster_value_options_init_sized(muster_value_options *options, size_t size)
{
    memset(options, 0, size);
    memcpy(options, &size, sizeof size);
}

void muster_value_finish(muster_value *value)
{
    free(value->data);
    *value = (muster_value){.data = NULL};
}

/* Checks ----------------------------------------------------------------------------------------
 */

/* jansson makes no string of what is not UTF-8. */
static muster_status check_text(const char *what, const char *text)
{
    if (strnlen(text, MUSTER_VALUE_KEY_MAX_BYTES + 1) > MUSTER_VALUE_KEY_MAX_BYTES) {
        return muster_error_set(MUSTER_INVALID, "%s \"%.40s...\": longer than %d bytes", what, text,
                                MUSTER_VALUE_KEY_MAX_BYTES);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return muster_error_set(MUSTER_INVALID, "%s: has a control character", what);
        }
    }
    json_t *json = json_string(text);
    json_decref(json);
    return json != NULL ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "%s: it is not UTF-8", what);
}

static muster_status check_key(const char *key)
{
    if (key == NULL || key[0] == '\0') {
        return muster_error_set(MUSTER_INVALID, "key: %s", key == NULL ? "it is NULL" : "is empty");
    }
    return check_text("key", key);
}

static muster_status check_bytes(const char *what, const void *data, size_t size_bytes)
{
    if (size_bytes > MUSTER_VALUE_BYTES_MAX) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu bytes are more than %d", what, size_bytes,
                                MUSTER_VALUE_BYTES_MAX);
    }
    if (data == NULL && size_bytes > 0) {
        return muster_error_set(MUSTER_INVALID, "%s: %zu bytes at NULL", what, size_bytes);
    }
    return MUSTER_OK;
}

static muster_status check_request_id(const char *id)
{
    for (size_t i = 0; id != NULL && i < MUSTER_UUID_SIZE; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        bool right = i == MUSTER_UUID_SIZE - 1 ? id[i] == '\0'
                     : dash                    ? id[i] == '-'
                                               : strchr("0123456789abcdefABCDEF", id[i]) != NULL;
        if (!right || (i < MUSTER_UUID_SIZE - 1 && id[i] == '\0')) {
            return muster_error_set(MUSTER_INVALID, "request_id: it is no UUID");
        }
    }
    return MUSTER_OK;
}

static muster_status begin(struct value_call *call, const muster_value_options *options)
{
    muster_value_options complete = {.size = sizeof complete};
    struct muster_session *session = call->session;
    TRY(muster_session_check_process(session));
    if (session->without_service) {
        return muster_error_set(MUSTER_INVALID, "this session has no service: muster_open() has");
    }
    if (options != NULL) {
        TRY(muster_option_copy_struct("muster_value_options", options, &complete, sizeof complete));
    }
    if (complete.lifetime != MUSTER_VALUE_OF_JOB &&
        complete.lifetime != MUSTER_VALUE_OF_GENERATION) {
        return muster_error_set(MUSTER_INVALID, "lifetime %d: there is no such", complete.lifetime);
    }
    TRY(check_request_id(complete.request_id));
    call->lifetime = complete.lifetime;
    call->generation = complete.lifetime == MUSTER_VALUE_OF_GENERATION
                           ? atomic_load(&session->generation_number)
                           : 0;
    call->request_id = complete.request_id;
    call->deadline_ns =
        muster_clock_after_ms(complete.timeout_ms != 0 ? complete.timeout_ms : DEFAULT_TIMEOUT_MS);
    return MUSTER_OK;
}

/* Calls -----------------------------------------------------------------------------------------
 */

/* The service says that the generation has ended: the session learns it here, too, so that the
 * program's muster_rejoin() knows why. */
static void note_end_of_generation(struct value_call *call)
{
    struct muster_session *session = call->session;
    AUTO_LOCK(&session->mutex);
    if (session->generation.number == call->generation && session->stage == MUSTER_STAGE_RUNNING &&
        !session->finished && !session->closing) {
        muster_session_revoke_locked(session, muster_last_error());
    }
}

/* What an error of the service means to the program. A job that the service does not know is made
 * again when the members join again. */
static muster_status explain(struct value_call *call, muster_status status)
{
    if (call->code == MUSTER_RPC_NOT_FOUND) {
        status = MUSTER_RETRY;
    } else if (call->code == MUSTER_RPC_ABORTED && call->generation != 0) {
        note_end_of_generation(call);
    }
    return muster_error_prefix(status, "%s", call->name);
}

static muster_status ask(struct value_call *call, json_t *request, uint32_t attempt_ms,
                         json_t **ret_answer)
{
    struct muster_session *session = call->session;
    struct muster_client *client = NULL;
    bool waits = call->method == MUSTER_RPC_WAIT;
    const struct muster_retry_policy policy = {.attempt_ms = attempt_ms,
                                               .deadline_ns = call->deadline_ns};
    muster_status status =
        muster_session_clients_take(&session->clients, waits, call->deadline_ns, &client);
    if (status != MUSTER_OK) {
        json_decref(request);
        return status;
    }
    if (client == NULL) {
        status = muster_session_create_client(&session->settings, &client);
    }
    if (status == MUSTER_OK) {
        status =
            muster_client_call(client, call->method, request, &policy, ret_answer, &call->code);
    } else {
        json_decref(request);
    }
    muster_session_clients_give_back(&session->clients, waits, client);
    return status;
}

static void fill_in(const struct value_call *call, const char *key,
                    struct muster_value_request *request)
{
    request->generation = call->generation;
    (void)snprintf(request->job, sizeof request->job, "%s", call->session->settings.job);
    (void)snprintf(request->key, sizeof request->key, "%s", key);
}

/* A request that is repeated keeps its id: it counts once. */
static muster_status change(struct value_call *call, const char *key,
                            struct muster_value_request *request, json_t **ret_answer)
{
    fill_in(call, key, request);
    if (call->request_id != NULL) {
        (void)snprintf(request->request_id, sizeof request->request_id, "%s", call->request_id);
    } else {
        muster_random_uuid(request->request_id);
    }
    return ask(call, muster_value_request_encode(request), ATTEMPT_MS, ret_answer);
}

/* One Wait after the other, until the keys have values or the deadline has passed. The service
 * answers the last one shortly before: its answer names the key. */
static muster_status wait_until(struct value_call *call, struct muster_value_request *request,
                                json_t **ret_answer)
{
    for (;;) {
        uint32_t left_ms = (uint32_t)muster_clock_left_ms(call->deadline_ns);
        uint32_t early_ms = left_ms / 8 < EARLY_MS ? left_ms / 8 : EARLY_MS;
        bool last = left_ms - early_ms <= HELD_MS;
        request->timeout_ms = last ? left_ms - early_ms : HELD_MS;
        muster_status status = ask(call, muster_value_request_encode(request),
                                   request->timeout_ms + HELD_MARGIN_MS, ret_answer);
        if (last || call->code != MUSTER_RPC_DEADLINE_EXCEEDED) {
            return status;
        }
    }
}

/* A copy with a zero byte behind it, which also tells an empty value from none. */
static muster_status give(const void *data, size_t size_bytes, muster_value *ret_value)
{
    char *copy = calloc(1, size_bytes + 1);
    if (copy == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a value of %zu bytes", size_bytes);
    }
    if (size_bytes > 0) {
        memcpy(copy, data, size_bytes);
    }
    *ret_value = (muster_value){.data = copy, .size_bytes = size_bytes};
    return MUSTER_OK;
}

/* Takes the answer. What the service says that no musterd would say ends here. */
static muster_status read_value(struct value_call *call, json_t *answer, muster_value *ret_value)
{
    struct muster_value_response response = {0};
    muster_status status = muster_value_response_decode(answer, &response);
    json_decref(answer);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "%s: the answer of the service", call->name);
    }
    status = give(response.value, response.value_size, ret_value);
    muster_value_response_finish(&response);
    return status;
}

/* Changing --------------------------------------------------------------------------------------
 */

static muster_status put(struct value_call *call, const char *key, const void *data,
                         size_t size_bytes)
{
    /* The encoder only reads it. */
    struct muster_value_request request = {.value = (void *)data, .value_size = size_bytes};
    json_t *answer = NULL;
    muster_status status = change(call, key, &request, &answer);
    if (status != MUSTER_OK) {
        return explain(call, status);
    }
    json_decref(answer);
    return MUSTER_OK;
}

muster_status muster_value_put(muster_session *session, const char *key, const void *data,
                               size_t size_bytes, const muster_value_options *options)
{
    struct value_call call = {.session = session, .name = "put", .method = MUSTER_RPC_PUT};
    TRY(check_key(key));
    TRY(check_bytes("value", data, size_bytes));
    TRY(begin(&call, options));
    return put(&call, key, data, size_bytes);
}

muster_status muster_value_add(muster_session *session, const char *key, int64_t amount,
                               const muster_value_options *options, int64_t *ret_sum)
{
    struct value_call call = {.session = session, .name = "add", .method = MUSTER_RPC_ADD};
    struct muster_value_request request = {.amount = amount};
    struct muster_add_response response = {0};
    json_t *answer = NULL;
    TRY(check_key(key));
    TRY(begin(&call, options));
    muster_status status = change(&call, key, &request, &answer);
    if (status != MUSTER_OK) {
        return explain(&call, status);
    }
    status = muster_add_response_decode(answer, &response);
    json_decref(answer);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "add: the answer of the service");
    }
    *ret_sum = response.value;
    return MUSTER_OK;
}

static muster_status read_swap(json_t *answer, int *ret_swapped, muster_value *ret_value)
{
    struct muster_swap_response response = {0};
    muster_status status = muster_swap_response_decode(answer, &response);
    json_decref(answer);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "compare_and_swap: the answer of the service");
    }
    if (ret_value != NULL) {
        status = give(response.value, response.value_size, ret_value);
    }
    if (status == MUSTER_OK && ret_swapped != NULL) {
        *ret_swapped = response.swapped ? 1 : 0;
    }
    muster_swap_response_finish(&response);
    return status;
}

muster_status muster_value_compare_and_swap(muster_session *session, const char *key,
                                            const muster_value_swap *swap,
                                            const muster_value_options *options, int *ret_swapped,
                                            muster_value *ret_value)
{
    struct value_call call = {
        .session = session, .name = "compare_and_swap", .method = MUSTER_RPC_COMPARE_AND_SWAP};
    json_t *answer = NULL;
    TRY(check_key(key));
    TRY(check_bytes("expected", swap->expected, swap->expected_size_bytes));
    TRY(check_bytes("desired", swap->desired, swap->desired_size_bytes));
    TRY(begin(&call, options));
    struct muster_value_request request = {.value = (void *)swap->desired,
                                           .value_size = swap->desired_size_bytes,
                                           .expected = (void *)swap->expected,
                                           .expected_size = swap->expected_size_bytes};
    muster_status status = change(&call, key, &request, &answer);
    return status != MUSTER_OK ? explain(&call, status) : read_swap(answer, ret_swapped, ret_value);
}

muster_status muster_value_delete(muster_session *session, const char *key,
                                  const muster_value_options *options, int *ret_deleted)
{
    struct value_call call = {.session = session, .name = "delete", .method = MUSTER_RPC_DELETE};
    struct muster_value_request request = {0};
    struct muster_delete_response response = {0};
    json_t *answer = NULL;
    TRY(check_key(key));
    TRY(begin(&call, options));
    fill_in(&call, key, &request);
    muster_status status = ask(&call, muster_value_request_encode(&request), ATTEMPT_MS, &answer);
    if (status != MUSTER_OK) {
        return explain(&call, status);
    }
    status = muster_delete_response_decode(answer, &response);
    json_decref(answer);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "delete: the answer of the service");
    }
    if (ret_deleted != NULL) {
        *ret_deleted = response.deleted ? 1 : 0;
    }
    return MUSTER_OK;
}

/* Reading ---------------------------------------------------------------------------------------
 */

muster_status muster_value_get(muster_session *session, const char *key,
                               const muster_value_options *options, muster_value *ret_value)
{
    struct value_call call = {.session = session, .name = "get", .method = MUSTER_RPC_GET};
    struct muster_value_request request = {0};
    json_t *answer = NULL;
    TRY(check_key(key));
    TRY(begin(&call, options));
    fill_in(&call, key, &request);
    muster_status status = ask(&call, muster_value_request_encode(&request), ATTEMPT_MS, &answer);
    if (call.code == MUSTER_RPC_NOT_FOUND) {
        *ret_value = (muster_value){.data = NULL};
        return MUSTER_OK;
    }
    return status != MUSTER_OK ? explain(&call, status) : read_value(&call, answer, ret_value);
}

muster_status muster_value_wait(muster_session *session, const char *key,
                                const muster_value_options *options, muster_value *ret_value)
{
    struct value_call call = {.session = session, .name = "wait", .method = MUSTER_RPC_WAIT};
    struct muster_value_request request = {0};
    json_t *answer = NULL;
    TRY(check_key(key));
    TRY(begin(&call, options));
    fill_in(&call, key, &request);
    muster_status status = wait_until(&call, &request, &answer);
    return status != MUSTER_OK ? explain(&call, status) : read_value(&call, answer, ret_value);
}

static muster_status wait_for_some(struct value_call *call, const char *const *keys, size_t count)
{
    struct muster_value_request request = {.key_count = (uint32_t)count};
    json_t *answer = NULL;
    fill_in(call, "", &request);
    request.keys = calloc(count, sizeof *request.keys);
    if (request.keys == NULL) {
        return muster_error_set(MUSTER_FATAL, "wait: no memory for %zu keys", count);
    }
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(request.keys[i], sizeof request.keys[i], "%s", keys[i]);
    }
    muster_status status = wait_until(call, &request, &answer);
    free(request.keys);
    if (status != MUSTER_OK) {
        return explain(call, status);
    }
    json_decref(answer);
    return MUSTER_OK;
}

muster_status muster_value_wait_all(muster_session *session, const char *const *keys, size_t count,
                                    const muster_value_options *options)
{
    struct value_call call = {.session = session, .name = "wait", .method = MUSTER_RPC_WAIT};
    if (count > MUSTER_VALUE_KEYS_MAX) {
        return muster_error_set(MUSTER_INVALID, "keys: %zu are more than %d", count,
                                MUSTER_VALUE_KEYS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        muster_status status = check_key(keys[i]);
        if (status != MUSTER_OK) {
            return muster_error_prefix(status, "keys[%zu]", i);
        }
    }
    TRY(begin(&call, options));
    for (size_t at = 0; at < count; at += KEYS_OF_REQUEST) {
        size_t some = count - at < KEYS_OF_REQUEST ? count - at : KEYS_OF_REQUEST;
        TRY(wait_for_some(&call, &keys[at], some));
    }
    return MUSTER_OK;
}

muster_status muster_value_count(muster_session *session, const char *prefix,
                                 const muster_value_options *options, uint32_t *ret_count)
{
    struct value_call call = {.session = session, .name = "count", .method = MUSTER_RPC_COUNT_KEYS};
    struct muster_count_request request = {0};
    struct muster_count_response response = {0};
    json_t *answer = NULL;
    TRY(prefix != NULL ? check_text("prefix", prefix) : MUSTER_OK);
    TRY(begin(&call, options));
    request.generation = call.generation;
    (void)snprintf(request.job, sizeof request.job, "%s", session->settings.job);
    (void)snprintf(request.prefix, sizeof request.prefix, "%s", prefix != NULL ? prefix : "");
    muster_status status = ask(&call, muster_count_request_encode(&request), ATTEMPT_MS, &answer);
    if (status != MUSTER_OK) {
        return explain(&call, status);
    }
    status = muster_count_response_decode(answer, &response);
    json_decref(answer);
    if (status != MUSTER_OK) {
        return muster_error_prefix(MUSTER_FATAL, "count: the answer of the service");
    }
    *ret_count = response.count;
    return MUSTER_OK;
}
