/* A table of queues by a hash of the job's name, and a list of those that have work and no thread.
 */
#include "rendezvous/http/queues.h"

#include "worker/base/clock.h"
#include "worker/base/thread.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUES = 1021 };

struct queue {
    struct muster_queued *first, *last;
    bool scheduled; /* in the list of ready queues, or a thread works on it */
    struct queue *next_ready;
};

struct muster_queues {
    pthread_t threads[MUSTER_QUEUE_THREADS];
    unsigned thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the lock: */
    struct queue queues[QUEUES];
    struct queue *ready_first, *ready_last;
    bool stopping;
};

/* The bytes of the member "job", as they stand there: a name that is written in two ways has two
 * queues, which costs nothing but time, because a job locks itself. */
static const char *find_job(const char *json, size_t size_bytes, size_t *ret_size_bytes)
{
    static const char key[] = "\"job\"";
    const char *at = memmem(json, size_bytes, key, sizeof key - 1);
    const char *end = json + size_bytes;
    *ret_size_bytes = 0;
    if (at == NULL) {
        return json;
    }
    const char *open = memchr(at + sizeof key - 1, '"', (size_t)(end - at) - (sizeof key - 1));
    const char *name = open != NULL ? open + 1 : end;
    const char *close = memchr(name, '"', (size_t)(end - name));
    *ret_size_bytes = close != NULL ? (size_t)(close - name) : 0;
    return name;
}

static unsigned queue_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 16777619U;
    }
    return hash % QUEUES;
}

static void make_ready_locked(struct muster_queues *queues, struct queue *queue)
{
    queue->scheduled = true;
    queue->next_ready = NULL;
    if (queues->ready_first == NULL) {
        queues->ready_first = queue;
    } else {
        queues->ready_last->next_ready = queue;
    }
    queues->ready_last = queue;
    (void)pthread_cond_signal(&queues->changed);
}

static void add(struct muster_queues *queues, struct muster_queued *queued)
{
    struct queue *queue = &queues->queues[queued->queue];
    muster_mutex_lock(&queues->mutex);
    if (queues->stopping) {
        muster_mutex_unlock(&queues->mutex);
        queued->run(queued);
        return;
    }
    queued->next = NULL;
    if (queue->first == NULL) {
        queue->first = queued;
    } else {
        queue->last->next = queued;
    }
    queue->last = queued;
    if (!queue->scheduled) {
        make_ready_locked(queues, queue);
    }
    muster_mutex_unlock(&queues->mutex);
}

void muster_queues_add(struct muster_queues *queues, const char *json, size_t size_bytes,
                       struct muster_queued *queued)
{
    size_t length;
    const char *name = find_job(json, size_bytes, &length);
    queued->queue = queue_of(name, length);
    add(queues, queued);
}

void muster_queues_add_for(struct muster_queues *queues, const char *job,
                           struct muster_queued *queued)
{
    queued->queue = queue_of(job, strlen(job));
    add(queues, queued);
}

void muster_queues_add_beside(struct muster_queues *queues, const struct muster_queued *other,
                              struct muster_queued *queued)
{
    queued->queue = other->queue;
    add(queues, queued);
}

/* Takes the first request of the queue whose turn it is. NULL: the thread is to end. */
static struct muster_queued *take(struct muster_queues *queues, struct queue **ret_queue)
{
    AUTO_LOCK(&queues->mutex);
    while (queues->ready_first == NULL && !queues->stopping) {
        (void)muster_condition_wait(&queues->changed, &queues->mutex, MUSTER_NEVER);
    }
    struct queue *queue = queues->ready_first;
    if (queue == NULL) {
        return NULL;
    }
    queues->ready_first = queue->next_ready;
    struct muster_queued *queued = queue->first;
    queue->first = queued->next;
    *ret_queue = queue;
    return queued;
}

static void put_back(struct muster_queues *queues, struct queue *queue)
{
    AUTO_LOCK(&queues->mutex);
    queue->scheduled = false;
    if (queue->first != NULL) {
        make_ready_locked(queues, queue);
    }
}

static void *run(void *user)
{
    struct muster_queues *queues = user;
    struct queue *queue;
    struct muster_queued *queued;
    while ((queued = take(queues, &queue)) != NULL) {
        queued->run(queued);
        put_back(queues, queue);
    }
    return NULL;
}

muster_status muster_queues_create(struct muster_queues **ret_queues)
{
    struct muster_queues *queues = calloc(1, sizeof *queues);
    if (queues == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    muster_mutex_init(&queues->mutex);
    muster_condition_init(&queues->changed);
    while (queues->thread_count < MUSTER_QUEUE_THREADS) {
        int failed = pthread_create(&queues->threads[queues->thread_count], NULL, run, queues);
        if (failed != 0) {
            muster_queues_stop(queues);
            muster_queues_destroy(queues);
            return muster_error_set(MUSTER_FATAL, "cannot start a thread: error %d", failed);
        }
        queues->thread_count++;
    }
    *ret_queues = queues;
    return MUSTER_OK;
}

void muster_queues_stop(struct muster_queues *queues)
{
    muster_mutex_lock(&queues->mutex);
    queues->stopping = true;
    (void)pthread_cond_broadcast(&queues->changed);
    muster_mutex_unlock(&queues->mutex);
    while (queues->thread_count > 0) {
        (void)pthread_join(queues->threads[--queues->thread_count], NULL);
    }
}

void muster_queues_destroy(struct muster_queues *queues)
{
    if (queues != NULL) {
        (void)pthread_cond_destroy(&queues->changed);
        (void)pthread_mutex_destroy(&queues->mutex);
        free(queues);
    }
}
