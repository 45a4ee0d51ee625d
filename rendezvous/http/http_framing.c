/*
 * Where a request begins and ends, and for whom it is: what RFC 9112 tells a server to refuse and
 * libmicrohttpd accepts. A proxy that reads such a head in another way would see other requests
 * than we do, so the connection is closed after the error.
 */
#include "rendezvous/http/http_parts.h"

#include <string.h>
#include <strings.h>

struct head_count {
    unsigned lengths, encodings, hosts;
    bool chunked;     /* the last Transfer-Encoding is "chunked" and nothing else */
    const char *host; /* the last Host; borrowed */
    const char *wrong;
};

static bool is_token(const char *name, size_t size_bytes)
{
    static const char allowed[] =
        "!#$%&'*+-.^_`|~0123456789"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return size_bytes > 0 && strspn(name, allowed) == size_bytes;
}

static bool has_control(const char *value, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return true;
        }
    }
    return false;
}

static enum MHD_Result count_header(void *user, enum MHD_ValueKind kind, const char *name,
                                    size_t name_size, const char *value, size_t value_size)
{
    (void)kind;
    struct head_count *count = user;
    if (!is_token(name, name_size)) {
        count->wrong = "a header has no valid name before its colon";
        return MHD_NO;
    }
    if (has_control(value, value_size)) {
        count->wrong = "the value of a header has a control character";
        return MHD_NO;
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        count->lengths++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        count->encodings++;
        count->chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        count->hosts++;
        count->host = value;
    }
    return MHD_YES;
}

/* A name or an address, perhaps with a port. */
static bool host_valid(const char *host)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        "0123456789-._~%:[]";
    return host[0] != '\0' && host[strspn(host, allowed)] == '\0';
}

static const char *find_fault(const struct head_count *count, bool first_version)
{
    if (count->wrong != NULL) {
        return count->wrong;
    }
    if (count->lengths > 1) {
        return "Content-Length: more than one";
    }
    if (count->encodings > 0 && count->lengths > 0) {
        return "Transfer-Encoding: not with a Content-Length";
    }
    if (count->encodings > 0 && (count->encodings > 1 || !count->chunked || first_version)) {
        return "Transfer-Encoding: only \"chunked\", once, in HTTP/1.1";
    }
    if (count->hosts > 1 || (count->hosts == 0 && !first_version)) {
        return "Host: exactly one is needed";
    }
    if (count->hosts == 1 && !host_valid(count->host)) {
        return "Host: not a name or an address with an optional port";
    }
    return NULL;
}

struct muster_http_refusal muster_http_check_framing(struct MHD_Connection *connection,
                                                     const char *version)
{
    struct head_count count = {0};
    (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, count_header, &count);
    const char *fault = find_fault(&count, strcmp(version, MHD_HTTP_VERSION_1_0) == 0);
    return (struct muster_http_refusal){
        .http = fault != NULL ? MHD_HTTP_BAD_REQUEST : 0,
        .code = fault != NULL ? MUSTER_RPC_INVALID_ARGUMENT : MUSTER_RPC_OK,
        .what = fault,
        .at_once = fault != NULL,
    };
}
