/*
 * Queues of a device: copies between its memory and memory of the host, which are made in order
 * while the caller does something else. What a device provides for that (struct muster_queue_ops).
 *
 * One thread at a time uses a queue. No function blocks, unless it says so. Statuses are MUSTER_OK,
 * or MUSTER_FATAL with the device's own name of the error.
 */
#ifndef MUSTER_WORKER_DEVICE_QUEUE_H
#define MUSTER_WORKER_DEVICE_QUEUE_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct muster_device_memory; /* device.h */

struct muster_queue_ops {
    /* Makes memory of the host fast for copies of this memory, and never swapped. Blocks.
     * MUSTER_FATAL: no more of it can be pinned. */
    muster_status (*pin)(const struct muster_device_memory *memory, void *host, size_t size_bytes);
    /* No copy to or from it is under way. Blocks. False: the device hangs, and the memory must
     * stay.
     */
    bool (*unpin)(const struct muster_device_memory *memory, void *host);

    /* A queue for copies of this memory, to it or from it. */
    muster_status (*open)(const struct muster_device_memory *memory, void **ret_queue);
    /* Copies that are not complete are still made. Accepts NULL. */
    void (*close)(void *queue);
    /* What is enqueued from now on comes after the work that the program has put on the stream so
     * far; 0: on the default stream. MUSTER_INVALID: it is no stream of the memory's device. */
    muster_status (*follow)(void *queue, uintptr_t stream);
    /* Work that the program puts on the stream from now on waits until the queue is released. Once
     * until then. MUSTER_INVALID: the device has no streams, or not this one. */
    muster_status (*hold)(void *queue, uintptr_t stream);
    /* Any thread; nothing if nothing is held. */
    void (*release)(void *queue);
    /* Enqueues a copy: number n of this queue, counted from 1. It begins at once, or in a later
     * call of copy or poll. */
    muster_status (*copy)(void *queue, void *to, const void *from, size_t size_bytes);
    /* *ret_done: so many copies are complete, for the CPU and for other devices. */
    muster_status (*poll)(void *queue, uint64_t *ret_done);
    /* Copies that have not begun are not made, and their numbers are given again. Returns how many
     * have begun. */
    uint64_t (*drop)(void *queue);
};

/* Of a device that has no queues: copies are complete when they are enqueued, which blocks. */
extern const struct muster_queue_ops muster_device_no_queues;
const struct muster_queue_ops *muster_device_without_queues(void);

#endif
