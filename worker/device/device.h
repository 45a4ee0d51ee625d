/*
 * A device: memory that is not the host's, or the host's own, and what is done with that memory.
 * What a device provides (struct muster_device) and what it may call; devices.h has the registry.
 *
 * Threads: any thread may call any function. Functions that say so block.
 */
#ifndef MUSTER_WORKER_DEVICE_DEVICE_H
#define MUSTER_WORKER_DEVICE_DEVICE_H

#include "collectives/call/launch.h"
#include "worker/device/group.h"
#include "worker/device/queue.h"
#include "worker/trace/timeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocation of a device. */
struct muster_device_memory {
    const struct muster_device *device;
    uintptr_t begin, end; /* equal where the device does not know them */
    uint64_t id;          /* never used again in this process; 0: it has none */
    void *context;        /* the device's own */
};

/* Where elements are. */
struct muster_device_place {
    char *at;
    const struct muster_device_memory *memory; /* borrowed; NULL: memory of the host */
};

/* target = left op right, element by element; target and left may be the same. */
struct muster_combination {
    const struct muster_reduction *reduction; /* borrowed */
    struct muster_device_place target, left, right;
    uint64_t count;                      /* of elements */
    struct muster_timeline *timeline;    /* where copies are recorded; or NULL */
    struct muster_timeline_operation of; /* for the timeline */
};

/* One row of the registry. Every slot is filled; those marked (host) may be one of the functions
 * below, which bring the data to the host. All statuses are MUSTER_OK, or MUSTER_FATAL with the
 * device's own name of the error, unless the slot says more. */
struct muster_device {
    const char *name;
    /* Whether the process can have such memory. Quick: it is asked in every call. */
    bool (*is_active)(void);
    /* Finds the allocation of an address. False: it is not this device's. Memory that the CPU may
     * use counts as the host's. */
    bool (*find)(const void *data, struct muster_device_memory *ret_memory);
    /* Copies, where `to` or `from` is in this memory, and the other one anywhere. The copy comes
     * after the work that the program has queued for the memory, and is complete for the CPU and
     * for other devices on return. Blocks. */
    muster_status (*copy)(const struct muster_device_memory *memory, void *to, const void *from,
                          size_t size_bytes);
    /* Carries out the combination, of which at least one place is this device's. Blocks. (host) */
    muster_status (*combine)(const struct muster_combination *combination);
    /* Whether `combine` of this reduction is done where the memory is. Else who has to reduce
     * several buffers does better to bring each to the host once. (host) */
    bool (*reduces)(const struct muster_device_memory *memory,
                    const struct muster_reduction *reduction);
    /* Averages and scales the results of a reduction to which so many buffers have contributed.
     * Blocks. (host) */
    muster_status (*finish)(const struct muster_device_memory *memory,
                            const struct muster_reduction *reduction, void *data, uint64_t count,
                            uint64_t contributions);
    /* Waits for the work that the program has queued for the memory: to be called before another
     * device reads it. Blocks. */
    muster_status (*wait)(const struct muster_device_memory *memory);
    /* Exports whole pages as a dma-buf, by which another device can use them. The caller closes it;
     * the memory stays as long as the dma-buf is in use. MUSTER_INVALID: there can be none; the
     * text says why. */
    muster_status (*export_pages)(const struct muster_device_memory *memory, const void *base,
                                  size_t size_bytes, int *ret_fd);
    const struct muster_queue_ops *(*queues)(void); /* queue.h */
    const struct muster_group_ops *groups;          /* group.h */
    /* What helps where an RDMA device cannot read this memory, as a sentence without its stop. */
    const char *rdma_advice;
};

/* combine and finish in blocks, in memory of the host. */
MUSTER_CHECKED muster_status
muster_device_combine_on_host(const struct muster_combination *combination);
MUSTER_CHECKED muster_status muster_device_finish_on_host(const struct muster_device_memory *memory,
                                                          const struct muster_reduction *reduction,
                                                          void *data, uint64_t count,
                                                          uint64_t contributions);

/* `reduces` of a device without kernels. */
bool muster_device_reduces_nothing(const struct muster_device_memory *memory,
                                   const struct muster_reduction *reduction);

/* Of a device that has no groups. */
extern const struct muster_group_ops muster_device_no_groups;

/* export_pages of a device that has no dma-bufs. */
MUSTER_CHECKED muster_status muster_device_export_nothing(const struct muster_device_memory *memory,
                                                          const void *base, size_t size_bytes,
                                                          int *ret_fd);

#endif
