/* Streams and events as programs see them. */
#include "tests/libcuda/pretended_parts.h"

#include <stdlib.h>
#include <utlist.h>

enum { NON_BLOCKING = 1, BLOCKING_SYNC = 1, DISABLE_TIMING = 2 };

struct pretended_event {
    int ordinal;
    unsigned flags;
    struct pretended_record *last; /* NULL: it was never recorded */
    struct pretended_event *prev, *next;
};

static struct pretended_event *events;

/* Streams -------------------------------------------------------------------------------------- */

int cuStreamCreateWithPriority(uintptr_t *ret_stream, unsigned flags, int priority)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    int ordinal = pretended_current();
    (void)priority;
    if (error != 0 || ordinal < 0 || flags > NON_BLOCKING) {
        return error != 0 ? error : ordinal < 0 ? INVALID_CONTEXT : INVALID_VALUE;
    }
    if (!pretended_succeeds(GPU_PRETEND_STREAM)) {
        return OUT_OF_MEMORY;
    }
    *ret_stream = (uintptr_t)pretended_queue_make(ordinal, QUEUE_MADE, (flags & NON_BLOCKING) == 0);
    return 0;
}

/* Priorities change nothing here. */
int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    if (error == 0) {
        *ret_least = 0;
        *ret_greatest = -5;
    }
    return error;
}

int cuStreamCreate(uintptr_t *ret_stream, unsigned flags)
{
    return cuStreamCreateWithPriority(ret_stream, flags, 0);
}

/* Finds what a call is about, or says why it is refused. */
static int begin(uintptr_t stream, struct pretended_queue **ret_queue)
{
    int error = pretended_refusal();
    return error != 0 ? error : pretended_queue_find(stream, ret_queue);
}

/* Does not wait: what is enqueued runs all the same. */
int cuStreamDestroy_v2(uintptr_t stream)
{
    LOCKED_SCOPE();
    struct pretended_queue *queue = NULL;
    int error = stream <= PER_THREAD ? INVALID_HANDLE : pretended_queue_find(stream, &queue);
    if (error == 0) {
        pretended_queue_close(queue);
        error = pretended_refusal();
    }
    return error;
}

int cuStreamGetCtx(uintptr_t stream, void **ret_context)
{
    LOCKED_SCOPE();
    struct pretended_queue *queue = NULL;
    int error = begin(stream, &queue);
    if (error == 0) {
        *ret_context = &pretended.contexts[queue->ordinal];
    }
    return error;
}

int cuStreamQuery(uintptr_t stream)
{
    LOCKED_SCOPE();
    struct pretended_queue *queue = NULL;
    int error = begin(stream, &queue);
    if (error != 0) {
        return error;
    }
    pretended_queue_nudge(queue);
    return pretended.lost != 0               ? pretended.lost
           : pretended_queue_is_empty(queue) ? pretended_queue_drain(queue)
                                             : NOT_READY;
}

int cuStreamSynchronize(uintptr_t stream)
{
    LOCKED_SCOPE();
    struct pretended_queue *queue = NULL;
    int error = begin(stream, &queue);
    return error != 0 ? error : pretended_queue_drain(queue);
}

/* Events --------------------------------------------------------------------------------------- */

static struct pretended_event *find(const void *handle)
{
    struct pretended_event *each = NULL;
    DL_FOREACH(events, each)
    {
        if (each == handle) {
            return each;
        }
    }
    return NULL;
}

/* *ret_event: the event, if it is one. */
static int begin_event(const void *handle, struct pretended_event **ret_event)
{
    int error = pretended_refusal();
    if (error == 0) {
        *ret_event = find(handle);
        error = *ret_event == NULL ? INVALID_HANDLE : 0;
    }
    return error;
}

int cuEventCreate(void **ret_event, unsigned flags)
{
    LOCKED_SCOPE();
    int error = pretended_refusal();
    int ordinal = pretended_current();
    if (error != 0 || ordinal < 0 || flags > (BLOCKING_SYNC | DISABLE_TIMING)) {
        return error != 0 ? error : ordinal < 0 ? INVALID_CONTEXT : INVALID_VALUE;
    }
    if (!pretended_succeeds(GPU_PRETEND_EVENT)) {
        return OUT_OF_MEMORY;
    }
    struct pretended_event *made = calloc(1, sizeof *made);
    made->ordinal = ordinal;
    made->flags = flags;
    DL_APPEND(events, made);
    *ret_event = made;
    return 0;
}

/* Both must be of one context. What was recorded before is forgotten, except by those who wait for
 * it. */
int cuEventRecord(void *event, uintptr_t stream)
{
    LOCKED_SCOPE();
    struct pretended_event *of = NULL;
    struct pretended_queue *queue = NULL;
    int error = begin_event(event, &of);
    error = error != 0 ? error : pretended_queue_find(stream, &queue);
    if (error != 0 || queue->ordinal != of->ordinal) {
        return error != 0 ? error : INVALID_HANDLE;
    }
    pretended_record_release(of->last);
    of->last = calloc(1, sizeof *of->last);
    of->last->holders = 1;
    const struct pretended_task task = {.completes = pretended_record_hold(of->last)};
    pretended_queue_add(queue, &task);
    return 0;
}

/* Waits for what was recorded when it is called. Of any context. */
int cuStreamWaitEvent(uintptr_t stream, void *event, unsigned flags)
{
    LOCKED_SCOPE();
    struct pretended_event *of = NULL;
    struct pretended_queue *queue = NULL;
    int error = begin_event(event, &of);
    error = error != 0 ? error : pretended_queue_find(stream, &queue);
    if (error != 0 || flags != 0) {
        return error != 0 ? error : INVALID_VALUE;
    }
    if (of->last != NULL) {
        const struct pretended_task task = {.waits_for = pretended_record_hold(of->last)};
        pretended_queue_add(queue, &task);
    }
    return 0;
}

int cuEventQuery(void *event)
{
    LOCKED_SCOPE();
    struct pretended_event *of = NULL;
    int error = begin_event(event, &of);
    if (error != 0 || of->last == NULL) {
        return error;
    }
    struct pretended_record *record = pretended_record_hold(of->last);
    if (!record->done) {
        pretended_queue_nudge(record->queue);
    }
    error = pretended.lost != 0 ? pretended.lost : record->done ? record->error : NOT_READY;
    pretended_record_release(record);
    return error;
}

int cuEventSynchronize(void *event)
{
    LOCKED_SCOPE();
    struct pretended_event *of = NULL;
    int error = begin_event(event, &of);
    return error != 0 || of->last == NULL ? error : pretended_record_wait(of->last);
}

int cuEventElapsedTime(float *ret_ms, void *start, void *end)
{
    LOCKED_SCOPE();
    struct pretended_event *from = NULL;
    struct pretended_event *to = NULL;
    int error = begin_event(start, &from);
    error = error != 0 ? error : begin_event(end, &to);
    if (error != 0) {
        return error;
    }
    if (((from->flags | to->flags) & DISABLE_TIMING) != 0 || from->last == NULL ||
        to->last == NULL) {
        return INVALID_HANDLE;
    }
    if (!from->last->done || !to->last->done) {
        return NOT_READY;
    }
    *ret_ms = (float)(to->last->done_ns - from->last->done_ns) / 1e6F;
    return 0;
}

/* Does not wait. */
int cuEventDestroy_v2(void *event)
{
    LOCKED_SCOPE();
    struct pretended_event *of = find(event);
    if (of == NULL) {
        return INVALID_HANDLE;
    }
    DL_DELETE(events, of);
    pretended_record_release(of->last);
    free(of);
    return pretended_refusal();
}
