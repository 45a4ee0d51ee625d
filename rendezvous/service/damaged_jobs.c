/* The table of damaged jobs, under the lock of the table of jobs. */
#include "rendezvous/service/damaged_jobs.h"

#include "worker/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct muster_damaged_job {
    char name[MUSTER_JOB_NAME_SIZE];
    char token[MUSTER_TOKEN_MAX_BYTES + 1]; /* as the store has it */
    char what[MUSTER_ERROR_MAX];
    UT_hash_handle hh;
};

muster_status muster_damaged_jobs_add(struct muster_service *service,
                                      const struct muster_store_job *stored, const char *what)
{
    AUTO_LOCK(&service->table_mutex);
    struct muster_damaged_job *damaged = NULL;
    muster_log(MUSTER_LOG_ERROR,
               "job=%.64s is damaged and not served: %s; EndJob removes it from the store",
               stored->name, what);
    char name[MUSTER_JOB_NAME_SIZE];
    (void)snprintf(name, sizeof name, "%s", stored->name);
    HASH_FIND_STR(service->damaged, name, damaged);
    if (damaged != NULL) {
        return MUSTER_OK; /* two rows of jobs cannot have one name, but after a cut they can */
    }
    damaged = calloc(1, sizeof *damaged);
    if (damaged == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    (void)snprintf(damaged->name, sizeof damaged->name, "%s", name);
    (void)snprintf(damaged->token, sizeof damaged->token, "%s", stored->token);
    (void)snprintf(damaged->what, sizeof damaged->what, "%s", what);
    HASH_ADD_STR(service->damaged, name, damaged);
    if (damaged->hh.tbl == NULL) {
        free(damaged);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    return MUSTER_OK;
}

/* False, and the call is answered: the token of the call is not the job's. */
static bool may_end(struct muster_rpc_call *call, const struct muster_damaged_job *damaged)
{
    if (muster_token_matches(damaged->token, call->request->token)) {
        return true;
    }
    call->response = muster_rpc_response_error(MUSTER_RPC_UNAUTHENTICATED,
                                               "job %s: the token of the request is not the job's",
                                               damaged->name);
    return false;
}

bool muster_damaged_jobs_refuse(struct muster_rpc_call *call, const char *name)
{
    AUTO_LOCK(&call->service->table_mutex);
    struct muster_damaged_job *damaged = NULL;
    HASH_FIND_STR(call->service->damaged, name, damaged);
    if (damaged != NULL) {
        call->response = muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE,
                                                   "job %s: %s. End the job, and it can begin anew",
                                                   name, damaged->what);
    }
    return damaged != NULL;
}

bool muster_damaged_jobs_end(struct muster_rpc_call *call, const char *name)
{
    struct muster_service *service = call->service;
    AUTO_LOCK(&service->table_mutex);
    struct muster_damaged_job *damaged = NULL;
    HASH_FIND_STR(service->damaged, name, damaged);
    if (damaged == NULL) {
        return false;
    }
    if (may_end(call, damaged) &&
        !muster_rpc_call_failed(call, service->store->ops->remove(service->store, name))) {
        call->written = muster_commits_ticket(&service->commits);
        call->claim = 0; /* which goes with the job; the response is about none */
        call->response = muster_rpc_response_json(json_object());
        muster_log(MUSTER_LOG_WARN, "job=%s was damaged and is removed: ended on request", name);
        HASH_DEL(service->damaged, damaged);
        free(damaged);
    }
    return true;
}

size_t muster_damaged_jobs_count(struct muster_service *service)
{
    AUTO_LOCK(&service->table_mutex);
    return HASH_COUNT(service->damaged);
}

void muster_damaged_jobs_forget(struct muster_service *service)
{
    AUTO_LOCK(&service->table_mutex);
    muster_damaged_jobs_finish(service);
}

void muster_damaged_jobs_finish(struct muster_service *service)
{
    struct muster_damaged_job *damaged = NULL;
    struct muster_damaged_job *next = NULL;
    HASH_ITER(hh, service->damaged, damaged, next)
    {
        HASH_DEL(service->damaged, damaged);
        free(damaged);
    }
}
