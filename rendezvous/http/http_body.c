/* The body of a request: kept while there is room for it, dropped as soon as nobody needs it; and
 * the refusals of bodies. */
#include "rendezvous/http/http_parts.h"
#include "worker/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { BODY_FIRST_BYTES = 1024 };

static struct muster_http_refusal refuse(unsigned http, enum muster_rpc_code code, const char *what)
{
    return (struct muster_http_refusal){.http = http, .code = code, .what = what};
}

uint64_t muster_http_body_length(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
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

void muster_http_drop_body(struct muster_http_request *request)
{
    free(request->body);
    request->body = NULL;
    muster_connections_give_body(request->http->connections, request->socket, request->capacity);
    request->capacity = 0;
}

/* To twice what is needed, but not beyond what the head says. False: no memory, or too many bodies
 * are kept. */
static bool grow_body(struct muster_http_request *request, size_t needed)
{
    uint64_t length = muster_http_body_length(request->connection);
    size_t capacity = 2 * needed > BODY_FIRST_BYTES ? 2 * needed : BODY_FIRST_BYTES;
    if (length >= needed && length < capacity) {
        capacity = (size_t)length;
    }
    size_t added = capacity - request->capacity;
    if (!muster_connections_take_body(request->http->connections, request->socket, added)) {
        return false;
    }
    char *grown = realloc(request->body, capacity);
    if (grown == NULL) {
        muster_connections_give_body(request->http->connections, request->socket, added);
        return false;
    }
    request->body = grown;
    request->capacity = capacity;
    return true;
}

bool muster_http_append_body(struct muster_http_request *request, const char *data,
                             size_t size_bytes)
{
    size_t needed = request->size_bytes + size_bytes;
    if (muster_clock_ns() > request->deadline_ns || needed > MUSTER_HTTP_DRAIN_MAX_BYTES) {
        return false;
    }
    if (request->refusal.http == 0 && request->is_get) {
        request->refusal = muster_http_refuse_get_body();
    }
    if (request->refusal.http == 0 && needed > MUSTER_BODY_MAX_BYTES) {
        request->refusal = muster_http_refuse_body();
    }
    if (request->refusal.http != 0) {
        request->size_bytes = needed;
        return true;
    }
    if (needed > request->capacity && !grow_body(request, needed)) {
        muster_http_drop_body(request);
        request->refusal = muster_http_refuse_crowd();
        request->size_bytes = needed;
        return true;
    }
    memcpy(request->body + request->size_bytes, data, size_bytes);
    request->size_bytes = needed;
    return true;
}
