/* Requests of Horovod's workers: which scope, which round; and the life of all this. */
#include "rendezvous/horovod/horovod_parts.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <string.h>

static const char ask_scope[] = "rank_and_size";
static const char launcher_scope[] = "muster";

/* The scopes in which Gloo's contexts meet belong to a round; others, such as worker_addresses, are
 * put once in the life of a worker. */
static bool is_of_round(const char *scope)
{
    return strncmp(scope, "global", 6) == 0 || strncmp(scope, "local_", 6) == 0 ||
           strncmp(scope, "cross_", 6) == 0;
}

/* A worker that puts `rank_<r>` into the global scope has come. */
static void note_rank(struct muster_horovod_call *call, const struct muster_horovod_scopes *scopes)
{
    static const char prefix[] = "rank_";
    uint32_t rank;
    if (scopes == &call->job->running && strcmp(call->path.scope, "global") == 0 &&
        strncmp(call->path.key, prefix, sizeof prefix - 1) == 0 &&
        muster_horovod_parse_rank(call->path.key + sizeof prefix - 1, &rank)) {
        muster_horovod_rounds_seen(&call->job->rounds, rank);
    }
}

static muster_status put(struct muster_horovod_call *call, struct muster_horovod_scopes *scopes)
{
    size_t after = call->horovod->size_bytes + call->request->size_bytes;
    if (after > MUSTER_HOROVOD_MAX_BYTES) {
        return muster_error_set(MUSTER_RETRY,
                                "the values of all jobs of Horovod would take %zu bytes of %d",
                                after, MUSTER_HOROVOD_MAX_BYTES);
    }
    TRY(muster_horovod_scopes_put(scopes, call->path.scope, call->path.key, call->request->body,
                                  call->request->size_bytes));
    note_rank(call, scopes);
    return MUSTER_OK;
}

static void handle_key(struct muster_horovod_call *call, struct muster_horovod_scopes *scopes)
{
    const void *value;
    size_t size_bytes;
    muster_status status = MUSTER_OK;
    switch (call->request->method) {
    case MUSTER_HOROVOD_PUT:
        status = put(call, scopes);
        break;
    case MUSTER_HOROVOD_GET:
        if (muster_horovod_scopes_get(scopes, call->path.scope, call->path.key, &value,
                                      &size_bytes)) {
            call->response = muster_horovod_response(MUSTER_RPC_OK, value, size_bytes);
        } else {
            call->response = muster_horovod_response(MUSTER_RPC_NOT_FOUND, "", 0);
        }
        return;
    case MUSTER_HOROVOD_DELETE:
    default:
        muster_horovod_scopes_delete(scopes, call->path.scope, call->path.key);
        break;
    }
    call->response = status == MUSTER_OK ? muster_horovod_response(MUSTER_RPC_OK, "", 0)
                                         : muster_rpc_response_status(status);
}

static bool handle_gloo(struct muster_horovod_call *call)
{
    struct muster_horovod_scopes *scopes = &call->job->lasting;
    struct muster_horovod_worker *worker = NULL;
    if (is_of_round(call->path.scope)) {
        muster_status status = muster_horovod_job_worker(call->job, call->path.worker, &worker);
        if (status != MUSTER_OK) {
            call->response = muster_rpc_response_status(status);
            return true;
        }
        scopes = muster_horovod_job_scopes(call->job, worker);
    }
    if (scopes == NULL) {
        call->response = muster_rpc_response_error(MUSTER_RPC_FAILED_PRECONDITION,
                                                   "job %s: the round of worker %s is over",
                                                   call->path.job, call->path.worker);
        return true;
    }
    handle_key(call, scopes);
    return true;
}

/* A request for a job that nobody has made: nothing is there, and nothing is made for a GET of a
 * key or a DELETE. */
static struct muster_rpc_response without_job(const struct muster_horovod_call *call)
{
    bool get = call->request->method == MUSTER_HOROVOD_GET;
    return muster_horovod_response(get ? MUSTER_RPC_NOT_FOUND : MUSTER_RPC_OK, "", 0);
}

static bool handle_locked(struct muster_horovod_call *call)
{
    enum muster_horovod_method method = call->request->method;
    bool asks = strcmp(call->path.scope, ask_scope) == 0;
    bool creates = call->request->creates &&
                   (method == MUSTER_HOROVOD_PUT || (asks && method == MUSTER_HOROVOD_GET));
    enum muster_rpc_code code;
    if (asks && method == MUSTER_HOROVOD_PUT) {
        call->response = muster_rpc_response_error(MUSTER_RPC_INVALID_ARGUMENT,
                                                   "scope: nothing can be put into %s", ask_scope);
        return true;
    }
    if (muster_horovod_job_find(call->horovod, &call->path, creates, &call->job, &code) !=
        MUSTER_OK) {
        call->response = muster_rpc_response_error(code, "%s", muster_last_error());
        return true;
    }
    if (call->job == NULL && !call->request->creates) {
        call->response = muster_rpc_response_error(
            MUSTER_RPC_UNAUTHENTICATED,
            "job %s is not known here: a worker's token of this server makes it, sent as "
            "Authorization: Bearer TOKEN, or as the secret in the path",
            call->path.job);
        return true;
    }
    if (call->job == NULL) {
        call->response = without_job(call);
        return true;
    }
    size_t before = muster_horovod_job_size_bytes(call->job);
    bool answered = strcmp(call->path.scope, launcher_scope) == 0 ? muster_horovod_launcher(call)
                    : !asks                                       ? handle_gloo(call)
                    : method == MUSTER_HOROVOD_GET                ? muster_horovod_ask(call)
                                                                  : muster_horovod_exited(call);
    if (call->job != NULL) { /* an ended job has taken its bytes with it */
        call->horovod->size_bytes += muster_horovod_job_size_bytes(call->job) - before;
    }
    return answered;
}

bool muster_horovod_handle(struct muster_horovod *horovod,
                           const struct muster_horovod_request *request,
                           struct muster_held_request *held,
                           struct muster_rpc_response *ret_response)
{
    struct muster_ready_responses ready = {0};
    struct muster_horovod_call call = {
        .horovod = horovod, .request = request, .held = held, .ready = &ready};
    muster_status status = muster_horovod_path_parse(request->path, &call.path);
    if (status != MUSTER_OK) {
        *ret_response = muster_rpc_response_status(status);
        return true;
    }
    muster_mutex_lock(&horovod->mutex);
    bool answered = handle_locked(&call);
    muster_mutex_unlock(&horovod->mutex);
    if (answered) {
        *ret_response = call.response;
    }
    muster_ready_responses_send(&ready);
    return answered;
}

/* Life ---------------------------------------------------------------------------------------- */

/* Answers asks whose time is over, and forgets jobs without a plan that nobody uses any more.
 * Returns when the next one is due. */
static int64_t tick(void *user)
{
    struct muster_horovod *horovod = user;
    struct muster_ready_responses ready = {0};
    int64_t now_ns = muster_clock_ns();
    int64_t idle_ns = (int64_t)horovod->config.idle_ms * MUSTER_NS_PER_MS;
    int64_t wake_ns = now_ns + idle_ns;
    struct muster_horovod_job *job = NULL;
    struct muster_horovod_job *next = NULL;
    muster_mutex_lock(&horovod->mutex);
    HASH_ITER(hh, horovod->jobs, job, next)
    {
        size_t before = muster_horovod_job_size_bytes(job);
        int64_t due_ns = muster_horovod_asks_expire(job, now_ns, &ready);
        horovod->size_bytes += muster_horovod_job_size_bytes(job) - before;
        wake_ns = due_ns < wake_ns ? due_ns : wake_ns;
        if (job->rounds.running.number == 0 && job->asks == NULL &&
            job->used_ns + idle_ns <= now_ns) {
            muster_log(MUSTER_LOG_INFO, "horovod job=%s forgotten", job->name);
            muster_horovod_job_remove(horovod, job);
        }
    }
    muster_mutex_unlock(&horovod->mutex);
    muster_ready_responses_send(&ready);
    return wake_ns;
}

muster_status muster_horovod_create(const struct muster_horovod_config *config,
                                    struct muster_horovod **ret_horovod)
{
    struct muster_horovod *horovod = calloc(1, sizeof *horovod);
    if (horovod == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    horovod->config = config != NULL
                          ? *config
                          : (struct muster_horovod_config){.ask_ms = MUSTER_HOROVOD_ASK_MS,
                                                           .idle_ms = MUSTER_HOROVOD_IDLE_MS};
    muster_mutex_init(&horovod->mutex);
    muster_clock_thread_init(&horovod->clock, tick, horovod);
    muster_status status = muster_clock_thread_start(&horovod->clock);
    if (status != MUSTER_OK) {
        muster_horovod_destroy(horovod);
        return status;
    }
    muster_clock_thread_wake_by(&horovod->clock, muster_clock_after_ms(horovod->config.idle_ms));
    *ret_horovod = horovod;
    return MUSTER_OK;
}

void muster_horovod_destroy(struct muster_horovod *horovod)
{
    if (horovod == NULL) {
        return;
    }
    muster_clock_thread_finish(&horovod->clock);
    while (horovod->jobs != NULL) {
        muster_horovod_job_remove(horovod, horovod->jobs);
    }
    (void)pthread_mutex_destroy(&horovod->mutex);
    free(horovod);
}
