/* The paths that are no method: they answer a GET at once, with text. */
#include "rendezvous/http/http_parts.h"
#include "rendezvous/http/https.h"
#include "rendezvous/http/library_errors.h"

#include <stdlib.h>
#include <string.h>

/* The page loads its own two files and asks this server; nothing else, and nobody may frame it. */
static const char *const page_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

bool muster_http_check_page(const char *url, const char *http_method,
                            struct muster_http_request *request)
{
    bool is_get = strcmp(http_method, MHD_HTTP_METHOD_GET) == 0 ||
                  strcmp(http_method, MHD_HTTP_METHOD_HEAD) == 0;
    request->is_page = is_get && muster_status_find(url, &request->page);
    return request->is_page;
}

enum MHD_Result muster_http_send_page(struct muster_http_request *request)
{
    struct muster_status_sockets sockets = {0};
    muster_connections_count(request->http->connections, &sockets.open, &sockets.accepted);
    if (request->http->https != NULL) {
        sockets.http2_only = muster_https_count_http2_only(request->http->https);
    }
    struct muster_status_response page =
        muster_status_get(request->http->service, request->page, &sockets);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        page.size_bytes, page.text,
        page.owned != NULL ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        free(page.owned);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page.content_type);
    for (size_t i = 0; i < sizeof page_headers / sizeof page_headers[0]; i++) {
        (void)MHD_add_response_header(response, page_headers[i][0], page_headers[i][1]);
    }
    enum MHD_Result result = muster_http_queue_response(request->connection, page.http, response);
    MHD_destroy_response(response);
    return result;
}
