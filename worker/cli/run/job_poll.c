#include "worker/cli/run/job_poll.h"

#include "worker/base/clock.h"
#include "worker/base/thread.h"
#include "worker/cli/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct muster_lookout {
    struct muster_client *client; /* the thread's */
    char job[MUSTER_JOB_NAME_SIZE];
    uint32_t interval_ms;
    int notify_fd;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;
    bool stop, hurry, fresh;
    struct muster_look look;
};

static void look_finish(struct muster_look *look)
{
    muster_job_response_finish(&look->job);
    *look = (struct muster_look){0};
}

static struct muster_look look_at(struct muster_lookout *lookout)
{
    struct muster_look look = {.asked_ns = muster_clock_ns()};
    enum muster_rpc_code code = MUSTER_RPC_OK;
    muster_status status = muster_service_get_job(lookout->client, lookout->job,
                                                  MUSTER_LOOK_TIMEOUT_MS, &look.job, &code);
    look.known = status == MUSTER_OK;
    look.reached = code != MUSTER_RPC_UNAVAILABLE && code != MUSTER_RPC_CANCELED;
    if (!look.known) {
        (void)snprintf(look.error, sizeof look.error, "%s", muster_last_error());
    }
    return look;
}

/* True: go on. */
static bool publish(struct muster_lookout *lookout, struct muster_look *look)
{
    AUTO_LOCK(&lookout->mutex);
    look_finish(&lookout->look);
    lookout->look = *look;
    lookout->fresh = true;
    uint64_t one = 1;
    ssize_t written = write(lookout->notify_fd, &one, sizeof one);
    (void)written; /* full means that nobody has looked since: it is readable anyway */
    int64_t until_ns = muster_clock_after_ms(lookout->interval_ms);
    while (!lookout->stop && !lookout->hurry &&
           muster_condition_wait(&lookout->wake, &lookout->mutex, until_ns)) {
    }
    lookout->hurry = false;
    return !lookout->stop;
}

static void *lookout_main(void *argument)
{
    struct muster_lookout *lookout = argument;
    bool go_on = true;
    while (go_on) {
        struct muster_look look = look_at(lookout);
        go_on = publish(lookout, &look);
    }
    return NULL;
}

static muster_status start_thread(struct muster_lookout *lookout)
{
    muster_condition_init(&lookout->wake);
    muster_mutex_init(&lookout->mutex);
    if (pthread_create(&lookout->thread, NULL, lookout_main, lookout) != 0) {
        return muster_error_set(MUSTER_FATAL, "cannot start the thread that watches the job");
    }
    return MUSTER_OK;
}

muster_status muster_lookout_create(const char *url, const char *token, const char *job,
                                    uint32_t interval_ms, int notify_fd,
                                    struct muster_lookout **ret_lookout)
{
    struct muster_lookout *lookout = calloc(1, sizeof *lookout);
    if (lookout == NULL) {
        return muster_error_set(MUSTER_FATAL, "watching the job: out of memory");
    }
    lookout->interval_ms = interval_ms;
    lookout->notify_fd = notify_fd;
    (void)snprintf(lookout->job, sizeof lookout->job, "%s", job);
    muster_status status = muster_client_create(url, token, &lookout->client);
    if (status == MUSTER_OK) {
        status = start_thread(lookout);
    }
    if (status != MUSTER_OK) {
        muster_client_destroy(lookout->client);
        free(lookout);
        return status;
    }
    *ret_lookout = lookout;
    return MUSTER_OK;
}

void muster_lookout_destroy(struct muster_lookout *lookout)
{
    if (lookout == NULL) {
        return;
    }
    muster_mutex_lock(&lookout->mutex);
    lookout->stop = true;
    pthread_cond_signal(&lookout->wake);
    muster_mutex_unlock(&lookout->mutex);
    muster_client_interrupt(lookout->client);
    pthread_join(lookout->thread, NULL);
    look_finish(&lookout->look);
    muster_client_destroy(lookout->client);
    pthread_cond_destroy(&lookout->wake);
    pthread_mutex_destroy(&lookout->mutex);
    free(lookout);
}

bool muster_lookout_take(struct muster_lookout *lookout, struct muster_look *ret_look)
{
    AUTO_LOCK(&lookout->mutex);
    if (!lookout->fresh) {
        return false;
    }
    *ret_look = lookout->look;
    lookout->look = (struct muster_look){0};
    lookout->fresh = false;
    return true;
}

void muster_lookout_hurry(struct muster_lookout *lookout)
{
    AUTO_LOCK(&lookout->mutex);
    lookout->hurry = true;
    pthread_cond_signal(&lookout->wake);
}
