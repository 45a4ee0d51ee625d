/*
 * The end of a communicator, which may hang: ncclCommAbort() runs in a thread of its own. If it
 * does not return in time, the communicator is left behind with its thread, its stream and its
 * memory, and NCCL is not used any more in this process: data in memory of GPUs then goes through
 * memory of the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/device/cuda/nccl_parts.h"

enum { FAILURES_MAX = 3, REASON_SIZE = 256 };

static struct {
    pthread_mutex_t mutex;
    bool off, hanging;
    unsigned failures;
    char reason[REASON_SIZE];
} usable = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Owned by the two threads: the last one frees it. */
struct ending {
    const struct muster_nccl *nccl;
    const struct muster_cuda *cuda;
    void *context, *comm;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done, abandoned;
};

muster_status muster_nccl_check_usable(void)
{
    AUTO_LOCK(&usable.mutex);
    return usable.off
               ? muster_error_set(MUSTER_INVALID, "NCCL is off in this process: %s", usable.reason)
               : MUSTER_OK;
}

static void turn_off_locked(const char *text)
{
    if (!usable.off) {
        usable.off = true;
        (void)snprintf(usable.reason, sizeof usable.reason, "%s", text);
        muster_log(MUSTER_LOG_WARN,
                   "NCCL is off in this process: %s; data in memory of GPUs goes through memory of "
                   "the host from now on",
                   usable.reason);
    }
}

void muster_nccl_note_failure(const char *text)
{
    AUTO_LOCK(&usable.mutex);
    if (++usable.failures >= FAILURES_MAX) {
        turn_off_locked(text);
    }
}

bool muster_nccl_is_hanging(void)
{
    AUTO_LOCK(&usable.mutex);
    return usable.hanging;
}

static void leave_behind(const char *text)
{
    AUTO_LOCK(&usable.mutex);
    usable.hanging = true;
    turn_off_locked(text);
}

static void destroy(struct ending *ending)
{
    (void)pthread_mutex_destroy(&ending->mutex);
    (void)pthread_cond_destroy(&ending->changed);
    free(ending);
}

static void *run(void *user)
{
    struct ending *ending = user;
    void *unused = NULL;
    if (ending->cuda->ctx_push_current(ending->context) == 0) {
        (void)ending->nccl->comm_abort(ending->comm);
        (void)ending->cuda->ctx_pop_current(&unused);
    }
    muster_mutex_lock(&ending->mutex);
    bool abandoned = ending->abandoned;
    ending->done = true;
    (void)pthread_cond_signal(&ending->changed);
    muster_mutex_unlock(&ending->mutex);
    if (abandoned) {
        destroy(ending);
    }
    return NULL;
}

static bool wait_until(struct ending *ending, int64_t until_ns)
{
    AUTO_LOCK(&ending->mutex);
    while (!ending->done && muster_condition_wait(&ending->changed, &ending->mutex, until_ns)) {
    }
    ending->abandoned = !ending->done;
    return ending->done;
}

void muster_nccl_abort(struct muster_nccl_group *group, int64_t until_ns)
{
    pthread_t thread;
    struct ending *ending = group->comm != NULL ? calloc(1, sizeof *ending) : NULL;
    if (ending == NULL) {
        return;
    }
    ending->nccl = group->nccl;
    ending->cuda = group->cuda;
    ending->context = group->context;
    ending->comm = group->comm;
    muster_mutex_init(&ending->mutex);
    muster_condition_init(&ending->changed);
    group->comm = NULL;
    if (muster_thread_start(&thread, run, ending) != 0) {
        destroy(ending);
        leave_behind("no thread could be started to end a communicator, which is left behind");
    } else if (wait_until(ending, until_ns)) {
        (void)pthread_join(thread, NULL);
        destroy(ending);
        return;
    } else {
        (void)pthread_detach(thread);
        leave_behind("ncclCommAbort does not return, and the communicator is left behind");
    }
    group->stream = NULL; /* its kernel may still run */
    group->spare = 0;
}
