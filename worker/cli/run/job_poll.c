/* Polls the job on the server from a thread of its own. */
#include "worker/cli/run/job_poll.h"

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/cli/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct muster_job_poller {
    struct muster_client *client; /* used by the thread only */
    char job[MUSTER_JOB_NAME_SIZE];
    uint32_t interval_ms;
    int notify_fd;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    bool stop, poll_now, unread;
    struct muster_job_snapshot snapshot;
};

static void snapshot_finish(struct muster_job_snapshot *snapshot)
{
    muster_job_response_finish(&snapshot->job);
    *snapshot = (struct muster_job_snapshot){0};
}

static struct muster_job_snapshot poll_job(struct muster_job_poller *poller)
{
    struct muster_job_snapshot snapshot = {.requested_ns = muster_clock_ns()};
    enum muster_rpc_code code = MUSTER_RPC_OK;
    muster_status status = muster_service_get_job(poller->client, poller->job,
                                                  MUSTER_JOB_POLL_TIMEOUT_MS, &snapshot.job, &code);
    snapshot.known = status == MUSTER_OK;
    snapshot.reached = code != MUSTER_RPC_UNAVAILABLE && code != MUSTER_RPC_CANCELED;
    if (!snapshot.known) {
        (void)snprintf(snapshot.error, sizeof snapshot.error, "%s", muster_last_error());
    }
    return snapshot;
}

/* Publishes a snapshot and waits for the next poll. False: the thread has to end. */
static bool publish(struct muster_job_poller *poller, struct muster_job_snapshot *snapshot)
{
    AUTO_LOCK(&poller->mutex);
    snapshot_finish(&poller->snapshot);
    poller->snapshot = *snapshot;
    poller->unread = true;
    uint64_t one = 1;
    ssize_t written = write(poller->notify_fd, &one, sizeof one);
    (void)written; /* a full eventfd is readable already */
    int64_t until_ns = muster_clock_after_ms(poller->interval_ms);
    while (!poller->stop && !poller->poll_now &&
           muster_condition_wait(&poller->wake, &poller->mutex, until_ns)) {
    }
    poller->poll_now = false;
    return !poller->stop;
}

static void *poller_main(void *argument)
{
    struct muster_job_poller *poller = argument;
    bool keep_polling = true;
    while (keep_polling) {
        struct muster_job_snapshot snapshot = poll_job(poller);
        keep_polling = publish(poller, &snapshot);
    }
    return NULL;
}

static muster_status start_thread(struct muster_job_poller *poller)
{
    muster_condition_init(&poller->wake);
    muster_mutex_init(&poller->mutex);
    if (pthread_create(&poller->thread, NULL, poller_main, poller) != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start the thread that polls the job");
    }
    return MUSTER_OK;
}

muster_status muster_job_poller_create(const char *url, const char *token, const char *job,
                                       uint32_t interval_ms, int notify_fd,
                                       struct muster_job_poller **ret_poller)
{
    struct muster_job_poller *poller = calloc(1, sizeof *poller);
    if (poller == NULL) {
        return muster_error_set(MUSTER_FATAL, "polling the job: out of memory");
    }
    poller->interval_ms = interval_ms;
    poller->notify_fd = notify_fd;
    (void)snprintf(poller->job, sizeof poller->job, "%s", job);
    muster_status status = muster_service_connect(url, token, &poller->client);
    if (status == MUSTER_OK) {
        status = start_thread(poller);
    }
    if (status != MUSTER_OK) {
        muster_client_destroy(poller->client);
        free(poller);
        return status;
    }
    *ret_poller = poller;
    return MUSTER_OK;
}

void muster_job_poller_destroy(struct muster_job_poller *poller)
{
    if (poller == NULL) {
        return;
    }
    muster_mutex_lock(&poller->mutex);
    poller->stop = true;
    pthread_cond_signal(&poller->wake);
    muster_mutex_unlock(&poller->mutex);
    muster_client_interrupt(poller->client);
    pthread_join(poller->thread, NULL);
    snapshot_finish(&poller->snapshot);
    muster_client_destroy(poller->client);
    pthread_cond_destroy(&poller->wake);
    pthread_mutex_destroy(&poller->mutex);
    free(poller);
}

bool muster_job_poller_take(struct muster_job_poller *poller,
                            struct muster_job_snapshot *ret_snapshot)
{
    AUTO_LOCK(&poller->mutex);
    if (!poller->unread) {
        return false;
    }
    *ret_snapshot = poller->snapshot;
    poller->snapshot = (struct muster_job_snapshot){0};
    poller->unread = false;
    return true;
}

void muster_job_poller_poll_now(struct muster_job_poller *poller)
{
    AUTO_LOCK(&poller->mutex);
    poller->poll_now = true;
    pthread_cond_signal(&poller->wake);
}
