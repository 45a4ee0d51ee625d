/* Queues of a device that has none: each copy is made at once. */
#include <stdlib.h>

#include "worker/device/device.h"

struct queue {
    struct muster_device_memory memory;
    uint64_t copies;
};

static muster_status pin(const struct muster_device_memory *memory, void *host, size_t size_bytes)
{
    (void)memory;
    (void)host;
    (void)size_bytes;
    return MUSTER_OK;
}

static bool unpin(const struct muster_device_memory *memory, void *host)
{
    (void)memory;
    (void)host;
    return true;
}

static muster_status open_queue(const struct muster_device_memory *memory, void **ret_queue)
{
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a queue of a device");
    }
    queue->memory = *memory;
    *ret_queue = queue;
    return MUSTER_OK;
}

static void close_queue(void *queue)
{
    free(queue);
}

/* The device's copy comes after the program's work on the default stream by itself. */
static muster_status follow(void *queue, uintptr_t stream)
{
    (void)queue;
    return stream == 0 ? MUSTER_OK : muster_error_set(MUSTER_INVALID, "the device has no streams");
}

static void release(void *queue)
{
    (void)queue;
}

static muster_status copy(void *queue, void *to, const void *from, size_t size_bytes)
{
    struct queue *it = queue;
    TRY(it->memory.device->copy(&it->memory, to, from, size_bytes));
    it->copies++;
    return MUSTER_OK;
}

static muster_status poll(void *queue, uint64_t *ret_done)
{
    *ret_done = ((const struct queue *)queue)->copies;
    return MUSTER_OK;
}

static uint64_t drop(void *queue)
{
    return ((const struct queue *)queue)->copies;
}

const struct muster_queue_ops muster_device_no_queues = {.pin = pin,
                                                         .unpin = unpin,
                                                         .open = open_queue,
                                                         .close = close_queue,
                                                         .follow = follow,
                                                         .hold = follow,
                                                         .release = release,
                                                         .copy = copy,
                                                         .poll = poll,
                                                         .drop = drop};

const struct muster_queue_ops *muster_device_without_queues(void)
{
    return &muster_device_no_queues;
}
