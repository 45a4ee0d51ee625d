/* Requests from libmicrohttpd to rpc.h or horovod.h, responses back; the life of the server. */
#include "rendezvous/http/http_parts.h"
#include "rendezvous/http/https.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    OTHER_FILES = 64,       /* descriptors that are not connections */
    STOP_ANSWERS_MS = 1000, /* for the last responses to be sent */
    STOP_CLOSING_MS = 1000, /* for the remaining connections to close */
    SPARE_SHARE = 8,        /* a part of the connections that are on their way to be closed */
};

/* Responses ----------------------------------------------------------------------------------- */

/* Resumes the connection once there is a response and no other thread has the request. */
static void resume_if_done_locked(struct muster_http_request *request)
{
    if (request->stage != MUSTER_HTTP_ANSWERED || request->queued_or_run) {
        return;
    }
    if (request->suspended || request->watched) {
        muster_connections_unwatch(request->http->connections, request->socket);
    }
    request->watched = false;
    if (request->suspended) {
        request->suspended = false;
        MHD_resume_connection(request->connection);
    }
}

static void answer(struct muster_http_request *request)
{
    AUTO_LOCK(&request->mutex);
    request->being_encoded = false;
    request->stage = MUSTER_HTTP_ANSWERED;
    resume_if_done_locked(request);
}

/* In a thread of the queues. */
static void run_encoding(struct muster_queued *queued)
{
    struct muster_http_request *request =
        (struct muster_http_request *)((char *)queued -
                                       offsetof(struct muster_http_request, encoding));
    muster_http_encode(request);
    answer(request);
}

/* The service's respond function: from any thread, once for each call. What takes time is left to
 * the queue of the job: this thread may be one that others wait for. */
static void respond_held(struct muster_held_request *held, struct muster_rpc_response response)
{
    struct muster_http_request *request = (struct muster_http_request *)held;
    muster_mutex_lock(&request->mutex);
    request->response = response;
    request->being_encoded = muster_http_needs_encoding(request);
    bool being_encoded = request->being_encoded;
    muster_mutex_unlock(&request->mutex);
    if (!being_encoded) {
        answer(request);
        return;
    }
    request->encoding.run = run_encoding;
    muster_queues_add_beside(request->http->queues, &request->queued, &request->encoding);
}

static enum MHD_Result send_held(struct muster_http_request *request)
{
    if (request->coding.streams) {
        return muster_http_send_stream(request);
    }
    struct muster_rpc_response response = request->response;
    request->response.body = NULL;
    request->response.rest = NULL;
    request->response.owner = NULL;
    return muster_http_send_response(request, muster_rpc_code_http(response.code), response, false);
}

/* Requests ------------------------------------------------------------------------------------ */

static uint32_t patience_ms(const struct muster_http_request *request)
{
    return request->patience_ns == MUSTER_NEVER
               ? UINT32_MAX
               : (uint32_t)muster_clock_left_ms(request->patience_ns);
}

/* Sends the request to the server that has its job. A request that comes from a server stays here:
 * the two do not agree who has the job, and its sender tries again. So does a stream: its error
 * names the server to ask. True: it stays. */
static bool forward(struct muster_http_request *request, struct muster_rpc_response *response)
{
    AUTO_FREE char *owner = TAKE(response->owner);
    if (owner == NULL || request->http->forwards == NULL || request->was_forwarded ||
        request->coding.streams) {
        return true;
    }
    const struct muster_forward_request forwarded = {
        .owner = owner,
        .authorization = request->authorization,
        .server_token = request->server_token,
        .method = request->method,
        .body = request->body,
        .size_bytes = request->size_bytes,
        .timeout_ms = patience_ms(request),
    };
    muster_rpc_response_finish(response);
    muster_forwards_add(request->http->forwards, &forwarded, &request->held);
    return false;
}

static bool call_service(struct muster_http_request *request,
                         struct muster_rpc_response *ret_response)
{
    if (request->horovod_path != NULL) {
        return muster_http_call_horovod(request, ret_response);
    }
    if (muster_rpc_changes_values(request->method) &&
        muster_connection_is_closed(request->socket)) {
        *ret_response = muster_rpc_response_error(MUSTER_RPC_CANCELED, "the sender has gone");
        return true;
    }
    const struct muster_rpc_request rpc = {
        .method = request->method,
        .token = request->token,
        .rights = request->rights,
        .address = request->trusted ? NULL : muster_connection_address(request->socket),
        .body = request->body != NULL ? request->body : "",
        .size_bytes = request->size_bytes,
        .timeout_ms = patience_ms(request),
        .cursor = request->cursor,
        .forwarded = request->was_forwarded,
    };
    return muster_rpc_handle(request->http->service, &rpc, &request->held, ret_response) &&
           forward(request, ret_response);
}

/* In a thread of the queues: calls the method. A held request's connection is watched. */
static void run_queued(struct muster_queued *queued)
{
    struct muster_http_request *request =
        (struct muster_http_request *)((char *)queued -
                                       offsetof(struct muster_http_request, queued));
    struct muster_rpc_response response;
    bool answered = call_service(request, &response);
    if (!request->coding.streams) { /* which is called again */
        muster_http_drop_body(request);
    }
    if (answered) {
        respond_held(&request->held, response);
    }
    AUTO_LOCK(&request->mutex);
    request->queued_or_run = false;
    if (request->stage != MUSTER_HTTP_ANSWERED && !request->being_encoded) {
        request->watched = true;
        muster_connections_watch(request->http->connections, request->socket, &request->held.id);
    }
    resume_if_done_locked(request);
}

void muster_http_enqueue(struct muster_http_request *request)
{
    request->stage = MUSTER_HTTP_CALLED;
    request->held = (struct muster_held_request){.respond = respond_held};
    request->queued.run = run_queued;
    request->queued_or_run = true;
    muster_queues_add(request->http->queues, request->body != NULL ? request->body : "",
                      request->size_bytes, &request->queued);
}

/* Queues the request, and suspends its connection, unless its response came in the meantime. */
static enum MHD_Result call(struct muster_http_request *request)
{
    request->refusal = muster_http_decode(request);
    if (request->refusal.http != 0) {
        return muster_http_send_refusal(request);
    }
    muster_connections_set_busy(request->http->connections, request->socket, true);
    request->patience_ns = muster_http_patience_ns(request->connection);
    muster_http_enqueue(request);
    muster_mutex_lock(&request->mutex);
    bool answered = request->stage == MUSTER_HTTP_ANSWERED && !request->queued_or_run;
    if (!answered) {
        request->suspended = true;
        MHD_suspend_connection(request->connection);
    }
    muster_mutex_unlock(&request->mutex);
    /* Without the lock: libmicrohttpd has one of its own while it asks for bytes of a stream. */
    return answered ? send_held(request) : MHD_YES;
}

static struct muster_http_request *create_request(struct muster_http *http,
                                                  struct MHD_Connection *connection)
{
    struct muster_http_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        return NULL;
    }
    request->http = http;
    request->connection = connection;
    request->deadline_ns = muster_clock_after_ms(http->transfer_timeout_ms);
    muster_mutex_init(&request->mutex);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    request->socket = info != NULL ? info->socket_context : NULL;
    AUTO_LOCK(&http->mutex);
    http->request_count++;
    return request;
}

/* By the path: a request of Horovod's, a page, or a method of the service. */
static struct muster_http_refusal check_path(struct muster_http_request *request, const char *url,
                                             const char *http_method)
{
    struct MHD_Connection *connection = request->connection;
    if (request->http->horovod != NULL && muster_horovod_path_is(url)) {
        return muster_http_check_horovod(connection, url, http_method, request);
    }
    if (muster_http_check_page(url, http_method, request)) {
        return (struct muster_http_refusal){0};
    }
    return muster_http_check_head(connection, url, http_method, request);
}

static struct muster_http_refusal check_head(struct muster_http_request *request, const char *url,
                                             const char *http_method, const char *version)
{
    struct MHD_Connection *connection = request->connection;
    struct muster_http_refusal refusal = muster_http_check_framing(connection, version);
    if (refusal.http != 0) {
        return refusal;
    }
    muster_http_find_tokens(connection, url, request);
    muster_connections_set_trusted(request->http->connections, request->socket, request->trusted);
    refusal = muster_http_check_rate(request, url);
    if (refusal.http == 0) {
        refusal = check_path(request, url, http_method);
    }
    return refusal.http != 0 ? refusal : muster_http_check_rights(connection, request);
}

/* libmicrohttpd calls this once for the head of a request, for each piece of its body, at its end,
 * and again when a suspended connection is resumed. */
static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url,
                              const char *http_method, const char *version, const char *data,
                              size_t *data_size, void **context)
{
    struct muster_http_request *request = *context;
    if (request == NULL) {
        request = create_request(user, connection);
        *context = request;
        if (request == NULL) {
            return MHD_NO;
        }
        request->refusal = check_head(request, url, http_method, version);
        bool too_long = muster_http_body_length(connection) > MUSTER_HTTP_DRAIN_MAX_BYTES;
        if (too_long && request->refusal.http == 0) { /* a GET with such a body */
            request->refusal = muster_http_refuse_body();
        }
        return too_long || request->refusal.at_once ? muster_http_send_refusal(request) : MHD_YES;
    }
    if (*data_size > 0) {
        bool appended = muster_http_append_body(request, data, *data_size);
        *data_size = 0;
        return appended ? MHD_YES : MHD_NO;
    }
    if (request->stage == MUSTER_HTTP_ANSWERED) {
        return send_held(request);
    }
    if (request->refusal.http == 0 && request->is_get) {
        request->refusal = muster_http_read_query(connection, request);
    }
    if (request->refusal.http != 0) {
        return muster_http_send_refusal(request);
    }
    return request->is_page ? muster_http_send_page(request) : call(request);
}

/* libmicrohttpd calls this when a request has ended, in whatever way. */
static void destroy_request(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_RequestTerminationCode code)
{
    (void)connection;
    (void)code;
    struct muster_http *http = user;
    struct muster_http_request *request = *context;
    if (request == NULL) {
        return;
    }
    *context = NULL;
    muster_connections_restart_timeout(http->connections, request->socket);
    /* The thread that responded may still be inside the lock. */
    muster_mutex_lock(&request->mutex);
    muster_mutex_unlock(&request->mutex);
    (void)pthread_mutex_destroy(&request->mutex);
    muster_rpc_response_finish(&request->response);
    muster_http_drop_body(request);
    muster_connections_set_busy(http->connections, request->socket, false);
    free(request->horovod_path);
    free(request);
    AUTO_LOCK(&http->mutex);
    http->request_count--;
    if (http->request_count == 0) {
        (void)pthread_cond_signal(&http->idle);
    }
}

static struct muster_connection *add_connection(struct muster_http *http,
                                                struct MHD_Connection *connection)
{
    static const struct sockaddr unknown = {.sa_family = AF_UNSPEC};
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    bool known = address != NULL && address->client_addr != NULL;
    return fd != NULL ? muster_connections_add(http->connections, fd->connect_fd,
                                               known ? address->client_addr : &unknown)
                      : NULL;
}

/* Of https: a client that speaks HTTP/2 only is told so before it sends a request. */
static void prepare_session(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info != NULL && info->tls_session != NULL) {
        muster_https_require_http1(info->tls_session);
    }
}

static void notice_connection(void *user, struct MHD_Connection *connection, void **socket_context,
                              enum MHD_ConnectionNotificationCode code)
{
    struct muster_http *http = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = add_connection(http, connection);
        prepare_session(connection);
    } else {
        muster_connections_remove(http->connections, *socket_context);
        *socket_context = NULL;
    }
}

static enum MHD_Result accept_connection(void *user, const struct sockaddr *address,
                                         socklen_t address_size)
{
    struct muster_http *http = user;
    (void)address;
    (void)address_size;
    return muster_connections_admit(http->connections) ? MHD_YES : MHD_NO;
}

static void log_library(void *user, const char *format, va_list arguments)
{
    (void)user;
    char text[256];
    (void)vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    muster_log(MUSTER_LOG_DEBUG, "libmicrohttpd: %s", text);
}

/* Life ---------------------------------------------------------------------------------------- */

static unsigned connection_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return OTHER_FILES;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    unsigned most = MUSTER_HTTP_CONNECTIONS_MAX + MUSTER_HTTP_CONNECTIONS_MAX / SPARE_SHARE;
    if (limit.rlim_cur > most + OTHER_FILES) {
        return most;
    }
    return limit.rlim_cur > 2 * OTHER_FILES ? (unsigned)limit.rlim_cur - OTHER_FILES : OTHER_FILES;
}

/* Ours come first: beyond libmicrohttpd's limit, connections wait unseen until others end. */
static struct muster_admission_limits admission_limits(const struct muster_http_config *config)
{
    unsigned possible = connection_limit();
    unsigned most = possible - possible / (SPARE_SHARE + 1);
    bool lower = config->connections_max != 0 && config->connections_max < most;
    return (struct muster_admission_limits){.connections = lower ? config->connections_max : most,
                                            .connections_per_address =
                                                config->connections_per_address};
}

static struct MHD_Daemon *start_daemon(struct muster_http *http,
                                       const struct muster_http_config *config, int listen_fd)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    static char versions[] = "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, muster_https_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, versions},
        {MHD_OPTION_END, 0, NULL},
    };
    const struct MHD_OptionItem options[] = {
        /* First, so that errors in the following ones are logged. */
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, NULL},
        {MHD_OPTION_LISTEN_SOCKET, listen_fd, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, MUSTER_HTTP_THREADS, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)connection_limit(), NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, MUSTER_HTTP_POOL_BYTES, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)destroy_request, http},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)notice_connection, http},
        {MHD_OPTION_END, 0, NULL},
    };
    flags |= config->https != NULL ? MHD_USE_TLS : 0U;
    return MHD_start_daemon(flags, 0, accept_connection, http, handle, http, MHD_OPTION_ARRAY,
                            options, MHD_OPTION_ARRAY,
                            config->https != NULL ? tls : &tls[sizeof tls / sizeof tls[0] - 1],
                            MHD_OPTION_END);
}

/* The connections come before libmicrohttpd, whose threads call them. */
muster_status muster_http_start(const struct muster_http_config *config,
                                struct muster_service *service, struct muster_http **ret_http)
{
    AUTO_CLOSE int listen_fd = config->listen_fd;
    struct muster_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    http->service = service;
    http->horovod = config->horovod;
    http->access = config->access;
    http->https = config->https;
    http->transfer_timeout_ms = config->transfer_timeout_ms;
    http->rates.per_address = config->requests_per_address;
    muster_mutex_init(&http->rates_mutex);
    muster_mutex_init(&http->mutex);
    muster_condition_init(&http->idle);
    muster_status status = muster_queues_create(&http->queues);
    if (status == MUSTER_OK) {
        status = muster_connections_create(config->transfer_timeout_ms, admission_limits(config),
                                           muster_http_connection_closed, http, &http->connections);
    }
    if (status == MUSTER_OK && config->forward != NULL) {
        status = muster_forwards_create(config->forward, &http->forwards);
    }
    if (status == MUSTER_OK) {
        http->daemon = start_daemon(http, config, listen_fd);
        if (http->daemon == NULL) {
            status = muster_error_set(MUSTER_FATAL, "libmicrohttpd does not start");
        }
    }
    if (status != MUSTER_OK) {
        muster_http_stop(http);
        return status;
    }
    (void)TAKE_FD(listen_fd);
    *ret_http = http;
    return MUSTER_OK;
}

static void wait_for_answers(struct muster_http *http)
{
    int64_t deadline_ns = muster_clock_after_ms(STOP_ANSWERS_MS);
    AUTO_LOCK(&http->mutex);
    while (http->request_count > 0 &&
           muster_condition_wait(&http->idle, &http->mutex, deadline_ns)) {
    }
}

void muster_http_stop(struct muster_http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->daemon != NULL) {
        /* Neither MHD_quiesce_daemon() nor MHD_stop_daemon() with open connections is safe in
         * 0.9.75: the one may abort the process while its threads poll, the other crashes on a
         * request that libmicrohttpd itself has refused. */
        muster_connections_refuse(http->connections);
        muster_service_quiesce(http->service);
        if (http->horovod != NULL) {
            muster_horovod_quiesce(http->horovod);
        }
        muster_forwards_stop(http->forwards);
        muster_queues_stop(http->queues); /* from now on requests run where they are read */
        wait_for_answers(http);
        muster_connections_close(http->connections, STOP_CLOSING_MS);
        MHD_stop_daemon(http->daemon);
    }
    if (http->queues != NULL && http->daemon == NULL) {
        muster_queues_stop(http->queues);
    }
    muster_connections_destroy(http->connections); /* its thread adds to the queues */
    muster_queues_destroy(http->queues);
    muster_forwards_destroy(http->forwards);
    muster_rates_finish(&http->rates);
    (void)pthread_mutex_destroy(&http->rates_mutex);
    (void)pthread_cond_destroy(&http->idle);
    (void)pthread_mutex_destroy(&http->mutex);
    free(http);
}
