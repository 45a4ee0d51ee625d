/*
 * A device: memory that is not the host's, or the host's own, and what is done with that memory.
 * What a device provides (struct muster_device) and what it may call; devices.h has the registry.
 *
 * Threads: any thread may call any function. Functions that say so block.
 */
#ifndef MUSTER_WORKER_DEVICE_DEVICE_H
#define MUSTER_WORKER_DEVICE_DEVICE_H

#include "collectives/call/launch.h"
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

/* Called from time to time during a wait. Any status but MUSTER_OK ends the wait, and is what the
 * group step returns; ret_suspect: the rank that is to blame, by its name. */
typedef muster_status (*muster_group_check)(void *user, uint32_t *ret_suspect);

/* The sequence of step number `index` (from 0) of a call. */
#define MUSTER_PART_SEQUENCE(call, index) ((call) << 16 | (index))
enum { MUSTER_PARTS_MAX = 1 << 16 }; /* of one call */

/* One group step on one rank. All pointers are borrowed for the call. */
struct muster_group_launch {
    const struct muster_launch *launch; /* its call is compared with that of the other ranks */
    unsigned method; /* how the device does it, by its own numbers; the same on all ranks */
    bool buffers;    /* all ranks can read the buffers of all; the same on all ranks */
    /* One of several steps of a call, which has messages, too: the sequence of the launch is
     * MUSTER_PART_SEQUENCE(), and the ranks say when they have left a call (`leave`). */
    bool part;
    muster_group_check check;
    void *user; /* of check */
};

/* Group steps in flight, which are polled: one at a time in a group. `group` is as in
 * run_group_step; it performs no other operations. */
struct muster_group_flight {
    /* The step is copied, its launch borrowed until the end; neither its deadline nor `check` and
     * `user` are used. announces: the operation runs by messages, and is only announced, so that
     * ranks that perform a group step in its place end with MUSTER_INVALID. */
    void (*begin)(void *group, const struct muster_group_launch *step, bool announces);
    /* Does what can be done without waiting for another rank for longer than spin_ns.
     * MUSTER_RETRY: the step is not done yet; *ret_advanced: it has come further since the last
     * time. Else it is to be ended with this status. */
    muster_status (*poll)(void *group, int64_t spin_ns, bool *ret_advanced);
    /* Whether the rank that the step waits for is alive; a system call. MUSTER_REJOIN: it is not,
     * and the step is to be ended. */
    muster_status (*check)(void *group);
    /* With the status of poll or check, or one of the caller's, of which MUSTER_RETRY means that
     * the limit of the operation has passed. Returns it with its text; statuses and ret_suspect as
     * of run_group_step. */
    muster_status (*end)(void *group, muster_status status, uint32_t *ret_suspect);
    /* This rank takes part in no operation from this number on. Of any thread that uses the group.
     * Of a group whose steps are parts of calls, the number is a MUSTER_PART_SEQUENCE(). */
    void (*withdraw)(void *group, uint64_t sequence);
    /* Of such a group: this rank has nothing left to do in the calls up to this one. A rank that
     * waits for a step of such a call here ends with MUSTER_INVALID. */
    void (*leave)(void *group, uint64_t call);
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
    /* Group steps: collectives of ranks that have made a group of this device, each performed as
     * one. `group` is this rank's part of it (of the host: struct muster_group_memory). Blocks
     * until this rank's part is done. MUSTER_INVALID: the ranks call differently, and every rank
     * that takes part gets this status. MUSTER_RETRY: the deadline has passed. MUSTER_REJOIN: a
     * rank died or gave up, or `check` returned it. ret_suspect: the rank that died or is waited
     * for, by its name, else unchanged. The input is intact, unless the call was in place. After
     * MUSTER_RETRY and MUSTER_REJOIN this rank has left the group. */
    muster_status (*run_group_step)(void *group, const struct muster_group_launch *step,
                                    uint32_t *ret_suspect);
    /* Announces an operation that runs by messages, so that ranks that perform a group step in its
     * place end with MUSTER_INVALID. Waits until all ranks have begun the operation before. Of the
     * launch only sequence, call and deadline_ns are used. Statuses as above. */
    muster_status (*announce_to_group)(void *group, const struct muster_group_launch *step,
                                       uint32_t *ret_suspect);
    const struct muster_group_flight *flight;
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

/* The slots of a device that has no groups: MUSTER_INVALID. */
extern const struct muster_group_flight muster_device_no_flight;
MUSTER_CHECKED muster_status muster_device_no_group_step(void *group,
                                                         const struct muster_group_launch *step,
                                                         uint32_t *ret_suspect);

/* export_pages of a device that has no dma-bufs. */
MUSTER_CHECKED muster_status muster_device_export_nothing(const struct muster_device_memory *memory,
                                                          const void *base, size_t size_bytes,
                                                          int *ret_fd);

#endif
