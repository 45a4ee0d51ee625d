/* How the messages of a request and of its responses are written: JSON or binary proto, packed by
 * gzip or not, in envelopes if they are a stream. The routes see JSON only. */
#include "rendezvous/coding/envelope.h"
#include "rendezvous/coding/gzip.h"
#include "rendezvous/http/http_parts.h"
#include "worker/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PACK_MIN_BYTES = 1024 }; /* of a response: shorter ones gain nothing */

/* The head ------------------------------------------------------------------------------------ */

static struct muster_http_refusal refuse(unsigned http, enum muster_rpc_code code, const char *what)
{
    return (struct muster_http_refusal){.http = http, .code = code, .what = what};
}

static const char *value_of(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                            const char *name)
{
    return MHD_lookup_connection_value(connection, kind, name);
}

/* The content type is this one, perhaps with parameters. */
static bool type_is(const char *content_type, const char *wanted)
{
    size_t length = strlen(wanted);
    if (content_type == NULL || strncasecmp(content_type, wanted, length) != 0) {
        return false;
    }
    content_type += length + strspn(content_type + length, " \t");
    return *content_type == '\0' || *content_type == ';';
}

/* False: an encoding that is not known. */
static bool parse_packed(const char *encoding, bool *ret_packed)
{
    bool plain = encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0;
    *ret_packed = !plain;
    return plain || strcasecmp(encoding, "gzip") == 0;
}

/* Whether a list such as "br, gzip;q=0.5" has gzip, with a weight that is not 0. */
static bool accepts_gzip(const char *list)
{
    while (list != NULL && *list != '\0') {
        list += strspn(list, " \t,");
        size_t name = strcspn(list, " \t,;");
        size_t item = strcspn(list, ",");
        const char *weight = memmem(list, item, "q=", 2);
        bool refused = weight != NULL && weight[2] == '0' &&
                       strspn(weight + 2, "0.") == strcspn(weight + 2, " \t,;");
        if (name == 4 && strncasecmp(list, "gzip", name) == 0) {
            return !refused;
        }
        list += item;
    }
    return false;
}

struct muster_http_refusal muster_http_check_post_coding(struct MHD_Connection *connection,
                                                         struct muster_http_request *request)
{
    struct muster_http_coding *coding = &request->coding;
    bool streams = coding->proto->streams;
    const char *type = value_of(connection, MHD_HEADER_KIND, "Content-Type");
    coding->binary = type_is(type, streams ? "application/connect+proto" : "application/proto");
    if (!coding->binary &&
        !type_is(type, streams ? "application/connect+json" : "application/json")) {
        return refuse(MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, MUSTER_RPC_INVALID_ARGUMENT,
                      streams ? "Content-Type: send application/connect+json or "
                                "application/connect+proto, this method streams"
                              : "Content-Type: send application/json or application/proto");
    }
    coding->streams = streams; /* from here on an error is the end of the stream */
    if (!parse_packed(value_of(connection, MHD_HEADER_KIND, "Content-Encoding"), &coding->packed) ||
        (streams && coding->packed)) {
        return refuse(MHD_HTTP_NOT_IMPLEMENTED, MUSTER_RPC_UNIMPLEMENTED,
                      streams ? "Content-Encoding: only identity for a stream, whose messages "
                                "have Connect-Content-Encoding"
                              : "Content-Encoding: only identity and gzip");
    }
    if (streams && !parse_packed(value_of(connection, MHD_HEADER_KIND, "Connect-Content-Encoding"),
                                 &coding->packed)) {
        return refuse(MHD_HTTP_NOT_IMPLEMENTED, MUSTER_RPC_UNIMPLEMENTED,
                      "Connect-Content-Encoding: only identity and gzip");
    }
    coding->may_pack = accepts_gzip(value_of(
        connection, MHD_HEADER_KIND, streams ? "Connect-Accept-Encoding" : "Accept-Encoding"));
    return refuse(0, MUSTER_RPC_OK, "");
}

struct muster_http_refusal muster_http_check_get_coding(struct MHD_Connection *connection,
                                                        struct muster_http_request *request)
{
    struct muster_http_coding *coding = &request->coding;
    const char *encoding = value_of(connection, MHD_GET_ARGUMENT_KIND, "encoding");
    coding->binary = encoding != NULL && strcmp(encoding, "proto") == 0;
    if (!coding->binary && (encoding == NULL || strcmp(encoding, "json") != 0)) {
        return refuse(MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, MUSTER_RPC_INVALID_ARGUMENT,
                      "the query of a GET needs encoding=json or encoding=proto, and message");
    }
    if (!parse_packed(value_of(connection, MHD_GET_ARGUMENT_KIND, "compression"),
                      &coding->packed)) {
        return refuse(MHD_HTTP_NOT_IMPLEMENTED, MUSTER_RPC_UNIMPLEMENTED,
                      "compression: only identity and gzip");
    }
    const char *protocol = value_of(connection, MHD_GET_ARGUMENT_KIND, "connect");
    if (protocol != NULL && strcmp(protocol, "v1") != 0) {
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT, "connect: only v1");
    }
    coding->may_pack = accepts_gzip(value_of(connection, MHD_HEADER_KIND, "Accept-Encoding"));
    return refuse(0, MUSTER_RPC_OK, "");
}

/* The request --------------------------------------------------------------------------------- */

static struct muster_http_refusal refuse_status(muster_status status)
{
    switch (status) {
    case MUSTER_OK:
        return refuse(0, MUSTER_RPC_OK, "");
    case MUSTER_INVALID:
        return refuse(MHD_HTTP_BAD_REQUEST, MUSTER_RPC_INVALID_ARGUMENT, muster_last_error());
    case MUSTER_RETRY:
        return refuse(MHD_HTTP_CONTENT_TOO_LARGE, MUSTER_RPC_RESOURCE_EXHAUSTED,
                      muster_last_error());
    default:
        return refuse(MHD_HTTP_INTERNAL_SERVER_ERROR, MUSTER_RPC_INTERNAL, muster_last_error());
    }
}

/* Takes the bytes as the body, instead of those that it had. */
static struct muster_http_refusal replace_body(struct muster_http_request *request, char *bytes,
                                               size_t size_bytes)
{
    muster_http_drop_body(request);
    if (!muster_connections_take_body(request->http->connections, request->socket, size_bytes)) {
        free(bytes);
        return muster_http_refuse_crowd();
    }
    request->body = bytes;
    request->size_bytes = size_bytes;
    request->capacity = size_bytes;
    return refuse(0, MUSTER_RPC_OK, "");
}

/* A stream's request is one envelope, which says whether its message is packed. */
static muster_status open_envelope(struct muster_http_request *request)
{
    const char *message = NULL;
    bool packed = false;
    TRY(muster_envelope_open(request->body != NULL ? request->body : "", request->size_bytes,
                             &message, &request->size_bytes, &packed));
    memmove(request->body, message, request->size_bytes);
    if (packed && !request->coding.packed) {
        return muster_error_set(MUSTER_INVALID,
                                "envelope: packed, and there is no Connect-Content-Encoding");
    }
    request->coding.packed = packed;
    return MUSTER_OK;
}

static struct muster_http_refusal unpack_body(struct muster_http_request *request)
{
    char *bytes = NULL;
    size_t size_bytes = 0;
    muster_status status = muster_gzip_unpack(request->body, request->size_bytes,
                                              MUSTER_BODY_MAX_BYTES, &bytes, &size_bytes);
    return status == MUSTER_OK ? replace_body(request, bytes, size_bytes) : refuse_status(status);
}

static muster_status proto_text(const struct muster_http_request *request, char **ret_text)
{
    json_t *json = NULL;
    TRY(muster_proto_decode(request->coding.proto->request,
                            request->body != NULL ? request->body : "", request->size_bytes,
                            &json));
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a message");
    }
    *ret_text = text;
    return MUSTER_OK;
}

static struct muster_http_refusal decode_proto(struct muster_http_request *request)
{
    char *text = NULL;
    muster_status status = proto_text(request, &text);
    return status == MUSTER_OK ? replace_body(request, text, strlen(text)) : refuse_status(status);
}

struct muster_http_refusal muster_http_decode(struct muster_http_request *request)
{
    const struct muster_http_coding *coding = &request->coding;
    struct muster_http_refusal refusal = refuse(0, MUSTER_RPC_OK, "");
    if (coding->proto != NULL && coding->streams) {
        refusal = refuse_status(open_envelope(request));
    }
    if (refusal.http == 0 && coding->proto != NULL && coding->packed && request->size_bytes > 0) {
        refusal = unpack_body(request);
    }
    return refusal.http == 0 && coding->proto != NULL && coding->binary ? decode_proto(request)
                                                                        : refusal;
}

/* Responses ----------------------------------------------------------------------------------- */

static size_t size_of(const struct muster_rpc_response *response)
{
    return response->size_bytes + (response->rest != NULL ? response->rest->size_bytes : 0);
}

bool muster_http_needs_encoding(const struct muster_http_request *request)
{
    const struct muster_http_coding *coding = &request->coding;
    const struct muster_rpc_response *response = &request->response;
    return coding->proto != NULL && response->body != NULL &&
           (coding->streams || (coding->binary && response->code == MUSTER_RPC_OK) ||
            (coding->may_pack && size_of(response) >= PACK_MIN_BYTES));
}

/* Takes the bytes as the response's whole body. */
static void replace_response(struct muster_rpc_response *response, char *bytes, size_t size_bytes)
{
    free(response->body);
    muster_shared_text_release(response->rest);
    response->rest = NULL;
    response->body = bytes;
    response->size_bytes = size_bytes;
}

static muster_status join_parts(struct muster_rpc_response *response)
{
    if (response->rest == NULL) {
        return MUSTER_OK;
    }
    size_t size_bytes = size_of(response);
    char *whole = malloc(size_bytes);
    if (whole == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a response");
    }
    memcpy(whole, response->body, response->size_bytes);
    memcpy(whole + response->size_bytes, response->rest->text, response->rest->size_bytes);
    replace_response(response, whole, size_bytes);
    return MUSTER_OK;
}

static muster_status encode_proto(const struct muster_http_coding *coding,
                                  struct muster_rpc_response *response)
{
    json_t *json = NULL;
    char *bytes = NULL;
    size_t size_bytes = 0;
    TRY(muster_json_parse(response->body, response->size_bytes, &json));
    muster_status status = muster_proto_encode(coding->proto->response, json, &bytes, &size_bytes);
    json_decref(json);
    TRY(status);
    replace_response(response, bytes, size_bytes);
    return MUSTER_OK;
}

static muster_status pack(struct muster_rpc_response *response)
{
    char *bytes = NULL;
    size_t size_bytes = 0;
    TRY(muster_gzip_pack(response->body, response->size_bytes, &bytes, &size_bytes));
    replace_response(response, bytes, size_bytes);
    return MUSTER_OK;
}

/* Binary and packed, as far as the client reads it; errors stay JSON. */
static muster_status encode_message(const struct muster_http_coding *coding,
                                    struct muster_rpc_response *response, bool *ret_packed)
{
    *ret_packed = false;
    TRY(join_parts(response));
    if (coding->binary && response->code == MUSTER_RPC_OK) {
        TRY(encode_proto(coding, response));
    }
    if (coding->may_pack && response->size_bytes >= PACK_MIN_BYTES) {
        TRY(pack(response));
        *ret_packed = true;
    }
    return MUSTER_OK;
}

static void fail_response(struct muster_rpc_response *response)
{
    muster_rpc_response_finish(response);
    *response = muster_rpc_response_error(MUSTER_RPC_INTERNAL, "%s", muster_last_error());
}

/* The error becomes the message that ends a stream; without one it is {}. */
static void close_stream(struct muster_rpc_response *response)
{
    AUTO_FREE char *text = NULL;
    size_t size_bytes = 0;
    bool failed = response->code != MUSTER_RPC_OK;
    int length = asprintf(&text, failed ? "{\"error\":%.*s}" : "{}", (int)response->size_bytes,
                          response->body != NULL ? response->body : "");
    char *end = length >= 0
                    ? muster_envelope_close(MUSTER_ENVELOPE_END, text, (size_t)length, &size_bytes)
                    : NULL;
    replace_response(response, end, end != NULL ? size_bytes : 0);
    response->next = 0;
}

void muster_http_encode_end(struct muster_rpc_response *response)
{
    if (response->body != NULL) {
        close_stream(response);
    }
}

/* A message of a stream, in its envelope, and the end if it is the last. A response without text is
 * no message. */
static void encode_streamed(const struct muster_http_coding *coding,
                            struct muster_rpc_response *response)
{
    bool packed = false;
    bool empty = response->size_bytes == 0;
    if (response->code == MUSTER_RPC_OK && !empty &&
        encode_message(coding, response, &packed) != MUSTER_OK) {
        fail_response(response);
    }
    if (response->code != MUSTER_RPC_OK || (empty && response->next == 0)) {
        close_stream(response);
        return;
    }
    if (empty) {
        return;
    }
    size_t size_bytes = 0;
    char *closed = muster_envelope_close(packed ? MUSTER_ENVELOPE_PACKED : 0, response->body,
                                         response->size_bytes, &size_bytes);
    uint64_t next = closed != NULL ? response->next : 0;
    replace_response(response, closed, closed != NULL ? size_bytes : 0);
    if (closed != NULL && next == 0) {
        struct muster_rpc_response end = {.code = MUSTER_RPC_OK, .body = strdup("")};
        close_stream(&end);
        char *both = end.body != NULL ? realloc(response->body, size_bytes + end.size_bytes) : NULL;
        if (both != NULL) {
            memcpy(both + size_bytes, end.body, end.size_bytes);
            response->body = both;
            response->size_bytes = size_bytes + end.size_bytes;
        }
        muster_rpc_response_finish(&end);
    }
}

void muster_http_encode(struct muster_http_request *request)
{
    struct muster_rpc_response *response = &request->response;
    if (request->coding.streams) {
        encode_streamed(&request->coding, response);
    } else if (encode_message(&request->coding, response, &request->response_packed) != MUSTER_OK) {
        request->response_packed = false;
        fail_response(response);
    }
}

const char *muster_http_content_type(const struct muster_http_request *request, unsigned http)
{
    const struct muster_http_coding *coding = &request->coding;
    bool raw = request->horovod_path != NULL && (http == MHD_HTTP_OK || http == MHD_HTTP_NOT_FOUND);
    if (raw) { /* the values of Horovod's workers */
        return "application/octet-stream";
    }
    if (http != MHD_HTTP_OK || coding->proto == NULL) {
        return "application/json";
    }
    if (coding->streams) {
        return coding->binary ? "application/connect+proto" : "application/connect+json";
    }
    return coding->binary ? "application/proto" : "application/json";
}
