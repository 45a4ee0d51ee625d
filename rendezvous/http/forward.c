/* The thread that forwards requests, by libcurl. */
#include "rendezvous/http/forward.h"

#include "rendezvous/calls/outgoing.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/thread.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { POLL_MS = 1000, URL_SIZE = 512, HEADER_SIZE = MUSTER_TOKEN_MAX_BYTES + 64 };

/* The service's serials and Horovod's are others. */
static const uint64_t serial_mark = UINT64_C(1) << 62;

struct forward {
    struct forward *prev, *next;
    struct muster_held_request *held;
    uint64_t serial;
    char *owner; /* owned */
    CURL *easy;  /* of the thread, once it has begun */
    struct curl_slist *headers;
    struct muster_outgoing_body response;
    bool begun, canceled; /* canceled: under the lock */
    char problem[CURL_ERROR_SIZE];
};

struct muster_forwards {
    char *authority, *certificate, *key; /* owned, or NULL */
    CURLM *multi;
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex;
    struct forward *list; /* under the lock */
    uint64_t serials;     /* under the lock */
    bool stopping;        /* under the lock */
};

/* One request ---------------------------------------------------------------------------------- */

static bool add_header(struct forward *forward, const char *name, const char *value)
{
    char line[HEADER_SIZE];
    if (value == NULL) {
        return true;
    }
    if (snprintf(line, sizeof line, "%s: %s", name, value) >= (int)sizeof line) {
        return true; /* no token is so long */
    }
    struct curl_slist *longer = curl_slist_append(forward->headers, line);
    forward->headers = longer != NULL ? longer : forward->headers;
    return longer != NULL;
}

static bool add_headers(struct forward *forward, const struct muster_forward_request *request)
{
    char timeout[16];
    (void)snprintf(timeout, sizeof timeout, "%u", request->timeout_ms);
    return add_header(forward, "Content-Type", "application/json") &&
           add_header(forward, MUSTER_FORWARDED_HEADER, "1") && add_header(forward, "Expect", "") &&
           add_header(forward, "Authorization", request->authorization) &&
           add_header(forward, MUSTER_SERVER_TOKEN_HEADER, request->server_token) &&
           add_header(forward, "Connect-Timeout-Ms",
                      request->timeout_ms != UINT32_MAX ? timeout : NULL);
}

static bool configure(const struct muster_forwards *forwards, struct forward *forward,
                      const struct muster_forward_request *request)
{
    char url[URL_SIZE];
    CURL *easy = forward->easy;
    (void)snprintf(url, sizeof url, "%s/muster.v1.Rendezvous/%s", request->owner,
                   muster_rpc_method_name(request->method));
    long size = (long)request->size_bytes;
    const struct muster_call_files files = {.authority = forwards->authority,
                                            .certificate = forwards->certificate,
                                            .key = forwards->key};
    const struct muster_outgoing_settings settings = {
        .protocols = "http,https",
        .files = &files,
        .headers = forward->headers,
        .problem = forward->problem,
        .connect_ms = MUSTER_FORWARD_CONNECT_MS,
    };
    forward->response.max_bytes = MUSTER_RESPONSE_MAX_BYTES;
    return muster_outgoing_configure(easy, &settings) &&
           curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)MUSTER_FORWARD_MAX_MS) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, size) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, size > 0 ? request->body : "") ==
               CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, muster_outgoing_append) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, &forward->response) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, forward) == CURLE_OK;
}

static void destroy(struct forward *forward)
{
    if (forward != NULL) {
        curl_easy_cleanup(forward->easy);
        curl_slist_free_all(forward->headers);
        free(forward->owner);
        free(forward->response.text);
        free(forward);
    }
}

/* NULL: no memory. */
static struct forward *create(const struct muster_forwards *forwards,
                              const struct muster_forward_request *request)
{
    struct forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL) {
        return NULL;
    }
    forward->owner = strdup(request->owner);
    forward->easy = curl_easy_init();
    if (forward->owner == NULL || forward->easy == NULL || !add_headers(forward, request) ||
        !configure(forwards, forward, request)) {
        destroy(forward);
        return NULL;
    }
    return forward;
}

/* Responses ------------------------------------------------------------------------------------ */

static struct muster_rpc_response refuse(const struct forward *forward, const char *why)
{
    return muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE,
                                     "the job is served by %s, which does not answer: %s",
                                     forward->owner, why);
}

/* The code of an error, which its JSON has. */
static struct muster_rpc_response read_response(struct forward *forward)
{
    long http = 0;
    struct muster_rpc_error error = {.code = MUSTER_RPC_OK};
    (void)curl_easy_getinfo(forward->easy, CURLINFO_RESPONSE_CODE, &http);
    if (http != 200) {
        json_t *json = NULL;
        if (muster_json_parse(forward->response.text != NULL ? forward->response.text : "",
                              forward->response.size, &json) != MUSTER_OK) {
            return refuse(forward, "what it sends is not from a musterd");
        }
        muster_status status = muster_rpc_error_decode(json, &error);
        json_decref(json);
        if (status != MUSTER_OK || error.code == MUSTER_RPC_OK) {
            return refuse(forward, "what it sends is not from a musterd");
        }
    }
    struct muster_rpc_response response = {.code = error.code,
                                           .size_bytes = forward->response.size};
    response.body = TAKE(forward->response.text);
    response.owner = TAKE(forward->owner);
    return response;
}

/* Takes the request out of the list, answers it and frees it. */
static void end(struct muster_forwards *forwards, struct forward *forward,
                struct muster_rpc_response response)
{
    struct muster_held_request *held = forward->held;
    muster_mutex_lock(&forwards->mutex);
    DL_DELETE(forwards->list, forward);
    muster_mutex_unlock(&forwards->mutex);
    if (forward->begun) {
        (void)curl_multi_remove_handle(forwards->multi, forward->easy);
    }
    destroy(forward);
    held->respond(held, response);
}

/* The thread ----------------------------------------------------------------------------------- */

/* The first request that waits for the thread: new, or canceled. NULL: none. */
static struct forward *next_to_see(struct muster_forwards *forwards, bool *ret_canceled,
                                   bool *ret_stopping)
{
    struct forward *forward = NULL;
    AUTO_LOCK(&forwards->mutex);
    *ret_stopping = forwards->stopping;
    DL_FOREACH(forwards->list, forward)
    {
        if (forward->canceled || !forward->begun || forwards->stopping) {
            *ret_canceled = forward->canceled;
            return forward;
        }
    }
    return NULL;
}

/* Begins what is new, and ends what is canceled. False: the thread is to end. */
static bool see_list(struct muster_forwards *forwards)
{
    bool canceled = false;
    bool stopping = false;
    struct forward *forward = NULL;
    while ((forward = next_to_see(forwards, &canceled, &stopping)) != NULL) {
        if (canceled) {
            end(forwards, forward,
                muster_rpc_response_error(MUSTER_RPC_CANCELED, "the connection closed"));
        } else if (stopping) {
            end(forwards, forward,
                muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "musterd is ending"));
        } else if (curl_multi_add_handle(forwards->multi, forward->easy) != CURLM_OK) {
            end(forwards, forward, refuse(forward, "no memory"));
        } else {
            forward->begun = true;
        }
    }
    return !stopping;
}

static void see_messages(struct muster_forwards *forwards)
{
    int left = 0;
    CURLMsg *message = NULL;
    while ((message = curl_multi_info_read(forwards->multi, &left)) != NULL) {
        struct forward *forward = NULL;
        CURLcode result = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&forward);
        if (message->msg == CURLMSG_DONE && forward != NULL) {
            end(forwards, forward,
                result == CURLE_OK
                    ? read_response(forward)
                    : refuse(forward, forward->problem[0] != '\0' ? forward->problem
                                                                  : curl_easy_strerror(result)));
        }
    }
}

static void *run(void *user)
{
    struct muster_forwards *forwards = user;
    int running = 0;
    while (see_list(forwards)) {
        if (curl_multi_perform(forwards->multi, &running) != CURLM_OK) {
            muster_log(MUSTER_LOG_ERROR, "libcurl: requests cannot be forwarded");
        }
        see_messages(forwards);
        (void)curl_multi_poll(forwards->multi, NULL, 0, POLL_MS, NULL);
    }
    return NULL;
}

void muster_forwards_add(struct muster_forwards *forwards,
                         const struct muster_forward_request *request,
                         struct muster_held_request *held)
{
    struct forward *forward = create(forwards, request);
    muster_mutex_lock(&forwards->mutex);
    held->id = (struct muster_held_id){.serial = ++forwards->serials | serial_mark};
    bool refused = forward == NULL || forwards->stopping;
    if (!refused) {
        forward->held = held;
        forward->serial = held->id.serial;
        DL_APPEND(forwards->list, forward);
    }
    muster_mutex_unlock(&forwards->mutex);
    if (refused) {
        destroy(forward);
        held->respond(held, muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE,
                                                      "musterd is ending, or has no memory"));
        return;
    }
    (void)curl_multi_wakeup(forwards->multi);
}

bool muster_forwards_holds(const struct muster_held_id *id)
{
    return (id->serial & serial_mark) != 0 && (id->serial & (serial_mark << 1)) == 0;
}

void muster_forwards_disconnected(struct muster_forwards *forwards, const struct muster_held_id *id)
{
    struct forward *forward = NULL;
    muster_mutex_lock(&forwards->mutex);
    DL_FOREACH(forwards->list, forward)
    {
        if (forward->serial == id->serial) {
            forward->canceled = true;
        }
    }
    muster_mutex_unlock(&forwards->mutex);
    (void)curl_multi_wakeup(forwards->multi);
}

/* Life ----------------------------------------------------------------------------------------- */

static char *copy(const char *text, bool *failed)
{
    char *copied = text != NULL ? strdup(text) : NULL;
    *failed = *failed || (text != NULL && copied == NULL);
    return copied;
}

muster_status muster_forwards_create(const struct muster_call_files *files,
                                     struct muster_forwards **ret_forwards)
{
    struct muster_forwards *forwards = calloc(1, sizeof *forwards);
    bool failed = false;
    if (forwards == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_mutex_init(&forwards->mutex);
    forwards->authority = copy(files->authority, &failed);
    forwards->certificate = copy(files->certificate, &failed);
    forwards->key = copy(files->key, &failed);
    forwards->multi = curl_multi_init();
    if (!failed && forwards->multi != NULL) {
        forwards->runs = muster_thread_start(&forwards->thread, run, forwards) == 0;
    }
    if (!forwards->runs) {
        muster_forwards_destroy(forwards);
        return muster_error_set(MUSTER_FATAL, "requests cannot be forwarded: no memory");
    }
    *ret_forwards = forwards;
    return MUSTER_OK;
}

void muster_forwards_stop(struct muster_forwards *forwards)
{
    if (forwards != NULL && forwards->runs) {
        muster_mutex_lock(&forwards->mutex);
        forwards->stopping = true;
        muster_mutex_unlock(&forwards->mutex);
        (void)curl_multi_wakeup(forwards->multi);
        (void)pthread_join(forwards->thread, NULL);
        forwards->runs = false;
    }
}

void muster_forwards_destroy(struct muster_forwards *forwards)
{
    if (forwards != NULL) {
        muster_forwards_stop(forwards);
        if (forwards->multi != NULL) {
            (void)curl_multi_cleanup(forwards->multi);
        }
        free(forwards->authority);
        free(forwards->certificate);
        free(forwards->key);
        (void)pthread_mutex_destroy(&forwards->mutex);
        free(forwards);
    }
}
