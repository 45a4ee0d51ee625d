/* Who sends a request, by the tokens in its head, and whether the sender may. */
#include "rendezvous/http/http_parts.h"

#include <string.h>

/* The secret of a job of Horovod's: the end of the path's second part, which may end with ":PORT".
 */
static bool path_secret(const char *path, char ret_secret[MUSTER_TOKEN_MAX_BYTES + 1])
{
    const char *job = path + 1 + strcspn(path + 1, "/");
    job += *job == '/';
    size_t length = strcspn(job, "/:");
    const char *dot = memrchr(job, '.', length);
    size_t size_bytes = dot != NULL ? (size_t)(job + length - dot - 1) : 0;
    if (size_bytes == 0 || size_bytes > MUSTER_TOKEN_MAX_BYTES) {
        return false;
    }
    memcpy(ret_secret, dot + 1, size_bytes);
    ret_secret[size_bytes] = '\0';
    return true;
}

/* A token of the server has a header of its own, or stands in Authorization, where stock clients
 * put one; it is never taken for a job's token, which the store keeps. Without tokens everybody may
 * work and list. */
void muster_http_find_tokens(struct MHD_Connection *connection, const char *url,
                             struct muster_http_request *request)
{
    char secret[MUSTER_TOKEN_MAX_BYTES + 1];
    struct muster_access *access = request->http->access;
    request->token = muster_http_token(connection);
    if (access == NULL || !muster_access_guards(access)) {
        request->rights = MUSTER_RIGHT_WORK | MUSTER_RIGHT_LIST;
        return;
    }
    const char *own =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MUSTER_SERVER_TOKEN_HEADER);
    unsigned of_bearer = request->token != NULL ? muster_access_rights(access, request->token) : 0;
    request->rights = own != NULL ? muster_access_rights(access, own) : of_bearer;
    if (of_bearer != 0) {
        request->token = NULL;
    }
    if (muster_horovod_path_is(url) && path_secret(url, secret)) {
        request->rights |= muster_access_rights(access, secret);
    }
    request->trusted = request->rights != 0;
}

static struct muster_http_refusal refuse(enum muster_rpc_code code, const char *what)
{
    return (struct muster_http_refusal){
        .http = muster_rpc_code_http(code), .code = code, .what = what};
}

static struct muster_http_refusal refuse_stranger(struct MHD_Connection *connection)
{
    const char *own =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MUSTER_SERVER_TOKEN_HEADER);
    return refuse(MUSTER_RPC_UNAUTHENTICATED,
                  own != NULL ? "the server token of the request is none of this server's"
                              : "this server needs one of its tokens: MUSTER_SERVER_TOKEN of a "
                                "worker, or the header " MUSTER_SERVER_TOKEN_HEADER);
}

/* Health is for everybody, and so are the files of the page, which are the same everywhere: what
 * the page shows comes from ListJobs and GetJob. A job of Horovod's has a secret of its own. */
struct muster_http_refusal muster_http_check_rights(struct MHD_Connection *connection,
                                                    const struct muster_http_request *request)
{
    bool metrics = request->is_page && request->page == MUSTER_STATUS_METRICS;
    if (request->horovod_path != NULL || (request->is_page && !metrics)) {
        return (struct muster_http_refusal){0};
    }
    bool allowed = metrics ? (request->rights & MUSTER_RIGHT_LIST) != 0
                           : muster_rpc_allows(request->method, request->rights);
    if (!allowed && request->rights == 0) {
        return refuse_stranger(connection);
    }
    if (!allowed) {
        return refuse(MUSTER_RPC_PERMISSION_DENIED,
                      metrics || request->method == MUSTER_RPC_LIST_JOBS
                          ? "this needs a token of the role viewer or admin"
                          : "this needs a token of the role worker or admin");
    }
    return (struct muster_http_refusal){0};
}
