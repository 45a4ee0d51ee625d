/* The client of the rendezvous service, by libcurl. */
#include "worker/session/rendezvous_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/fork_guard.h"
#include "worker/base/keepalive.h"
#include "worker/session/server_list.h"
#include "worker/session/service_policy.h"

enum {
    CONNECT_MAX_MS = 3000,
    POLL_MAX_MS = 1000,
};

struct muster_client {
    struct muster_server_list servers;
    CURLM *multi; /* owns the connection; its wakeup interrupts a call */
    CURL *easy;
    struct curl_slist *headers;
    muster_client_meanwhile meanwhile; /* or NULL */
    void *meanwhile_user;
    atomic_bool interrupted;
    bool answered; /* a server has: from then on its certificate may be mended */
    /* For the present attempt: */
    char *body; /* owned */
    size_t body_size, body_capacity;
    bool body_too_big;
    int socket_error; /* why there is no socket; 0: there is one */
    char problem[CURL_ERROR_SIZE];
    char owner[MUSTER_LISTED_URL_SIZE]; /* the server that the answer names; "": none */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_started = CURLE_FAILED_INIT;

static void start_curl(void)
{
    curl_started = curl_global_init(CURL_GLOBAL_DEFAULT);
}

muster_status muster_client_check_url(const char *url)
{
    return muster_server_list_check(url);
}

/* Opened here because libcurl does not report why it has no socket. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct muster_client *client = user;
    (void)purpose;
    int fd = MUSTER_GUARDED(
        socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol));
    client->socket_error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        (void)muster_keepalive_set(fd); /* a held call notices that the server's host is gone */
    }
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int close_socket(void *unused, curl_socket_t fd)
{
    (void)unused;
    muster_fork_guard_close(fd);
    return 0;
}

static bool add_header(struct muster_client *client, const char *line)
{
    struct curl_slist *longer = curl_slist_append(client->headers, line);
    if (longer != NULL) {
        client->headers = longer;
    }
    return longer != NULL;
}

/* Adds a header with a token, if there is one. what: for the error text. */
static muster_status add_token(struct muster_client *client, const char *header, const char *token,
                               const char *what)
{
    size_t length = token != NULL ? strlen(token) : 0;
    for (size_t i = 0; i < length; i++) {
        if (length > MUSTER_TOKEN_MAX_BYTES || token[i] <= ' ' || token[i] > '~') {
            return muster_error_set(MUSTER_INVALID,
                                    "%s: must be 1 to %d printable characters without spaces", what,
                                    MUSTER_TOKEN_MAX_BYTES);
        }
    }
    char line[MUSTER_TOKEN_MAX_BYTES + 64];
    (void)snprintf(line, sizeof line, "%s%s", header, length > 0 ? token : "");
    return length == 0 || add_header(client, line) ? MUSTER_OK
                                                   : muster_error_set(MUSTER_FATAL, "no memory");
}

static muster_status add_headers(struct muster_client *client, const char *token)
{
    bool added =
        add_header(client, "Content-Type: application/json") &&
        add_header(client, "Connect-Protocol-Version: 1") &&
        add_header(client, "Expect:"); /* no "Expect: 100-continue", which costs a round trip */
    TRY(added ? MUSTER_OK : muster_error_set(MUSTER_FATAL, "no memory"));
    return add_token(client, "Authorization: Bearer ", token, "token");
}

static size_t append_body(char *data, size_t size, size_t count, void *user)
{
    struct muster_client *client = user;
    size_t added = size * count;
    if (added > MUSTER_RESPONSE_MAX_BYTES - client->body_size) {
        client->body_too_big = true;
        return 0;
    }
    if (client->body_size + added > client->body_capacity) {
        size_t capacity = (client->body_size + added) * 2;
        char *grown = realloc(client->body, capacity);
        if (grown == NULL) {
            return 0;
        }
        client->body = grown;
        client->body_capacity = capacity;
    }
    memcpy(client->body + client->body_size, data, added);
    client->body_size += added;
    return added;
}

/* "Muster-Owner: URL" of another server, which has the job. */
static size_t see_header(char *data, size_t size, size_t count, void *user)
{
    static const char name[] = MUSTER_OWNER_HEADER ":";
    struct muster_client *client = user;
    size_t length = size * count;
    if (length > sizeof name && strncasecmp(data, name, sizeof name - 1) == 0) {
        char line[MUSTER_LISTED_URL_SIZE];
        (void)snprintf(line, sizeof line, "%.*s", (int)(length - sizeof name + 1),
                       data + sizeof name - 1);
        const char *value = line + strspn(line, " \t");
        (void)snprintf(client->owner, sizeof client->owner, "%.*s", (int)strcspn(value, " \t\r\n"),
                       value);
    }
    return length;
}

static bool configure(struct muster_client *client)
{
    CURL *easy = client->easy;
    return curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, client) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->problem) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, see_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, client) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, client) == CURLE_OK;
}

muster_status muster_client_create(const char *url, const char *token,
                                   struct muster_client **ret_client)
{
    (void)pthread_once(&curl_once, start_curl);
    if (curl_started != CURLE_OK) {
        return muster_error_set(MUSTER_FATAL, "libcurl: %s", curl_easy_strerror(curl_started));
    }
    struct muster_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_status status = muster_server_list_init(&client->servers, url);
    if (status == MUSTER_OK) {
        status = add_headers(client, token);
    }
    if (status == MUSTER_OK) {
        client->multi = curl_multi_init();
        client->easy = curl_easy_init();
        if (client->multi == NULL || client->easy == NULL || !configure(client)) {
            status = muster_error_set(MUSTER_FATAL, "libcurl: no handle");
        }
    }
    if (status != MUSTER_OK) {
        muster_client_destroy(client);
        return status;
    }
    *ret_client = client;
    return MUSTER_OK;
}

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* libcurl reads files when it connects; a file that is not there is an error at once. */
static muster_status use_file(struct muster_client *client, CURLoption option, const char *path,
                              const char *what)
{
    if (!is_given(path)) {
        return MUSTER_OK;
    }
    if (access(path, R_OK) != 0) {
        return muster_error_errno(MUSTER_INVALID, "%s %s", what, path);
    }
    return curl_easy_setopt(client->easy, option, path) == CURLE_OK
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "libcurl: %s cannot be set", what);
}

/* An empty pass phrase: a worker cannot prompt for one. */
muster_status muster_client_secure(struct muster_client *client,
                                   const struct muster_client_security *security)
{
    if (is_given(security->certificate) != is_given(security->key)) {
        return muster_error_set(MUSTER_INVALID,
                                "MUSTER_RENDEZVOUS_CERTIFICATE and MUSTER_RENDEZVOUS_KEY are given "
                                "both or not at all, and only the %s is",
                                is_given(security->key) ? "key" : "certificate");
    }
    TRY(add_token(client, MUSTER_SERVER_TOKEN_HEADER ": ", security->server_token,
                  "server token (MUSTER_SERVER_TOKEN)"));
    TRY(use_file(client, CURLOPT_CAINFO, security->authority,
                 "authority (MUSTER_RENDEZVOUS_AUTHORITY)"));
    TRY(use_file(client, CURLOPT_SSLCERT, security->certificate,
                 "certificate (MUSTER_RENDEZVOUS_CERTIFICATE)"));
    TRY(use_file(client, CURLOPT_SSLKEY, security->key, "key (MUSTER_RENDEZVOUS_KEY)"));
    return curl_easy_setopt(client->easy, CURLOPT_KEYPASSWD, "") == CURLE_OK &&
                   curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, client->headers) == CURLE_OK
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "libcurl: no memory");
}

void muster_client_destroy(struct muster_client *client)
{
    if (client == NULL) {
        return;
    }
    curl_easy_cleanup(client->easy);
    if (client->multi != NULL) {
        (void)curl_multi_cleanup(client->multi);
    }
    curl_slist_free_all(client->headers);
    free(client->body);
    free(client);
}

void muster_client_interrupt(struct muster_client *client)
{
    atomic_store(&client->interrupted, true);
    (void)curl_multi_wakeup(client->multi);
}

/* How one attempt ended. */
struct attempt {
    muster_status status;
    enum muster_rpc_code code;
    json_t *answer; /* owned; when the status is MUSTER_OK */
};

static struct attempt attempt_failed(muster_status status, enum muster_rpc_code code)
{
    return (struct attempt){.status = status, .code = code};
}

static struct attempt attempt_interrupted(const struct muster_client *client)
{
    return attempt_failed(
        muster_error_set(MUSTER_ENDED, "rendezvous %s: interrupted", client->servers.url),
        MUSTER_RPC_CANCELED);
}

void muster_client_set_meanwhile(struct muster_client *client, muster_client_meanwhile meanwhile,
                                 void *user)
{
    client->meanwhile = meanwhile;
    client->meanwhile_user = user;
}

/* Blocks until there is something to do for the transfer, or for a while. */
static void poll_transfer(struct muster_client *client)
{
    uint32_t wait_ms =
        client->meanwhile != NULL ? client->meanwhile(client->meanwhile_user) : POLL_MAX_MS;
    (void)curl_multi_poll(client->multi, NULL, 0,
                          wait_ms < POLL_MAX_MS ? (int)wait_ms : POLL_MAX_MS, NULL);
}

/* Runs the transfer until it ends or the client is interrupted. */
static CURLcode transfer(struct muster_client *client)
{
    CURLcode result = CURLE_OK;
    int running = 1;
    while (running > 0 && !atomic_load(&client->interrupted)) {
        if (curl_multi_perform(client->multi, &running) != CURLM_OK) {
            return CURLE_FAILED_INIT;
        }
        if (running > 0) {
            poll_transfer(client);
        }
    }
    int left = 0;
    CURLMsg *message = curl_multi_info_read(client->multi, &left);
    if (message != NULL && message->msg == CURLMSG_DONE) {
        result = message->data.result;
    } else {
        result = CURLE_ABORTED_BY_CALLBACK;
    }
    return result;
}

static struct attempt transport_error(struct muster_client *client, CURLcode result,
                                      uint32_t timeout_ms)
{
    long number = 0;
    char words[128];
    const char *what = client->problem[0] != '\0' ? client->problem : curl_easy_strerror(result);
    (void)curl_easy_getinfo(client->easy, CURLINFO_OS_ERRNO, &number);
    if (client->body_too_big) {
        return attempt_failed(muster_error_set(MUSTER_FATAL,
                                               "rendezvous %s: an answer of more than %d bytes",
                                               client->servers.url, MUSTER_RESPONSE_MAX_BYTES),
                              MUSTER_RPC_INTERNAL);
    }
    if (client->socket_error == EMFILE || client->socket_error == ENFILE) {
        return attempt_failed(
            muster_error_set(MUSTER_FATAL,
                             "rendezvous %s: this process has no descriptor left "
                             "for it (ulimit -n): %s",
                             client->servers.url,
                             strerror_r(client->socket_error, words, sizeof words)),
            MUSTER_RPC_INTERNAL);
    }
    if (result == CURLE_OPERATION_TIMEDOUT) {
        return attempt_failed(muster_error_set(MUSTER_RETRY,
                                               "rendezvous %s: no answer within %u ms",
                                               client->servers.url, timeout_ms),
                              MUSTER_RPC_UNAVAILABLE);
    }
    if (!client->answered &&
        (result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE ||
         result == CURLE_SSL_CERTPROBLEM)) {
        return attempt_failed(
            muster_error_set(MUSTER_INVALID, "rendezvous %s: %s", client->servers.url, what),
            MUSTER_RPC_UNAUTHENTICATED);
    }
    if (result == CURLE_COULDNT_CONNECT && number != 0) {
        what = strerror_r((int)number, words, sizeof words);
    }
    return attempt_failed(
        muster_error_set(MUSTER_RETRY, "rendezvous %s: %s", client->servers.url, what),
        MUSTER_RPC_UNAVAILABLE);
}

static enum muster_rpc_code code_of_http(long http)
{
    return http == 502 || http == 503 || http == 504 || http == 429 ? MUSTER_RPC_UNAVAILABLE
                                                                    : MUSTER_RPC_UNKNOWN;
}

static struct attempt server_error(const struct muster_client *client, long http,
                                   const json_t *json)
{
    struct muster_rpc_error error = {0};
    if (json == NULL || json_object_get(json, "code") == NULL ||
        muster_rpc_error_decode(json, &error) != MUSTER_OK) {
        enum muster_rpc_code code = code_of_http(http);
        return attempt_failed(muster_error_set(muster_rpc_code_status(code),
                                               "rendezvous %s: HTTP %ld, and not from a musterd",
                                               client->servers.url, http),
                              code);
    }
    muster_status status = muster_rpc_code_status(error.code);
    status = status == MUSTER_OK ? MUSTER_FATAL : status;
    return attempt_failed(
        muster_error_set(status, "rendezvous %s: %s", client->servers.url, error.message),
        error.code);
}

static struct attempt read_answer(struct muster_client *client)
{
    long http = 0;
    json_t *json = NULL;
    (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http);
    muster_status parsed =
        muster_json_parse(client->body_size > 0 ? client->body : "", client->body_size, &json);
    client->answered = true;
    if (http != 200) {
        struct attempt failed = server_error(client, http, parsed == MUSTER_OK ? json : NULL);
        if (parsed == MUSTER_OK) {
            json_decref(json);
        }
        return failed;
    }
    if (parsed != MUSTER_OK) {
        return attempt_failed(
            muster_error_prefix(MUSTER_FATAL, "rendezvous %s", client->servers.url),
            MUSTER_RPC_INTERNAL);
    }
    return (struct attempt){.status = MUSTER_OK, .code = MUSTER_RPC_OK, .answer = json};
}

static struct attempt attempt_once(struct muster_client *client, enum muster_rpc_method method,
                                   const char *request, uint32_t timeout_ms)
{
    char url[MUSTER_LISTED_URL_SIZE + 64];
    (void)snprintf(url, sizeof url, "%s/muster.v1.Rendezvous/%s", client->servers.url,
                   muster_rpc_method_name(method));
    /* The server answers a held call shortly before this timeout. */
    char timeout_header[64];
    (void)snprintf(timeout_header, sizeof timeout_header, "Connect-Timeout-Ms: %u", timeout_ms);
    struct curl_slist headers = {.data = timeout_header, .next = client->headers};
    long connect_ms = timeout_ms < CONNECT_MAX_MS ? (long)timeout_ms : CONNECT_MAX_MS;
    client->body_size = 0;
    client->body_too_big = false;
    client->problem[0] = '\0';
    client->owner[0] = '\0';
    client->socket_error = 0;
    if (curl_easy_setopt(client->easy, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(client->easy, CURLOPT_POSTFIELDS, request) != CURLE_OK ||
        curl_easy_setopt(client->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request)) != CURLE_OK ||
        curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, &headers) != CURLE_OK ||
        curl_easy_setopt(client->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms) != CURLE_OK ||
        curl_easy_setopt(client->easy, CURLOPT_CONNECTTIMEOUT_MS, connect_ms) != CURLE_OK ||
        curl_multi_add_handle(client->multi, client->easy) != CURLM_OK) {
        return attempt_failed(muster_error_set(MUSTER_FATAL, "libcurl: the call cannot be started"),
                              MUSTER_RPC_INTERNAL);
    }
    CURLcode result = transfer(client);
    struct attempt ended =
        result == CURLE_OK ? read_answer(client) : transport_error(client, result, timeout_ms);
    (void)curl_multi_remove_handle(client->multi, client->easy);
    (void)curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, client->headers);
    if (result != CURLE_OK && atomic_load(&client->interrupted)) {
        return attempt_interrupted(client);
    }
    return ended;
}

/* Waits for a random time within the bound of the policy. */
static void back_off(struct muster_client *client, uint32_t failures, int64_t deadline_ns)
{
    int wait_ms = (int)muster_random_below(muster_policy_back_off_ms(failures) + 1);
    int left_ms = muster_clock_left_ms(deadline_ns);
    int64_t until_ns = muster_clock_after_ms((uint32_t)(wait_ms < left_ms ? wait_ms : left_ms));
    while (muster_clock_left_ms(until_ns) > 0 && !atomic_load(&client->interrupted)) {
        (void)curl_multi_poll(client->multi, NULL, 0, muster_clock_left_ms(until_ns), NULL);
    }
}

/* A Wait whose keys were not put in its time has its answer. */
static bool has_waited(enum muster_rpc_method method, enum muster_rpc_code code)
{
    return method == MUSTER_RPC_WAIT && code == MUSTER_RPC_DEADLINE_EXCEEDED;
}

static struct attempt attempt_until_deadline(struct muster_client *client,
                                             enum muster_rpc_method method, const char *request,
                                             const struct muster_retry_policy *retry_policy)
{
    /* One attempt at each server counts as one. */
    uint32_t others = client->servers.count - 1;
    for (uint32_t made = 0;; made++) {
        if (atomic_load(&client->interrupted)) {
            return attempt_interrupted(client);
        }
        int left_ms = muster_clock_left_ms(retry_policy->deadline_ns);
        uint32_t timeout_ms = (uint32_t)left_ms < retry_policy->attempt_ms
                                  ? (uint32_t)left_ms
                                  : retry_policy->attempt_ms;
        struct attempt ended =
            attempt_once(client, method, request, timeout_ms > 0 ? timeout_ms : 1);
        bool fails = ended.status == MUSTER_RETRY && !has_waited(method, ended.code);
        if (fails) {
            muster_server_list_next(&client->servers);
        } else {
            muster_server_list_follow(&client->servers, client->owner);
        }
        bool last = retry_policy->attempts != 0 && made >= retry_policy->attempts + others - 1;
        if (!fails || last) {
            return ended;
        }
        if (made >= others) {
            back_off(client, made - others, retry_policy->deadline_ns);
        }
        if (muster_clock_left_ms(retry_policy->deadline_ns) == 0) {
            return ended;
        }
    }
}

muster_status muster_client_call(struct muster_client *client, enum muster_rpc_method method,
                                 json_t *request, const struct muster_retry_policy *retry_policy,
                                 json_t **ret_answer, enum muster_rpc_code *ret_code)
{
    AUTO_FREE char *text = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    struct attempt ended;
    if (text == NULL) {
        ended = attempt_failed(muster_error_set(MUSTER_FATAL, "no memory"), MUSTER_RPC_INTERNAL);
    } else {
        ended = attempt_until_deadline(client, method, text, retry_policy);
    }
    if (ret_code != NULL) {
        *ret_code = ended.code;
    }
    if (ended.status == MUSTER_OK) {
        *ret_answer = ended.answer;
    }
    return ended.status;
}

muster_status muster_client_local_address(const struct muster_client *client, char *ret_address,
                                          size_t size)
{
    return muster_server_list_local_address(&client->servers, ret_address, size);
}
