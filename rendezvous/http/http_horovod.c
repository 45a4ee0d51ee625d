/* Requests of Horovod's workers: GET, PUT and DELETE of raw bytes, to horovod.h. */
#include "rendezvous/http/http_parts.h"

#include <string.h>

static const struct {
    const char *name;
    enum muster_horovod_method method;
} methods[] = {
    {MHD_HTTP_METHOD_GET, MUSTER_HOROVOD_GET},
    {MHD_HTTP_METHOD_PUT, MUSTER_HOROVOD_PUT},
    {MHD_HTTP_METHOD_DELETE, MUSTER_HOROVOD_DELETE},
};

struct muster_http_refusal muster_http_check_horovod(struct MHD_Connection *connection,
                                                     const char *url, const char *http_method,
                                                     struct muster_http_request *request)
{
    request->horovod_path = strdup(url);
    if (request->horovod_path == NULL) {
        return (struct muster_http_refusal){.http = MHD_HTTP_INTERNAL_SERVER_ERROR,
                                            .code = MUSTER_RPC_INTERNAL,
                                            .what = "no memory"};
    }
    if (muster_http_body_length(connection) > MUSTER_BODY_MAX_BYTES) {
        return muster_http_refuse_body();
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, http_method) == 0) {
            request->horovod_method = methods[i].method;
            return (struct muster_http_refusal){0};
        }
    }
    return (struct muster_http_refusal){.http = MHD_HTTP_METHOD_NOT_ALLOWED,
                                        .code = MUSTER_RPC_UNIMPLEMENTED,
                                        .what = "use GET, PUT or DELETE"};
}

bool muster_http_call_horovod(struct muster_http_request *request,
                              struct muster_rpc_response *ret_response)
{
    const struct muster_horovod_request horovod = {
        .method = request->horovod_method,
        .path = request->horovod_path,
        .body = request->body != NULL ? request->body : "",
        .size_bytes = request->size_bytes,
        .creates = (request->rights & MUSTER_RIGHT_WORK) != 0,
    };
    return muster_horovod_handle(request->http->horovod, &horovod, &request->held, ret_response);
}
