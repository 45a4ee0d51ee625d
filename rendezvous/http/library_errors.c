/* MHD_queue_response() of this program, in front of the library's. */
#include "rendezvous/http/library_errors.h"

#include "rendezvous/http/http_parts.h"

#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

typedef enum MHD_Result (*queue_function)(struct MHD_Connection *, unsigned, struct MHD_Response *);

static _Thread_local bool is_ours; /* the call that this thread makes */
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;
static queue_function queue_of_library; /* NULL: it cannot be found */

static void look_up(void)
{
    void *pointer = dlsym(RTLD_NEXT, "MHD_queue_response");
    memcpy(&queue_of_library, &pointer,
           sizeof pointer); /* ISO C converts no pointer to a function */
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned http,
                             struct MHD_Response *response)
{
    (void)pthread_once(&looked_up, look_up);
    return queue_of_library != NULL ? queue_of_library(connection, http, response) : MHD_NO;
}

enum MHD_Result muster_http_queue_response(struct MHD_Connection *connection, unsigned http,
                                           struct MHD_Response *response)
{
    is_ours = true;
    enum MHD_Result result = MHD_queue_response(connection, http, response);
    is_ours = false;
    return result;
}

struct library_error {
    enum muster_rpc_code code;
    const char *what;
};

static struct library_error describe(unsigned http)
{
    switch (http) {
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return (struct library_error){MUSTER_RPC_RESOURCE_EXHAUSTED, "the body is too long"};
    case MHD_HTTP_URI_TOO_LONG:
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        return (struct library_error){MUSTER_RPC_RESOURCE_EXHAUSTED,
                                      "the head of the request is longer than 8 KiB"};
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        return (struct library_error){
            MUSTER_RPC_UNIMPLEMENTED,
            "this server speaks HTTP/1.1: a client of HTTP/2, as those of "
            "gRPC are, is to use the Connect protocol over HTTP/1.1"};
    case MHD_HTTP_INTERNAL_SERVER_ERROR:
        return (struct library_error){MUSTER_RPC_INTERNAL, "no memory for the request"};
    default:
        return (struct library_error){MUSTER_RPC_INVALID_ARGUMENT,
                                      "the request is not HTTP/1.1 that this server reads"};
    }
}

static void count(struct MHD_Connection *connection, enum muster_rpc_code code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct muster_http *http =
        info != NULL ? muster_connection_user(info->socket_context) : NULL;
    if (http != NULL) {
        muster_status_count_refusal(http->service, code);
    }
}

/* By the socket, or by its TLS session. What does not fit at once is lost: the connection is closed
 * anyway. */
static void send_text(struct MHD_Connection *connection, const char *text, size_t size_bytes)
{
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (tls != NULL && tls->tls_session != NULL) {
        (void)gnutls_record_send(tls->tls_session, text, size_bytes);
    } else if (fd != NULL) {
        (void)send(fd->connect_fd, text, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Called by libmicrohttpd, and by the function above. What the library refuses is sent here, and
 * the library, told that it was not queued, closes the connection: in 0.9.75 it sends the head of
 * such an answer twice if a Content-Length is no number. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *connection, unsigned int http,
                   struct MHD_Response *response)
{
    if (is_ours) {
        return queue(connection, http, response);
    }
    char body[256];
    char text[512];
    struct library_error error = describe(http);
    count(connection, error.code);
    int body_size = snprintf(body, sizeof body, "{\"code\":\"%s\",\"message\":\"%s\"}",
                             muster_rpc_code_name(error.code), error.what);
    int size = snprintf(text, sizeof text,
                        "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
                        "Content-Length: %d\r\n\r\n%s",
                        http, MHD_get_reason_phrase_for(http), body_size, body);
    send_text(connection, text, (size_t)size);
    return MHD_NO;
}
