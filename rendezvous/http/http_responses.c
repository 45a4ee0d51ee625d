/* Responses: their headers by status, and what refusals become. */
#include "rendezvous/http/http_parts.h"
#include "rendezvous/http/library_errors.h"

#include "worker/base/cleanup.h"

#include <stdio.h>

static void free_parts(void *user)
{
    struct muster_rpc_response *parts = user;
    muster_rpc_response_finish(parts);
    free(parts);
}

/* A response in two parts, of which thousands of connections share the second. */
static struct MHD_Response *create_parts(struct muster_rpc_response rpc)
{
    struct muster_rpc_response *parts = malloc(sizeof *parts);
    if (parts == NULL) {
        muster_rpc_response_finish(&rpc);
        return NULL;
    }
    *parts = rpc;
    const struct MHD_IoVec pieces[] = {{rpc.body, rpc.size_bytes},
                                       {rpc.rest->text, rpc.rest->size_bytes}};
    struct MHD_Response *response = MHD_create_response_from_iovec(pieces, 2, free_parts, parts);
    if (response == NULL) {
        free_parts(parts);
    }
    return response;
}

/* Takes the text of the response; it is JSON, or, without memory for it, a constant that is. */
static struct MHD_Response *create_response(struct muster_rpc_response rpc)
{
    static char no_memory[] = "{\"code\":\"internal\",\"message\":\"no memory\"}";
    if (rpc.body == NULL) {
        muster_rpc_response_finish(&rpc);
        return MHD_create_response_from_buffer(sizeof no_memory - 1, no_memory,
                                               MHD_RESPMEM_PERSISTENT);
    }
    if (rpc.rest != NULL) {
        return create_parts(rpc);
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(rpc.size_bytes, rpc.body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(rpc.body);
    }
    return response;
}

/* closes: the connection cannot be used again. */
enum MHD_Result muster_http_send_response(const struct muster_http_request *request, unsigned http,
                                          struct muster_rpc_response rpc, bool closes)
{
    AUTO_FREE char *owner = TAKE(rpc.owner);
    char retry_after[16];
    muster_http_note_answer(request, rpc.code);
    struct MHD_Response *response = create_response(rpc);
    if (response == NULL) {
        return MHD_NO;
    }
    if (owner != NULL) { /* the client may go there with its next request */
        (void)MHD_add_response_header(response, MUSTER_OWNER_HEADER, owner);
    }
    if (rpc.body == NULL) {
        http = MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  muster_http_content_type(request, http));
    if (request->response_packed) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept-Encoding");
    }
    if (closes) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    if (http == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                      request->horovod_path != NULL ? "GET, PUT, DELETE" : "POST");
    }
    if (request->retry_after_s > 0) {
        (void)snprintf(retry_after, sizeof retry_after, "%u", request->retry_after_s);
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, retry_after);
    }
    if (http == MHD_HTTP_UNAUTHORIZED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    if (http == MHD_HTTP_UNSUPPORTED_MEDIA_TYPE) {
        (void)MHD_add_response_header(response, "Accept-Post",
                                      "application/json, application/proto, "
                                      "application/connect+json, application/connect+proto");
    }
    if (http == MHD_HTTP_NOT_IMPLEMENTED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_ENCODING, "gzip, identity");
    }
    enum MHD_Result result = muster_http_queue_response(request->connection, http, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result muster_http_send_refusal(const struct muster_http_request *request)
{
    struct muster_http_refusal refusal = request->refusal;
    muster_status_count_refusal(request->http->service, refusal.code);
    struct muster_rpc_response response =
        muster_rpc_response_error(refusal.code, "%s", refusal.what);
    if (request->coding.streams && !refusal.at_once) {
        muster_http_encode_end(&response);
        refusal.http = MHD_HTTP_OK;
    }
    return muster_http_send_response(request, refusal.http, response, refusal.at_once);
}
