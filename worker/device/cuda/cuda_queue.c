/*
 * Queues of a GPU.
 *
 * Streams of the GPU may share a channel of the hardware, in which a stream that waits blocks the
 * others. A stream of the program that a queue holds waits for copies of that queue. So these must
 * not stand behind anything that waits: a queue's own stream has the highest priority, since
 * priorities do not share channels, and no stream of a queue ever waits in the GPU. A queue that
 * follows a stream keeps its copies here until the stream has come so far.
 */
#include "worker/device/cuda/cuda_queue.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"
#include "worker/base/thread.h"
#include "worker/device/cuda/cuda_library.h"
#include "worker/device/cuda/nccl_groups.h"
#include "worker/device/device.h"

enum {
    UNDER_WAY_MAX = 64, /* copies of a queue */
    PAGE_BYTES = 4096,
    LINE_BYTES = 64,
};

struct flag;

/* A copy that is not issued yet. */
struct pending {
    void *to;
    const void *from;
    size_t size_bytes;
};

struct queue {
    const struct muster_cuda *cuda;
    void *context;
    void *stream;
    void *events[UNDER_WAY_MAX];     /* of copy number n: index (n - 1) % UNDER_WAY_MAX; or NULL */
    void *order;                     /* the event by which the queue follows a stream */
    bool follows;                    /* the event is not complete yet */
    uint64_t enqueued, issued, done; /* numbers of copies */
    struct pending *pending; /* [room] the copies from number issued + 1 on, from `first` on */
    size_t first, room;
    struct flag *flag;     /* that a stream which is held waits for; or NULL */
    _Atomic uint32_t held; /* the value that it waits for */
};

static muster_status fail(const struct muster_cuda *cuda, const char *what, int error)
{
    return muster_error_set(MUSTER_FATAL, "%s a GPU: %s", what,
                            muster_cuda_error_name(cuda, error));
}

/* Pinned memory -------------------------------------------------------------------------------- */

/* Registered and not allocated by CUDA: so the memory can be of any kind, and other ranks of this
 * host can read or map it. */
static muster_status pin(const struct muster_device_memory *memory, void *host, size_t size_bytes)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    int error = cuda->ctx_push_current(memory->context);
    if (error == 0) {
        error = cuda->queues.mem_host_register(host, size_bytes,
                                               MUSTER_CUDA_HOST_PORTABLE | MUSTER_CUDA_HOST_MAPPED);
        (void)cuda->ctx_pop_current(&unused);
    }
    return error == 0
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "pinning %zu bytes of the host for a GPU: %s",
                                  size_bytes, muster_cuda_error_name(cuda, error));
}

/* CUDA waits for all that the GPU does. */
static bool unpin(const struct muster_device_memory *memory, void *host)
{
    if (muster_nccl_is_hanging()) {
        return false;
    }
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    if (cuda->ctx_push_current(memory->context) == 0) {
        (void)cuda->queues.mem_host_unregister(host);
        (void)cuda->ctx_pop_current(&unused);
    }
    return true;
}

/* Flags ---------------------------------------------------------------------------------------- */

/* A flag by which streams are held: in pinned memory, for good, since a stream may look at it long
 * after the call has ended. It only rises, so that the next user of the flag lets such a stream go
 * on, too. */
struct flag {
    _Alignas(LINE_BYTES) _Atomic uint32_t value;
    bool used;
    void *context;
    struct flag *next;
};

static struct {
    pthread_mutex_t mutex;
    struct flag *all;
} flags = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct flag *find_unused_locked(const void *context)
{
    struct flag *each = flags.all;
    while (each != NULL && (each->used || each->context != context)) {
        each = each->next;
    }
    return each;
}

/* A page of unused ones. */
static muster_status add_flags_locked(void *context)
{
    const struct muster_device_memory memory = {.context = context};
    void *page = NULL;
    if (posix_memalign(&page, PAGE_BYTES, PAGE_BYTES) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory for a queue of a GPU");
    }
    muster_status status = pin(&memory, page, PAGE_BYTES);
    if (status != MUSTER_OK) {
        free(page);
        return status;
    }
    struct flag *made = page;
    for (size_t i = 0; i < PAGE_BYTES / sizeof *made; i++) {
        made[i] = (struct flag){.context = context, .next = flags.all};
        flags.all = &made[i];
    }
    return MUSTER_OK;
}

static muster_status take_flag(struct queue *queue)
{
    if (queue->flag != NULL) {
        return MUSTER_OK;
    }
    if (queue->cuda->queues.stream_wait_value == NULL) {
        return muster_error_set(
            MUSTER_INVALID, "streams need cuStreamWaitValue32, which this libcuda does not have");
    }
    AUTO_LOCK(&flags.mutex);
    struct flag *found = find_unused_locked(queue->context);
    if (found == NULL) {
        TRY(add_flags_locked(queue->context));
        found = find_unused_locked(queue->context);
    }
    found->used = true;
    queue->flag = found;
    atomic_store(&queue->held, atomic_load(&found->value));
    return MUSTER_OK;
}

static void give_back_flag(struct queue *queue)
{
    if (queue->flag != NULL) {
        AUTO_LOCK(&flags.mutex);
        queue->flag->used = false;
    }
}

/* Opening -------------------------------------------------------------------------------------- */

static int create(struct queue *queue)
{
    const struct muster_cuda_queue_functions *cuda = &queue->cuda->queues;
    int least = 0;
    int greatest = 0;
    int error = cuda->ctx_get_stream_priority_range(&least, &greatest);
    if (error == 0) {
        error =
            cuda->stream_create_with_priority(&queue->stream, MUSTER_CUDA_NON_BLOCKING, greatest);
    }
    return error != 0 ? error : queue->cuda->event_create(&queue->order, MUSTER_CUDA_NO_TIMING);
}

/* What is enqueued goes on; the driver frees the rest behind it. */
static void close_queue(void *it)
{
    struct queue *queue = it;
    void *unused = NULL;
    if (queue == NULL) {
        return;
    }
    if (queue->cuda->ctx_push_current(queue->context) == 0) {
        for (int i = 0; i < UNDER_WAY_MAX && queue->events[i] != NULL; i++) {
            (void)queue->cuda->event_destroy(queue->events[i]);
        }
        (void)(queue->order != NULL && queue->cuda->event_destroy(queue->order));
        (void)(queue->stream != NULL && queue->cuda->stream_destroy(queue->stream));
        (void)queue->cuda->ctx_pop_current(&unused);
    }
    give_back_flag(queue);
    free(queue->pending);
    free(queue);
}

static muster_status open_queue(const struct muster_device_memory *memory, void **ret_queue)
{
    const struct muster_cuda *cuda = muster_cuda_library();
    void *unused = NULL;
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a queue of a GPU");
    }
    queue->cuda = cuda;
    queue->context = memory->context;
    int error = cuda->ctx_push_current(memory->context);
    if (error == 0) {
        error = create(queue);
        (void)cuda->ctx_pop_current(&unused);
    }
    if (error != 0) {
        close_queue(queue);
        return fail(cuda, "opening a queue of", error);
    }
    *ret_queue = queue;
    return MUSTER_OK;
}

/* Order with the program's streams ------------------------------------------------------------- */

static muster_status check_stream(const struct queue *queue, int error)
{
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID,
                                         "the stream is none of the GPU that has the buffer: %s",
                                         muster_cuda_error_name(queue->cuda, error));
}

static muster_status follow(void *it, uintptr_t stream)
{
    struct queue *queue = it;
    void *unused = NULL;
    int error = queue->cuda->ctx_push_current(queue->context);
    if (error == 0) {
        error = queue->cuda->event_record(queue->order, stream == 0 ? MUSTER_CUDA_LEGACY : stream);
        queue->follows = error == 0;
        (void)queue->cuda->ctx_pop_current(&unused);
    }
    return stream != 0  ? check_stream(queue, error)
           : error == 0 ? MUSTER_OK
                        : fail(queue->cuda, "waiting for the default stream of", error);
}

static muster_status hold(void *it, uintptr_t stream)
{
    struct queue *queue = it;
    const struct muster_cuda_queue_functions *cuda = &queue->cuda->queues;
    void *unused = NULL;
    uint64_t address = 0;
    TRY(take_flag(queue));
    uint32_t value = atomic_load(&queue->flag->value) + 1;
    int error = queue->cuda->ctx_push_current(queue->context);
    if (error == 0) {
        error = cuda->mem_host_get_device_pointer(&address, (void *)&queue->flag->value, 0);
        error = error != 0 ? error
                           : cuda->stream_wait_value(stream, address, value, MUSTER_CUDA_WAIT_GEQ);
        (void)queue->cuda->ctx_pop_current(&unused);
    }
    TRY(check_stream(queue, error));
    atomic_store(&queue->held, value);
    return MUSTER_OK;
}

static void release(void *it)
{
    struct queue *queue = it;
    if (queue->flag != NULL) {
        atomic_store(&queue->flag->value, atomic_load(&queue->held));
    }
}

/* Copies --------------------------------------------------------------------------------------- */

static int note_done(struct queue *queue)
{
    int error = 0;
    while (queue->done < queue->issued && error == 0) {
        error = queue->cuda->event_query(queue->events[queue->done % UNDER_WAY_MAX]);
        queue->done += error == 0 ? 1 : 0;
    }
    return error == MUSTER_CUDA_NOT_READY ? 0 : error;
}

static int issue(struct queue *queue)
{
    const struct pending *copy = &queue->pending[queue->first];
    void **event = &queue->events[queue->issued % UNDER_WAY_MAX];
    uintptr_t stream = (uintptr_t)queue->stream;
    int error = *event != NULL ? 0 : queue->cuda->event_create(event, MUSTER_CUDA_NO_TIMING);
    error = error != 0 ? error
                       : queue->cuda->memcpy_async((uintptr_t)copy->to, (uintptr_t)copy->from,
                                                   copy->size_bytes, stream);
    if (error == 0) {
        error = queue->cuda->event_record(*event, stream);
        queue->issued++;
        queue->first++;
    }
    return error;
}

/* Issues what may be, and looks what is done. */
static int advance(struct queue *queue)
{
    int error = queue->follows ? queue->cuda->event_query(queue->order) : 0;
    queue->follows = error == MUSTER_CUDA_NOT_READY;
    if (error != 0) {
        return queue->follows ? 0 : error;
    }
    error = note_done(queue);
    while (error == 0 && queue->issued < queue->enqueued &&
           queue->issued - queue->done < UNDER_WAY_MAX) {
        error = issue(queue);
    }
    return error;
}

static int advance_in_context(struct queue *queue)
{
    void *unused = NULL;
    int error = queue->cuda->ctx_push_current(queue->context);
    if (error == 0) {
        error = advance(queue);
        (void)queue->cuda->ctx_pop_current(&unused);
    }
    return error;
}

/* Room for one more copy. */
static muster_status grow(struct queue *queue)
{
    size_t count = queue->enqueued - queue->issued;
    if (queue->first > 0) {
        memmove(queue->pending, queue->pending + queue->first, count * sizeof *queue->pending);
        queue->first = 0;
    }
    if (count == queue->room) {
        size_t room = queue->room == 0 ? UNDER_WAY_MAX : 2 * queue->room;
        struct pending *larger = reallocarray(queue->pending, room, sizeof *larger);
        if (larger == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for a queue of a GPU");
        }
        queue->pending = larger;
        queue->room = room;
    }
    return MUSTER_OK;
}

static muster_status copy(void *it, void *to, const void *from, size_t size_bytes)
{
    struct queue *queue = it;
    size_t at = queue->first + (queue->enqueued - queue->issued);
    if (at == queue->room) {
        TRY(grow(queue));
        at = queue->enqueued - queue->issued;
    }
    queue->pending[at] = (struct pending){.to = to, .from = from, .size_bytes = size_bytes};
    queue->enqueued++;
    int error = advance_in_context(queue);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_FATAL, "copying %zu bytes of a GPU: %s", size_bytes,
                                         muster_cuda_error_name(queue->cuda, error));
}

static muster_status poll(void *it, uint64_t *ret_done)
{
    struct queue *queue = it;
    int error = queue->done < queue->enqueued ? advance_in_context(queue) : 0;
    *ret_done = queue->done;
    return error == 0 ? MUSTER_OK : fail(queue->cuda, "copying memory of", error);
}

static uint64_t drop(void *it)
{
    struct queue *queue = it;
    queue->enqueued = queue->issued;
    queue->first = 0;
    return queue->issued;
}

const struct muster_queue_ops *muster_cuda_queues(void)
{
    static const struct muster_queue_ops queues = {.pin = pin,
                                                   .unpin = unpin,
                                                   .open = open_queue,
                                                   .close = close_queue,
                                                   .follow = follow,
                                                   .hold = hold,
                                                   .release = release,
                                                   .copy = copy,
                                                   .poll = poll,
                                                   .drop = drop};
    return muster_cuda_queue_functions(muster_cuda_library()) != NULL ? &queues
                                                                      : &muster_device_no_queues;
}
