/* A service without a socket, and calls of its methods: the storage of a held request, and a
 * condition that its response signals. */
#include "tests/support/caller.h"

#include "rendezvous/store/store.h"
#include "tests/support/part.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WAIT_MS = 20000, REQUEST_SIZE = 8192, MEMBER_COUNT = 2048 };

struct muster_service *test_local_service_open(const struct muster_service_config *config,
                                               const char *path, struct muster_store **ret_store)
{
    struct muster_service *service = NULL;
    muster_status status = path != NULL ? muster_store_sqlite_open(path, ret_store)
                                        : muster_store_memory_open(ret_store);
    if (status != MUSTER_OK || muster_service_create(config, *ret_store, &service) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    return service;
}

void test_local_service_close(struct muster_service *service, struct muster_store *store)
{
    muster_service_quiesce(service);
    muster_service_destroy(service);
    muster_store_close(store);
}

/* The JSON of both parts; NULL: none. */
static json_t *parse(const struct muster_rpc_response *response)
{
    size_t rest_bytes = response->rest != NULL ? response->rest->size_bytes : 0;
    char *text = malloc(response->size_bytes + rest_bytes + 1);
    json_t *json = NULL;
    if (response->body != NULL && text != NULL) {
        memcpy(text, response->body, response->size_bytes);
        if (rest_bytes > 0) {
            memcpy(text + response->size_bytes, response->rest->text, rest_bytes);
        }
        json = json_loadb(text, response->size_bytes + rest_bytes, 0, NULL);
    }
    free(text);
    return json;
}

static void take_response(struct test_call *call, struct muster_rpc_response response)
{
    AUTO_LOCK(&call->mutex);
    call->code = response.code;
    call->json = parse(&response);
    call->answered = true;
    muster_rpc_response_finish(&response);
    (void)pthread_cond_signal(&call->changed);
}

static void respond_held(struct muster_held_request *held, struct muster_rpc_response response)
{
    take_response((struct test_call *)held, response);
}

void test_call_start_bytes(struct test_call *call, struct muster_service *service,
                           enum muster_rpc_method method, const char *token, const char *body,
                           size_t size_bytes)
{
    *call = (struct test_call){.request = {.respond = respond_held}};
    muster_mutex_init(&call->mutex);
    muster_condition_init(&call->changed);
    const struct muster_rpc_request rpc = {
        .method = method,
        .token = token,
        .rights = MUSTER_RIGHT_WORK | MUSTER_RIGHT_LIST,
        .body = body,
        .size_bytes = size_bytes,
        .timeout_ms = UINT32_MAX,
    };
    struct muster_rpc_response response;
    if (muster_rpc_handle(service, &rpc, &call->request, &response)) {
        take_response(call, response);
    } else {
        call->held = true;
    }
}

void test_call_start(struct test_call *call, struct muster_service *service,
                     enum muster_rpc_method method, const char *token, const char *request, ...)
{
    char text[REQUEST_SIZE];
    va_list arguments;
    va_start(arguments, request);
    (void)vsnprintf(text, sizeof text, request, arguments);
    va_end(arguments);
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    test_call_start_bytes(call, service, method, token, text, strlen(text));
}

bool test_call_wait(struct test_call *call)
{
    int64_t deadline_ns = muster_clock_after_ms(WAIT_MS);
    AUTO_LOCK(&call->mutex);
    while (!call->answered) {
        if (!muster_condition_wait(&call->changed, &call->mutex, deadline_ns)) {
            return call->answered;
        }
    }
    return true;
}

bool test_call_is_answered(struct test_call *call)
{
    AUTO_LOCK(&call->mutex);
    return call->answered;
}

void test_call_expect(struct test_call *call, enum muster_rpc_code code, const char *part)
{
    assert_true(test_call_wait(call));
    if (call->code != code || strstr(test_part_text(call->json, "message"), part) == NULL) {
        fail_msg("%s: \"%s\"", muster_rpc_code_name(call->code),
                 test_part_text(call->json, "message"));
    }
    test_call_finish(call);
}

void test_call_finish(struct test_call *call)
{
    if (!test_call_wait(call)) {
        (void)fprintf(stderr, "a held call was never answered\n");
        abort();
    }
    json_decref(call->json);
    (void)pthread_cond_destroy(&call->changed);
    (void)pthread_mutex_destroy(&call->mutex);
}

const char *test_member(unsigned index)
{
    static char ids[MEMBER_COUNT][MUSTER_UUID_SIZE];
    char *id = ids[index % MEMBER_COUNT];
    (void)snprintf(id, MUSTER_UUID_SIZE, "00000000-0000-4000-8000-%012x", index % MEMBER_COUNT);
    return id;
}
