/*
 * Room for calls on memory of a device that are staged: pinned memory of the host, and queues of
 * the device for copies to and from it. One call at a time uses a room, and it is kept for the next
 * one.
 *
 * Private to the context. May use: device, memory, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_DEVICE_ROOM_H
#define MUSTER_WORKER_CONTEXT_DEVICE_ROOM_H

#include "worker/device/device.h"

/* Zeroed: there is none. */
struct muster_device_room {
    struct muster_device_memory of; /* memory of the device that the room serves */
    const struct muster_queue_ops *queues;
    char *memory;
    uint64_t size_bytes;
    bool shared; /* the memory is of muster_alloc(): other ranks of this host can map it */
    bool pinned;
    void *fetches, *stores; /* queues; NULL: not opened */
};

/* Makes the room at least so large, for the device that has this memory; its contents are lost.
 * Blocks; the first time for tens of milliseconds if it is large. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_device_room_reserve(struct muster_device_room *room,
                                                        const struct muster_device_memory *memory,
                                                        uint64_t size_bytes);

/* Opens the queues of a room that is reserved, if they are not open. MUSTER_FATAL: the device's
 * name of the error. */
MUSTER_CHECKED muster_status muster_device_room_open_queues(struct muster_device_room *room);

/* No copy is under way. Accepts zeroed storage, and leaves it so. */
void muster_device_room_finish(struct muster_device_room *room);
/* The device may still use the memory and the queues: they are left behind for good. */
void muster_device_room_abandon(struct muster_device_room *room);

#endif
