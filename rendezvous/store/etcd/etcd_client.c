/* Calls of etcd by libcurl: the members of the cluster, a pool of connections, attempts. */
#include "rendezvous/store/etcd/etcd_client.h"

#include "rendezvous/calls/outgoing.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/base/thread.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECT_MS = 300,
    PAUSE_MAX_MS = 20,     /* between attempts */
    ATTEMPT_LEAST_MS = 50, /* for another attempt of the same call */
    ANSWER_MAX_BYTES = 256 * 1024 * 1024,
    ENDPOINT_SIZE = 256,
    STREAM_POLL_MS = 100,
    /* Codes of gRPC in an answer of etcd that say: do not try this again. */
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNAUTHENTICATED = 16,
};

/* A connection to one member after the other; in one call at a time. */
struct etcd_connection {
    struct etcd_connection *next;
    CURL *easy;
    struct muster_outgoing_body body;
    char problem[CURL_ERROR_SIZE];
};

struct muster_etcd_client {
    char name[ENDPOINT_SIZE * 2];
    char prefix[MUSTER_ETCD_PREFIX_SIZE];
    char endpoints[MUSTER_ETCD_ENDPOINTS_MAX][ENDPOINT_SIZE];
    unsigned count;
    atomic_uint current;  /* the member that answered last */
    atomic_uint streamed; /* the member of the last stream */
    struct curl_slist *headers;
    char *authority, *certificate, *key; /* owned, or NULL */
    pthread_mutex_t mutex;
    struct etcd_connection *idle; /* under the lock */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_started = CURLE_FAILED_INIT;

static void start_curl(void)
{
    curl_started = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* The place ------------------------------------------------------------------------------------ */

static muster_status place_error(const char *place, const char *what)
{
    return muster_error_set(MUSTER_INVALID,
                            "store \"%.200s\": %s; it is etcd://HOST:PORT,HOST:PORT/PREFIX", place,
                            what);
}

static bool is_endpoint(const char *text, size_t length)
{
    const char *colon = memrchr(text, ':', length);
    size_t port = colon != NULL ? (size_t)(text + length - colon - 1) : 0;
    return colon > text && port > 0 && port <= 5 && strspn(colon + 1, "0123456789") >= port &&
           memchr(text, '@', length) == NULL && memchr(text, ' ', length) == NULL;
}

/* Splits "HOST:PORT,HOST:PORT". */
static muster_status read_endpoints(struct muster_etcd_client *client, const char *place,
                                    const char *list, size_t length)
{
    const char *end = list + length;
    for (const char *at = list; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t size = (size_t)((comma != NULL ? comma : end) - at);
        if (client->count == MUSTER_ETCD_ENDPOINTS_MAX || size + 9 > ENDPOINT_SIZE ||
            !is_endpoint(at, size)) {
            return place_error(place, "needs 1 to 16 times HOST:PORT");
        }
        (void)snprintf(client->endpoints[client->count++], ENDPOINT_SIZE, "%s://%.*s",
                       client->authority != NULL ? "https" : "http", (int)size, at);
        at += size + 1;
    }
    return MUSTER_OK;
}

static muster_status read_place(struct muster_etcd_client *client, const char *place)
{
    const char *list = place + strlen("etcd://");
    size_t length = strcspn(list, "/");
    const char *prefix = list[length] == '/' ? list + length + 1 : "";
    size_t size = strlen(prefix);
    size -= size > 0 && prefix[size - 1] == '/';
    TRY(read_endpoints(client, place, list, length));
    if (size + 2 > sizeof client->prefix ||
        strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") <
            size) {
        return place_error(place,
                           "the prefix has letters, digits, '.', '_', '-' and '/', up to 126");
    }
    (void)snprintf(client->prefix, sizeof client->prefix, "%.*s/",
                   size > 0 ? (int)size : (int)strlen("muster"), size > 0 ? prefix : "muster");
    (void)snprintf(client->name, sizeof client->name, "etcd://%.*s", (int)length, list);
    return MUSTER_OK;
}

/* A file that cannot be read would be an error of each call. */
static muster_status copy_file(const char *what, const char *path, char **ret_copy)
{
    if (path == NULL) {
        return MUSTER_OK;
    }
    if (access(path, R_OK) != 0) {
        return muster_error_errno(MUSTER_INVALID, "etcd %s %s", what, path);
    }
    *ret_copy = strdup(path);
    return *ret_copy != NULL ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "no memory");
}

static muster_status read_files(struct muster_etcd_client *client,
                                const struct muster_call_files *files)
{
    TRY(copy_file("authority", files->authority, &client->authority));
    TRY(copy_file("certificate", files->certificate, &client->certificate));
    return copy_file("key", files->key, &client->key);
}

static muster_status set_up(struct muster_etcd_client *client, const char *place,
                            const struct muster_call_files *files)
{
    TRY(read_files(client, files));
    TRY(read_place(client, place));
    client->headers = curl_slist_append(NULL, "Expect:"); /* "100-continue" costs a round trip */
    return client->headers != NULL ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "no memory");
}

muster_status muster_etcd_client_create(const char *place, const struct muster_call_files *files,
                                        struct muster_etcd_client **ret_client)
{
    (void)pthread_once(&curl_once, start_curl);
    if (curl_started != CURLE_OK) {
        return muster_error_set(MUSTER_FATAL, "libcurl: %s", curl_easy_strerror(curl_started));
    }
    struct muster_etcd_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_mutex_init(&client->mutex);
    muster_status status = set_up(client, place, files);
    if (status != MUSTER_OK) {
        muster_etcd_client_destroy(client);
        return status;
    }
    *ret_client = client;
    return MUSTER_OK;
}

static void destroy_connection(struct etcd_connection *connection)
{
    curl_easy_cleanup(connection->easy);
    free(connection->body.text);
    free(connection);
}

void muster_etcd_client_destroy(struct muster_etcd_client *client)
{
    if (client == NULL) {
        return;
    }
    while (client->idle != NULL) {
        struct etcd_connection *connection = client->idle;
        client->idle = connection->next;
        destroy_connection(connection);
    }
    curl_slist_free_all(client->headers);
    free(client->authority);
    free(client->certificate);
    free(client->key);
    (void)pthread_mutex_destroy(&client->mutex);
    free(client);
}

const char *muster_etcd_client_name(const struct muster_etcd_client *client)
{
    return client->name;
}

const char *muster_etcd_client_prefix(const struct muster_etcd_client *client)
{
    return client->prefix;
}

/* Connections ---------------------------------------------------------------------------------- */

static bool configure(const struct muster_etcd_client *client, struct etcd_connection *connection)
{
    const struct muster_call_files files = {
        .authority = client->authority, .certificate = client->certificate, .key = client->key};
    const struct muster_outgoing_settings settings = {
        .protocols = client->authority != NULL ? "https" : "http",
        .files = &files,
        .headers = client->headers,
        .problem = connection->problem,
        .connect_ms = CONNECT_MS,
    };
    connection->body.max_bytes = ANSWER_MAX_BYTES;
    return muster_outgoing_configure(connection->easy, &settings);
}

/* NULL: no memory. */
static struct etcd_connection *create_connection(struct muster_etcd_client *client)
{
    struct etcd_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        return NULL;
    }
    connection->easy = curl_easy_init();
    if (connection->easy == NULL || !configure(client, connection)) {
        destroy_connection(connection);
        return NULL;
    }
    return connection;
}

static struct etcd_connection *take_connection(struct muster_etcd_client *client)
{
    muster_mutex_lock(&client->mutex);
    struct etcd_connection *connection = client->idle;
    if (connection != NULL) {
        client->idle = connection->next;
    }
    muster_mutex_unlock(&client->mutex);
    return connection != NULL ? connection : create_connection(client);
}

static void put_back(struct muster_etcd_client *client, struct etcd_connection *connection)
{
    AUTO_LOCK(&client->mutex);
    connection->next = client->idle;
    client->idle = connection;
}

/* Calls ---------------------------------------------------------------------------------------- */

/* An error of etcd, or of something else that listens there. */
static muster_status read_error(const struct muster_etcd_client *client, long http,
                                const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "message"));
    json_int_t code = json_integer_value(json_object_get(answer, "code"));
    muster_status status = MUSTER_RETRY;
    if (code == GRPC_NOT_FOUND) {
        status = MUSTER_ENDED;
    } else if (code == GRPC_INVALID_ARGUMENT || code == GRPC_PERMISSION_DENIED ||
               code == GRPC_OUT_OF_RANGE || code == GRPC_UNAUTHENTICATED) {
        status = MUSTER_INVALID;
    }
    return muster_error_set(status, "store %s: HTTP %ld: %.200s", client->name, http,
                            text != NULL ? text : "not from an etcd");
}

struct etcd_attempt {
    const char *endpoint, *method, *request;
    uint32_t timeout_ms;
    bool again; /* it failed, and another one may not */
};

static bool configure_attempt(struct etcd_connection *connection,
                              const struct etcd_attempt *attempt)
{
    char url[ENDPOINT_SIZE + 64];
    CURL *easy = connection->easy;
    const char *request = attempt->request;
    (void)snprintf(url, sizeof url, "%s/v3/%s", attempt->endpoint, attempt->method);
    connection->body.size = 0;
    connection->problem[0] = '\0';
    return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, muster_outgoing_append) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, &connection->body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)attempt->timeout_ms) == CURLE_OK;
}

static muster_status attempt_once(struct muster_etcd_client *client,
                                  struct etcd_connection *connection, struct etcd_attempt *attempt,
                                  json_t **ret_answer)
{
    if (!configure_attempt(connection, attempt)) {
        return muster_error_set(MUSTER_FATAL, "libcurl: no memory");
    }
    attempt->again = true;
    CURLcode result = curl_easy_perform(connection->easy);
    if (result != CURLE_OK) {
        return muster_error_set(
            MUSTER_RETRY, "store %s: member %s: %s", client->name, attempt->endpoint,
            connection->problem[0] != '\0' ? connection->problem : curl_easy_strerror(result));
    }
    long http = 0;
    (void)curl_easy_getinfo(connection->easy, CURLINFO_RESPONSE_CODE, &http);
    json_t *answer = json_loadb(connection->body.size > 0 ? connection->body.text : "",
                                connection->body.size, 0, NULL);
    if (http == 200 && json_is_object(answer)) {
        *ret_answer = answer;
        return MUSTER_OK;
    }
    muster_status status = read_error(client, http, answer);
    json_int_t code = json_integer_value(json_object_get(answer, "code"));
    attempt->again = status == MUSTER_RETRY && code != GRPC_RESOURCE_EXHAUSTED;
    json_decref(answer);
    return status;
}

static void pause_before_next(int64_t deadline_ns)
{
    int64_t wait_ns = (int64_t)(1 + muster_random_below(PAUSE_MAX_MS)) * MUSTER_NS_PER_MS;
    int64_t left_ns = (int64_t)muster_clock_left_ms(deadline_ns) * MUSTER_NS_PER_MS;
    struct timespec wait = muster_clock_timespec(wait_ns < left_ns ? wait_ns : left_ns);
    (void)nanosleep(&wait, NULL);
}

static muster_status attempt_until(struct muster_etcd_client *client,
                                   struct etcd_connection *connection, const char *method,
                                   const char *request, int64_t deadline_ns, json_t **ret_answer)
{
    for (;;) {
        unsigned member = atomic_load(&client->current);
        int left_ms = muster_clock_left_ms(deadline_ns);
        uint32_t timeout_ms =
            left_ms < MUSTER_ETCD_ATTEMPT_MS ? (uint32_t)left_ms : MUSTER_ETCD_ATTEMPT_MS;
        struct etcd_attempt attempt = {.endpoint = client->endpoints[member],
                                       .method = method,
                                       .request = request,
                                       .timeout_ms = timeout_ms > 0 ? timeout_ms : 1};
        muster_status status = attempt_once(client, connection, &attempt, ret_answer);
        if (status == MUSTER_OK || !attempt.again) {
            return status;
        }
        (void)atomic_compare_exchange_strong(&client->current, &member,
                                             (member + 1) % client->count);
        pause_before_next(deadline_ns);
        /* An attempt that has no time says only that, and hides what was wrong. */
        if (muster_clock_left_ms(deadline_ns) < ATTEMPT_LEAST_MS) {
            return status;
        }
    }
}

muster_status muster_etcd_call(struct muster_etcd_client *client, const char *method,
                               json_t *request, int64_t deadline_ns, json_t **ret_answer)
{
    AUTO_FREE char *text = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    struct etcd_connection *connection = text != NULL ? take_connection(client) : NULL;
    if (connection == NULL) {
        return muster_error_set(MUSTER_FATAL, "store %s: no memory", client->name);
    }
    muster_status status = attempt_until(client, connection, method, text, deadline_ns, ret_answer);
    put_back(client, connection);
    return status;
}

/* Streams -------------------------------------------------------------------------------------- */

struct etcd_stream {
    struct etcd_connection *connection;
    muster_etcd_line line;
    muster_etcd_goes_on goes_on;
    void *user;
};

static size_t append_lines(char *data, size_t size, size_t count, void *user)
{
    struct etcd_stream *stream = user;
    struct muster_outgoing_body *body = &stream->connection->body;
    if (muster_outgoing_append(data, size, count, body) != size * count) {
        return 0;
    }
    size_t begin = 0;
    char *end = NULL;
    while ((end = memchr(body->text + begin, '\n', body->size - begin)) != NULL) {
        size_t length = (size_t)(end - body->text) - begin;
        if (!stream->line(stream->user, body->text + begin, length)) {
            return 0;
        }
        begin += length + 1;
    }
    memmove(body->text, body->text + begin, body->size - begin);
    body->size -= begin;
    return size * count;
}

static bool configure_stream(struct etcd_stream *stream, const char *url, const char *request)
{
    CURL *easy = stream->connection->easy;
    return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append_lines) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, stream) == CURLE_OK;
}

static void run_stream(struct etcd_stream *stream, CURLM *multi)
{
    int running = 1;
    while (running > 0 && stream->goes_on(stream->user) &&
           curl_multi_perform(multi, &running) == CURLM_OK) {
        if (running > 0) {
            (void)curl_multi_poll(multi, NULL, 0, STREAM_POLL_MS, NULL);
        }
    }
}

muster_status muster_etcd_stream(struct muster_etcd_client *client, const char *method,
                                 json_t *request, muster_etcd_line line,
                                 muster_etcd_goes_on goes_on, void *user)
{
    AUTO_FREE char *text = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    struct etcd_stream stream = {.connection = text != NULL ? create_connection(client) : NULL,
                                 .line = line,
                                 .goes_on = goes_on,
                                 .user = user};
    if (stream.connection == NULL) {
        return muster_error_set(MUSTER_FATAL, "store %s: no memory", client->name);
    }
    char url[ENDPOINT_SIZE + 64];
    unsigned member = atomic_fetch_add(&client->streamed, 1) % client->count;
    (void)snprintf(url, sizeof url, "%s/v3/%s", client->endpoints[member], method);
    CURLM *multi = curl_multi_init();
    if (multi != NULL && configure_stream(&stream, url, text) &&
        curl_multi_add_handle(multi, stream.connection->easy) == CURLM_OK) {
        run_stream(&stream, multi);
        (void)curl_multi_remove_handle(multi, stream.connection->easy);
    }
    muster_status status = muster_error_set(
        MUSTER_RETRY, "store %s: the stream from %s ended: %s", client->name,
        client->endpoints[member],
        stream.connection->problem[0] != '\0' ? stream.connection->problem : "closed");
    destroy_connection(stream.connection);
    if (multi != NULL) {
        (void)curl_multi_cleanup(multi);
    }
    return status;
}
