/*
 * Streams as queues of tasks, which run late, and across streams in an odd order that a seed
 * chooses. The tasks of a queue run one after the other. A task runs
 *
 *   - in a thread that waits for it, or for one that needs it, or that asks whether it is done;
 *   - in a thread of the library's own, after a random delay. It is started by the first task of a
 *     stream that a program has made.
 *
 * The first task of a queue may run when no task stands before it:
 *
 *   legacy stream            all tasks that are in blocking streams of its context and are older
 *   other blocking stream    all tasks of the legacy stream of its context that are older
 *   wait for an event        the recording of the event
 *
 * What stands before a task is always older, so a chain of such tasks ends.
 */
#include "tests/libcuda/pretended_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

enum { POLL_US = 100 };

static struct pretended_queue *queues;
static struct pretended_queue *legacy[ORDINALS];
static __thread struct pretended_queue *of_thread[ORDINALS];
static uint64_t last_order;
static bool has_worker;
static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Records -------------------------------------------------------------------------------------- */

struct pretended_record *pretended_record_hold(struct pretended_record *record)
{
    record->holders++;
    return record;
}

void pretended_record_release(struct pretended_record *record)
{
    if (record != NULL && --record->holders == 0) {
        free(record);
    }
}

static void finish_record(struct pretended_record *record, int error)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    record->done = true;
    record->error = error;
    record->queue = NULL;
    record->done_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Queues --------------------------------------------------------------------------------------- */

/* A thread has ended: of its streams. */
static void end_thread(void *ended)
{
    struct pretended_queue **own = ended;
    LOCKED_SCOPE();
    for (int i = 0; i < ORDINALS; i++) {
        if (own[i] != NULL) {
            pretended_queue_close(own[i]);
            own[i] = NULL;
        }
    }
}

static void before_fork(void)
{
    pretended_lock();
}

/* The child has neither the thread nor what it was running. */
static void after_fork_in_child(void)
{
    struct pretended_queue *each = NULL;
    has_worker = false;
    DL_FOREACH(queues, each)
    {
        each->busy = false;
        each->waiters = 0;
    }
    (void)pthread_cond_init(&pretended.changed, NULL);
    pretended_unlock();
}

static void prepare(void)
{
    (void)pthread_key_create(&thread_end, end_thread);
    (void)pthread_atfork(before_fork, pretended_unlock, after_fork_in_child);
}

struct pretended_queue *pretended_queue_make(int ordinal, enum pretended_kind kind, bool blocking)
{
    struct pretended_queue *made = calloc(1, sizeof *made);
    (void)pthread_once(&once, prepare);
    made->ordinal = ordinal;
    made->kind = kind;
    made->blocking = blocking;
    DL_APPEND(queues, made);
    return made;
}

struct pretended_queue *pretended_queue_legacy(int ordinal)
{
    if (legacy[ordinal] == NULL) {
        legacy[ordinal] = pretended_queue_make(ordinal, QUEUE_LEGACY, true);
    }
    return legacy[ordinal];
}

static struct pretended_queue *queue_of_thread(int ordinal)
{
    if (of_thread[ordinal] == NULL) {
        of_thread[ordinal] = pretended_queue_make(ordinal, QUEUE_PER_THREAD, true);
        (void)pthread_setspecific(thread_end, of_thread);
    }
    return of_thread[ordinal];
}

int pretended_queue_find(uintptr_t stream, struct pretended_queue **ret_queue)
{
    struct pretended_queue *each = NULL;
    if (stream <= PER_THREAD) {
        int ordinal = pretended_current();
        if (ordinal < 0) {
            return INVALID_CONTEXT;
        }
        *ret_queue =
            stream == PER_THREAD ? queue_of_thread(ordinal) : pretended_queue_legacy(ordinal);
        return 0;
    }
    DL_FOREACH(queues, each)
    {
        if ((uintptr_t)each == stream && each->kind == QUEUE_MADE && !each->closed) {
            *ret_queue = each;
            return 0;
        }
    }
    return INVALID_HANDLE;
}

bool pretended_queue_is_empty(const struct pretended_queue *queue)
{
    return queue->tasks == NULL;
}

uint64_t pretended_queue_length(const struct pretended_queue *queue)
{
    const struct pretended_task *each = NULL;
    uint64_t length = 0;
    DL_COUNT(queue->tasks, each, length);
    return length;
}

static void free_if_unused(struct pretended_queue *queue)
{
    if (queue->closed && queue->tasks == NULL && queue->waiters == 0) {
        DL_DELETE(queues, queue);
        free(queue);
    }
}

void pretended_queue_close(struct pretended_queue *queue)
{
    queue->closed = true;
    queue->paused = false;
    (void)pthread_cond_broadcast(&pretended.changed);
    free_if_unused(queue);
}

/* Which task is next --------------------------------------------------------------------------- */

/* A queue whose first task stands before the first task of this one; NULL: there is none. Of
 * several it is any. */
static struct pretended_queue *find_blocker(const struct pretended_queue *queue)
{
    const struct pretended_task *first = queue->tasks;
    struct pretended_queue *each = NULL;
    struct pretended_queue *found = NULL;
    uint32_t count = 0;
    if (first->waits_for != NULL && !first->waits_for->done) {
        return first->waits_for->queue;
    }
    if (!queue->blocking) {
        return NULL;
    }
    DL_FOREACH(queues, each)
    {
        bool ordered = each != queue && each->ordinal == queue->ordinal && each->blocking &&
                       (queue->kind == QUEUE_LEGACY || each->kind == QUEUE_LEGACY);
        if (ordered && each->tasks != NULL && each->tasks->order < first->order &&
            pretended_random(++count) == 0) {
            found = each;
        }
    }
    return found;
}

/* A queue whose first task may run now and brings this one further; NULL: there is none at present.
 * asked: somebody waits. */
static struct pretended_queue *find_runnable(struct pretended_queue *queue, bool asked)
{
    while (queue->tasks != NULL && !queue->busy && !queue->paused &&
           (asked || !queue->tasks->held)) {
        struct pretended_queue *blocker = find_blocker(queue);
        if (blocker == NULL) {
            const struct pretended_task *first = queue->tasks;
            return first->is_ready == NULL || first->is_ready(first) ? queue : NULL;
        }
        queue = blocker;
    }
    return NULL;
}

/* Running -------------------------------------------------------------------------------------- */

static void free_task(struct pretended_task *task)
{
    pretended_record_release(task->waits_for);
    pretended_record_release(task->completes);
    free(task->bytes);
    free(task);
}

static void end_task(struct pretended_queue *queue, struct pretended_task *task, int error)
{
    if (task->waits_for != NULL && error == 0) {
        error = task->waits_for->error;
    }
    queue->error = queue->error != 0 ? queue->error : error;
    if (task->completes != NULL) {
        finish_record(task->completes, queue->error);
    }
    DL_DELETE(queue->tasks, task);
    free_task(task);
}

/* Runs the first task, without the lock. */
static void run_first(struct pretended_queue *queue)
{
    struct pretended_task *task = queue->tasks;
    int error = 0;
    queue->busy = true;
    if (task->run != NULL) {
        pretended_unlock();
        error = task->run(task);
        pretended_lock();
    }
    queue->busy = false;
    end_task(queue, task, pretended.lost != 0 ? pretended.lost : error);
    (void)pthread_cond_broadcast(&pretended.changed);
    free_if_unused(queue);
}

static struct timespec after_us(uint32_t us)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += us * INT64_C(1000);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Waits until something changes, or so long. */
static void wait_us(uint32_t us)
{
    const struct timespec until = after_us(us);
    (void)pthread_cond_timedwait(&pretended.changed, &pretended.mutex, &until);
}

/* What a thread that waits does until what it waits for has come. */
static void go_on(struct pretended_queue *queue)
{
    struct pretended_queue *next = find_runnable(queue, true);
    if (next != NULL) {
        run_first(next);
    } else {
        wait_us(POLL_US);
    }
}

/* Any queue that may run a task; *ret_pending: there are tasks that may run later. */
static struct pretended_queue *pick(bool *ret_pending)
{
    struct pretended_queue *each = NULL;
    struct pretended_queue *found = NULL;
    uint32_t count = 0;
    DL_FOREACH(queues, each)
    {
        *ret_pending = *ret_pending || each->tasks != NULL;
        if (find_runnable(each, false) == each && pretended_random(++count) == 0) {
            found = each;
        }
    }
    return found;
}

static void delay(void)
{
    const struct timespec until = after_us(pretended_random(pretended.delay_us + 1));
    while (pretended.delay_us != GPU_PRETEND_NEVER &&
           pthread_cond_timedwait(&pretended.changed, &pretended.mutex, &until) != ETIMEDOUT) {
    }
}

static void *work(void *unused)
{
    (void)unused;
    pretended_lock();
    for (;;) {
        bool pending = false;
        if (pretended.delay_us == GPU_PRETEND_NEVER) {
            (void)pthread_cond_wait(&pretended.changed, &pretended.mutex);
        } else if (pick(&pending) != NULL) {
            delay();
            struct pretended_queue *next = pick(&pending); /* another thread may have run it */
            if (next != NULL && pretended.delay_us != GPU_PRETEND_NEVER) {
                run_first(next);
            }
        } else if (pending) {
            wait_us(POLL_US);
        } else {
            (void)pthread_cond_wait(&pretended.changed, &pretended.mutex);
        }
    }
    return NULL;
}

static void start_worker(void)
{
    pthread_t thread;
    has_worker = pthread_create(&thread, NULL, work, NULL) == 0;
    if (!has_worker) {
        abort();
    }
    (void)pthread_detach(thread);
}

void pretended_queue_add(struct pretended_queue *queue, const struct pretended_task *task)
{
    struct pretended_task *added = malloc(sizeof *added);
    *added = *task;
    added->order = ++last_order;
    queue->last_order = added->order;
    if (added->completes != NULL) {
        added->completes->queue = queue;
    }
    DL_APPEND(queue->tasks, added);
    if (!has_worker && queue->kind == QUEUE_MADE) {
        start_worker();
    }
    (void)pthread_cond_broadcast(&pretended.changed);
}

/* Waiting -------------------------------------------------------------------------------------- */

static bool has_until(const struct pretended_queue *queue, uint64_t order)
{
    return queue->tasks != NULL && queue->tasks->order <= order;
}

int pretended_queue_drain(struct pretended_queue *queue)
{
    uint64_t until = queue->last_order;
    queue->waiters++;
    while (has_until(queue, until) && pretended.lost == 0) {
        go_on(queue);
    }
    queue->waiters--;
    int error = pretended.lost != 0 ? pretended.lost : queue->error;
    queue->error = 0;
    free_if_unused(queue);
    return error;
}

static struct pretended_queue *find_older(int ordinal, uint64_t until)
{
    struct pretended_queue *each = NULL;
    DL_FOREACH(queues, each)
    {
        if (each->ordinal == ordinal && has_until(each, until)) {
            return each;
        }
    }
    return NULL;
}

int pretended_queue_drain_all(int ordinal)
{
    uint64_t until = last_order;
    struct pretended_queue *queue = NULL;
    while (pretended.lost == 0 && (queue = find_older(ordinal, until)) != NULL) {
        go_on(queue);
    }
    return pretended.lost;
}

void pretended_queue_nudge(struct pretended_queue *queue)
{
    struct pretended_queue *next = find_runnable(queue, true);
    if (next != NULL && pretended_random(4) != 0) {
        queue->waiters++;
        run_first(next);
        queue->waiters--;
        free_if_unused(queue);
    }
}

void pretended_queue_drop_all(int error)
{
    struct pretended_queue *each = NULL;
    struct pretended_queue *after = NULL;
    DL_FOREACH_SAFE(queues, each, after)
    {
        struct pretended_task *task = each->busy ? each->tasks->next : each->tasks;
        while (task != NULL) {
            struct pretended_task *next = task->next;
            end_task(each, task, error);
            task = next;
        }
        each->error = 0;
        free_if_unused(each);
    }
    (void)pthread_cond_broadcast(&pretended.changed);
}

int pretended_record_wait(struct pretended_record *record)
{
    pretended_record_hold(record);
    while (!record->done && pretended.lost == 0) {
        struct pretended_queue *queue = record->queue;
        queue->waiters++;
        go_on(queue);
        queue->waiters--;
        free_if_unused(queue);
    }
    int error = pretended.lost != 0 ? pretended.lost : record->error;
    pretended_record_release(record);
    return error;
}
