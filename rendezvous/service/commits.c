/* The thread that syncs the store, and the responses that wait for it. */
#include "rendezvous/service/commits.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"

#include <utlist.h>

void muster_commits_init(struct muster_commits *commits, struct muster_store *store,
                         struct muster_metrics *metrics)
{
    commits->store = store;
    commits->metrics = metrics;
    muster_mutex_init(&commits->mutex);
    muster_condition_init(&commits->changed);
}

uint64_t muster_commits_ticket(struct muster_commits *commits)
{
    if (!commits->store->ops->syncs) {
        return 0;
    }
    uint64_t ticket = atomic_fetch_add(&commits->written, 1) + 1;
    if (commits->store->shared != NULL) {
        AUTO_LOCK(&commits->mutex);
        commits->written_to = true;
        (void)pthread_cond_signal(&commits->changed);
    }
    return ticket;
}

bool muster_commits_pending(const struct muster_commits *commits, uint64_t ticket)
{
    return ticket > atomic_load(&commits->synced);
}

/* Nobody is told what may be an old state: the last look before a response is sent. */
static void send(struct muster_commits *commits, struct muster_ready_responses *responses)
{
    for (struct muster_held_request *held = responses->first; held != NULL; held = held->next) {
        struct muster_store *store = commits->store;
        if (store->shared != NULL && store->shared->check(store, held->claim) != MUSTER_OK) {
            muster_rpc_response_finish(&held->response);
            held->response =
                muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "%s", muster_last_error());
        }
    }
    muster_ready_responses_send(responses);
}

static void refuse_all(struct muster_held_request *waiting)
{
    muster_log(MUSTER_LOG_ERROR, "%s", muster_last_error());
    for (struct muster_held_request *held = waiting; held != NULL; held = held->next) {
        muster_rpc_response_finish(&held->response);
        held->response =
            muster_rpc_response_error(MUSTER_RPC_UNAVAILABLE, "%s", muster_last_error());
    }
}

static void sync_and_send(struct muster_commits *commits, struct muster_held_request *waiting)
{
    struct muster_store *store = commits->store;
    uint64_t ticket = atomic_load(&commits->written); /* given after the write: this sync has it */
    int64_t began_ns = muster_clock_ns();
    muster_status status = store->ops->sync(store);
    muster_metrics_sync(commits->metrics, muster_clock_ns() - began_ns, status == MUSTER_OK);
    if (status == MUSTER_OK) {
        atomic_store(&commits->synced, ticket);
    } else {
        refuse_all(waiting);
    }
    struct muster_ready_responses responses = {.first = waiting};
    send(commits, &responses);
}

static bool take_waiting_locked(struct muster_commits *commits,
                                struct muster_held_request **ret_waiting)
{
    *ret_waiting = commits->waiting;
    bool work = commits->waiting != NULL || commits->written_to;
    commits->waiting = NULL;
    commits->written_to = false;
    return work;
}

/* Takes all that waits; false: there is nothing, and the thread is to end. */
static bool take_waiting(struct muster_commits *commits, struct muster_held_request **ret_waiting)
{
    AUTO_LOCK(&commits->mutex);
    while (commits->waiting == NULL && !commits->written_to && !commits->stopping) {
        (void)muster_condition_wait(&commits->changed, &commits->mutex, MUSTER_NEVER);
    }
    return take_waiting_locked(commits, ret_waiting);
}

bool muster_commits_run_once(struct muster_commits *commits)
{
    muster_mutex_lock(&commits->mutex);
    struct muster_held_request *waiting = NULL;
    bool work = take_waiting_locked(commits, &waiting);
    muster_mutex_unlock(&commits->mutex);
    if (work) {
        sync_and_send(commits, waiting);
    }
    return work;
}

static void *run(void *user)
{
    struct muster_commits *commits = user;
    struct muster_held_request *waiting;
    while (take_waiting(commits, &waiting)) {
        sync_and_send(commits, waiting);
    }
    return NULL;
}

void muster_commits_send(struct muster_commits *commits, struct muster_ready_responses *responses,
                         uint64_t ticket)
{
    if (responses->first == NULL || !muster_commits_pending(commits, ticket)) {
        send(commits, responses);
        return;
    }
    AUTO_LOCK(&commits->mutex);
    LL_CONCAT(responses->first, commits->waiting);
    commits->waiting = responses->first;
    responses->first = NULL;
    (void)pthread_cond_signal(&commits->changed);
}

muster_status muster_commits_start(struct muster_commits *commits)
{
    int failed = pthread_create(&commits->thread, NULL, run, commits);
    if (failed != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
    }
    commits->runs = true;
    return MUSTER_OK;
}

void muster_commits_finish(struct muster_commits *commits)
{
    if (commits->runs) {
        muster_mutex_lock(&commits->mutex);
        commits->stopping = true;
        (void)pthread_cond_signal(&commits->changed);
        muster_mutex_unlock(&commits->mutex);
        (void)pthread_join(commits->thread, NULL);
        commits->runs = false;
    }
    (void)pthread_cond_destroy(&commits->changed);
    (void)pthread_mutex_destroy(&commits->mutex);
}
