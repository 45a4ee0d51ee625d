/* The head of a request: path, method, content type, token, the message of a GET. */
#include "elastic/messages/base64.h"
#include "rendezvous/http/http_parts.h"
#include "worker/base/cleanup.h"

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

/* "application/json", perhaps with parameters. */
static bool is_json(const char *content_type)
{
    static const char wanted[] = "application/json";
    size_t length = sizeof wanted - 1;
    if (content_type == NULL || strncasecmp(content_type, wanted, length) != 0) {
        return false;
    }
    content_type += length + strspn(content_type + length, " \t");
    return *content_type == '\0' || *content_type == ';';
}

static bool is_plain(const char *encoding)
{
    return encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0;
}

uint64_t muster_http_body_length(struct MHD_Connection *connection)
{
    const char *length = header(connection, "Content-Length");
    return length != NULL ? strtoull(length, NULL, 10) : 0;
}

struct muster_http_refusal muster_http_refuse_body(void)
{
    _Static_assert(MUSTER_BODY_MAX_BYTES == 262144, "the text has the number");
    return refuse(MHD_HTTP_CONTENT_TOO_LARGE, MUSTER_RPC_RESOURCE_EXHAUSTED,
                  "the body is longer than 262144 bytes");
}

struct muster_http_refusal muster_http_refuse_crowd(void)
{
    return refuse(MHD_HTTP_TOO_MANY_REQUESTS, MUSTER_RPC_RESOURCE_EXHAUSTED,
                  "too many bodies of requests are on their way: try again");
}

struct muster_http_refusal muster_http_refuse_get_body(void)
{
    return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT,
                  "a GET has no body: its message is in the query");
}

static struct muster_http_refusal check_post(struct MHD_Connection *connection)
{
    if (!is_json(header(connection, "Content-Type"))) {
        return refuse(MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, MUSTER_RPC_INVALID_ARGUMENT,
                      "Content-Type: send application/json");
    }
    if (!is_plain(header(connection, "Content-Encoding"))) {
        return refuse(MHD_HTTP_NOT_IMPLEMENTED, MUSTER_RPC_UNIMPLEMENTED,
                      "Content-Encoding: only identity");
    }
    if (muster_http_body_length(connection) > MUSTER_BODY_MAX_BYTES) {
        return muster_http_refuse_body();
    }
    return refuse(0, MUSTER_RPC_OK, "");
}

static struct muster_http_refusal check_get(struct MHD_Connection *connection)
{
    const char *encoding = argument(connection, "encoding");
    if (encoding == NULL || strcmp(encoding, "json") != 0) {
        return refuse(MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, MUSTER_RPC_INVALID_ARGUMENT,
                      "the query of a GET needs encoding=json and message=JSON");
    }
    if (!is_plain(argument(connection, "compression"))) {
        return refuse(MHD_HTTP_NOT_IMPLEMENTED, MUSTER_RPC_UNIMPLEMENTED,
                      "compression: only identity");
    }
    const char *protocol = argument(connection, "connect");
    if (protocol != NULL && strcmp(protocol, "v1") != 0) {
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT, "connect: only v1");
    }
    return refuse(0, MUSTER_RPC_OK, "");
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
    request->is_get = strcmp(http_method, MHD_HTTP_METHOD_GET) == 0;
    if (!(request->is_get && muster_rpc_is_safe(request->method)) &&
        strcmp(http_method, MHD_HTTP_METHOD_POST) != 0) {
        return refuse(MHD_HTTP_METHOD_NOT_ALLOWED, MUSTER_RPC_UNIMPLEMENTED,
                      "use POST (GetJob, ListJobs, Get and CountKeys may be a GET)");
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
    return request->is_get ? check_get(connection) : check_post(connection);
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

/* The message is plain JSON, or base64 if the query says so. */
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

uint32_t muster_http_timeout_ms(struct MHD_Connection *connection)
{
    const char *value = header(connection, "Connect-Timeout-Ms");
    unsigned long long timeout_ms = value != NULL ? strtoull(value, NULL, 10) : UINT32_MAX;
    return timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX;
}
