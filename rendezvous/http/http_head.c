/* The head of a request: path, method, content type, token, the message of a GET. */
#include "elastic/messages/base64.h"
#include "rendezvous/http/http_parts.h"
#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char path_prefix[] = "/muster.v1.Rendezvous/";
enum { TIMEOUT_DIGITS_MAX = 10 };

static struct muster_http_refusal refuse(unsigned http, enum muster_rpc_code code, const char *what)
{
    return (struct muster_http_refusal){.http = http, .code = code, .what = what};
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static const char *argument(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static bool timeout_valid(const char *timeout)
{
    size_t digits = timeout != NULL ? strspn(timeout, "0123456789") : 1;
    return timeout == NULL ||
           (digits > 0 && digits <= TIMEOUT_DIGITS_MAX && timeout[digits] == '\0');
}

/* Path and HTTP method first, then the headers of the Connect protocol, then those of POST or GET.
 */
static struct muster_http_refusal check_head(struct MHD_Connection *connection, const char *url,
                                             const char *http_method,
                                             struct muster_http_request *request)
{
    if (strncmp(url, path_prefix, sizeof path_prefix - 1) != 0 ||
        !muster_rpc_find_method(url + sizeof path_prefix - 1, &request->method)) {
        return refuse(MHD_HTTP_NOT_FOUND, MUSTER_RPC_UNIMPLEMENTED,
                      "no such method: the paths are /muster.v1.Rendezvous/METHOD");
    }
    request->coding.proto = muster_proto_find(muster_rpc_method_name(request->method));
    request->is_get = strcmp(http_method, MHD_HTTP_METHOD_GET) == 0;
    if (!(request->is_get && muster_rpc_is_safe(request->method)) &&
        strcmp(http_method, MHD_HTTP_METHOD_POST) != 0) {
        return refuse(MHD_HTTP_METHOD_NOT_ALLOWED, MUSTER_RPC_UNIMPLEMENTED,
                      "use POST (GetJob, ListJobs, Peers, Get and CountKeys may be a GET)");
    }
    const char *version = header(connection, "Connect-Protocol-Version");
    if (version != NULL && strcmp(version, "1") != 0) {
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT,
                      "Connect-Protocol-Version: only 1");
    }
    if (!timeout_valid(header(connection, "Connect-Timeout-Ms"))) {
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT,
                      "Connect-Timeout-Ms: 1 to 10 digits");
    }
    if (request->is_get) {
        return muster_http_check_get_coding(connection, request);
    }
    struct muster_http_refusal refusal = muster_http_check_post_coding(connection, request);
    bool too_long = muster_http_body_length(connection) > MUSTER_BODY_MAX_BYTES;
    return refusal.http == 0 && too_long ? muster_http_refuse_body() : refusal;
}

struct muster_http_refusal muster_http_check_head(struct MHD_Connection *connection,
                                                  const char *url, const char *http_method,
                                                  struct muster_http_request *request)
{
    struct muster_http_refusal refusal = check_head(connection, url, http_method, request);
    refusal.at_once =
        refusal.http != 0 && muster_http_body_length(connection) > MUSTER_HTTP_DRAIN_MAX_BYTES;
    return refusal;
}

/* The message stands there as it is, or as base64 if the query says so. */
struct muster_http_refusal muster_http_read_query(struct MHD_Connection *connection,
                                                  struct muster_http_request *request)
{
    const char *message = NULL;
    size_t length = 0;
    if (MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "message", 7, &message,
                                      &length) != MHD_YES ||
        message == NULL) {
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT, "message: missing");
    }
    AUTO_FREE char *body = malloc(length + MUSTER_BASE64_BYTES(length) + 1);
    if (body == NULL) {
        return refuse(MHD_HTTP_INTERNAL_SERVER_ERROR, MUSTER_RPC_INTERNAL, "no memory");
    }
    const char *base64 = argument(connection, "base64");
    if (base64 != NULL && strcmp(base64, "1") == 0) {
        if (muster_base64_decode(message, length, body, &length) != MUSTER_OK) {
            return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT, "message: not base64");
        }
    } else {
        memcpy(body, message, length);
    }
    request->body = TAKE(body);
    request->size_bytes = length;
    return refuse(0, MUSTER_RPC_OK, "");
}

const char *muster_http_token(struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *value = header(connection, "Authorization");
    if (value == NULL || strncasecmp(value, scheme, sizeof scheme - 1) != 0) {
        return NULL;
    }
    return value + sizeof scheme - 1;
}

int64_t muster_http_patience_ns(struct MHD_Connection *connection)
{
    const char *value = header(connection, "Connect-Timeout-Ms");
    if (value == NULL) {
        return MUSTER_NEVER;
    }
    unsigned long long timeout_ms = strtoull(value, NULL, 10);
    return muster_clock_after_ms(timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX);
}
