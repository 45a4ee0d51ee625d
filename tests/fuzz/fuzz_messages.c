/* Fuzzes the messages: the first byte chooses one, the rest is its JSON. What is decoded can be
 * encoded, and is then decoded to the same. */
#include "elastic/messages/base64.h"
#include "elastic/messages/messages.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The message as JSON, after one decode; NULL: it is refused. */
#define MESSAGE(name, type, finish_call)                        \
    static json_t *again_##name(const json_t *json)             \
    {                                                           \
        struct type *value = calloc(1, sizeof *value);          \
        json_t *encoded = NULL;                                 \
        if (muster_##name##_decode(json, value) == MUSTER_OK) { \
            encoded = muster_##name##_encode(value);            \
            if (encoded == NULL) {                              \
                abort();                                        \
            }                                                   \
            finish_call;                                        \
        }                                                       \
        free(value);                                            \
        return encoded;                                         \
    }
#define PLAIN(name) MESSAGE(name, muster_##name, (void)0)
#define OWNING(name) MESSAGE(name, muster_##name, muster_##name##_finish(value))

PLAIN(join_request)
OWNING(join_response)
PLAIN(watch_request)
OWNING(watch_response)
PLAIN(leave_request)
PLAIN(report_request)
PLAIN(resize_request)
OWNING(peers_request)
OWNING(peers_response)
OWNING(value_request)
OWNING(value_response)
PLAIN(count_request)
PLAIN(count_response)
PLAIN(add_response)
OWNING(swap_response)
PLAIN(delete_response)
PLAIN(job_request)
OWNING(job_response)
OWNING(jobs_response)
PLAIN(rpc_error)
PLAIN(event)
PLAIN(snapshot_record)

typedef json_t *(*again_function)(const json_t *json);
static const again_function messages[] = {
    again_join_request,   again_join_response,   again_watch_request,  again_watch_response,
    again_leave_request,  again_report_request,  again_resize_request, again_peers_request,
    again_peers_response, again_value_request,   again_value_response, again_count_request,
    again_count_response, again_add_response,    again_swap_response,  again_delete_response,
    again_job_request,    again_job_response,    again_jobs_response,  again_rpc_error,
    again_event,          again_snapshot_record,
};
enum { MESSAGES = sizeof messages / sizeof messages[0] };

static void round_trip(again_function again, const json_t *json, bool lenient)
{
    json_t *first = again(json);
    if (first == NULL) {
        return;
    }
    json_t *second = again(first);
    bool refused = second == NULL && lenient; /* a word that was absent has none to be written as */
    if (!refused && (second == NULL || json_equal(first, second) == 0)) {
        abort(); /* what one end has accepted and sends on, the other end understands */
    }
    json_decref(first);
    json_decref(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = NULL;
    if (size == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    size_t length = size - 1;
    char *bytes = malloc(MUSTER_BASE64_BYTES(length) + 1);
    if (bytes != NULL) {
        size_t decoded = 0;
        (void)muster_base64_decode(text, length, bytes, &decoded);
    }
    free(bytes);
    if (muster_json_parse(text, length, &json) == MUSTER_OK) {
        again_function again = messages[data[0] % MESSAGES];
        round_trip(again, json, again == again_job_response || again == again_jobs_response);
        (void)muster_snapshot_record_is(json);
        json_decref(json);
    }
    return 0;
}
