/* The calls that the command makes to a rendezvous server, one attempt each. */
#include "worker/cli/service.h"

#include "worker/base/clock.h"
#include "worker/base/option_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

muster_status muster_service_connect(const char *url, const char *token,
                                     struct muster_client **ret_client)
{
    const struct muster_client_security security = {
        .server_token = muster_option_variable("MUSTER_SERVER_TOKEN"),
        .authority = muster_option_variable("MUSTER_RENDEZVOUS_AUTHORITY"),
        .certificate = muster_option_variable("MUSTER_RENDEZVOUS_CERTIFICATE"),
        .key = muster_option_variable("MUSTER_RENDEZVOUS_KEY"),
    };
    struct muster_client *client = NULL;
    TRY(muster_client_create(url, token, &client));
    muster_status status = muster_client_secure(client, &security);
    if (status != MUSTER_OK) {
        muster_client_destroy(client);
        return status;
    }
    *ret_client = client;
    return MUSTER_OK;
}

/* Takes the request. */
static muster_status call(struct muster_client *client, enum muster_rpc_method method,
                          json_t *request, uint32_t timeout_ms, json_t **ret_answer,
                          enum muster_rpc_code *ret_code)
{
    const struct muster_retry_policy retry_policy = {
        .attempt_ms = timeout_ms,
        .deadline_ns = muster_clock_after_ms(timeout_ms),
        .attempts = 1,
    };
    return muster_client_call(client, method, request, &retry_policy, ret_answer, ret_code);
}

muster_status muster_service_get_job(struct muster_client *client, const char *job,
                                     uint32_t timeout_ms, struct muster_job_response *ret_job,
                                     enum muster_rpc_code *ret_code)
{
    struct muster_job_request request = {0};
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    json_t *answer = NULL;
    TRY(call(client, MUSTER_RPC_GET_JOB, muster_job_request_encode(&request), timeout_ms, &answer,
             ret_code));
    muster_status status = muster_job_response_decode(answer, ret_job);
    json_decref(answer);
    return status == MUSTER_OK ? status : muster_error_prefix(MUSTER_FATAL, "the job's answer");
}

muster_status muster_service_list_jobs(struct muster_client *client, uint32_t timeout_ms,
                                       struct muster_jobs_response *ret_jobs)
{
    json_t *answer = NULL;
    TRY(call(client, MUSTER_RPC_LIST_JOBS, json_object(), timeout_ms, &answer, NULL));
    muster_status status = muster_jobs_response_decode(answer, ret_jobs);
    json_decref(answer);
    return status == MUSTER_OK ? status : muster_error_prefix(MUSTER_FATAL, "the list of jobs");
}

muster_status muster_service_resize(struct muster_client *client, const char *job,
                                    uint32_t target_size, uint32_t timeout_ms)
{
    struct muster_resize_request request = {.target_size = target_size};
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    json_t *answer = NULL;
    TRY(call(client, MUSTER_RPC_RESIZE, muster_resize_request_encode(&request), timeout_ms, &answer,
             NULL));
    json_decref(answer);
    return MUSTER_OK;
}

muster_status muster_service_end_job(struct muster_client *client, const char *job, const char *why,
                                     uint32_t timeout_ms)
{
    struct muster_job_request request = {0};
    (void)snprintf(request.job, sizeof request.job, "%s", job);
    (void)snprintf(request.why, sizeof request.why, "%s", why);
    json_t *answer = NULL;
    TRY(call(client, MUSTER_RPC_END_JOB, muster_job_request_encode(&request), timeout_ms, &answer,
             NULL));
    json_decref(answer);
    return MUSTER_OK;
}

muster_status muster_service_read_token(const char *path,
                                        char ret_token[MUSTER_TOKEN_MAX_BYTES + 1])
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return muster_error_errno(MUSTER_INVALID, "token file %s", path);
    }
    char line[MUSTER_TOKEN_MAX_BYTES + 2] = "";
    const char *got = fgets(line, sizeof line, file);
    (void)fclose(file);
    size_t length = got != NULL ? strcspn(line, "\r\n") : 0;
    if (length == 0 || length > MUSTER_TOKEN_MAX_BYTES) {
        return muster_error_set(MUSTER_INVALID,
                                "token file %s: the first line must have 1 to %d bytes", path,
                                MUSTER_TOKEN_MAX_BYTES);
    }
    memcpy(ret_token, line, length);
    ret_token[length] = '\0';
    return MUSTER_OK;
}

muster_status muster_service_use_server_token(const char *path)
{
    char token[MUSTER_TOKEN_MAX_BYTES + 1];
    TRY(muster_service_read_token(path, token));
    return setenv("MUSTER_SERVER_TOKEN", token, 1) == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "out of memory");
}
