/*
 * Group steps of the host: collectives of ranks that share memory, each performed as one.
 *
 * One struct muster_group_memory is one rank's part of one group (a context) in one generation. All
 * ranks call the same operations in the same order, as in any context.
 *
 * Threads: one at a time; what opens and aborts may be called by any.
 *
 * May use: base, memory, the words and kernels of collectives. May not know: schedules, fabrics,
 * contexts.
 */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_MEMORY_H

#include "worker/device/device.h"

struct muster_group_memory;

enum {
    MUSTER_GROUP_RANKS_MAX = 64,
    MUSTER_GROUP_STAGING_BYTES = 256 << 10, /* of input, in a rank's staging area */
};

/* The memory of a group of so many ranks, which one of them makes; every rank opens a descriptor of
 * it. The caller closes it. MUSTER_FATAL: no memory or descriptors. */
MUSTER_CHECKED muster_status muster_group_memory_invite(uint32_t ranks, int *ret_fd);
/* MUSTER_FATAL: no memory. MUSTER_INVALID: the descriptor is not of such memory, or another process
 * has this rank's slot. */
/* Takes the descriptor, also on failure. */
MUSTER_CHECKED muster_status muster_group_memory_open(const struct muster_group_options *options,
                                                      int fd,
                                                      struct muster_group_memory **ret_memory);
/* Leaves the group: ranks that wait for this one stop waiting. Accepts NULL. */
void muster_group_memory_destroy(struct muster_group_memory *memory);

/* Part number 1 to MUSTER_GROUP_CHANNELS of the memory, for operations in flight. The parts
 * neither wait for each other nor share anything but their ranks, whose options and descriptor the
 * others borrow from the first one: that is destroyed last. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status
muster_group_memory_create_part(const struct muster_group_memory *first, uint32_t number,
                                struct muster_group_memory **ret_part);

/* When all have opened the memory: whether this process may read the buffers of all others. */
bool muster_group_memory_probe(struct muster_group_memory *memory);

/* Before the first operation, with the same number on all ranks: the first operation is number
 * sequence + 1. */
void muster_group_memory_begin(struct muster_group_memory *memory, uint64_t sequence);

/* The same where steps are parts of calls: the first call is number `call` + 1. Both also for a
 * part of the memory, after the first one has been probed. */
void muster_group_memory_begin_calls(struct muster_group_memory *memory, uint64_t call);

/* Of any thread: operations under way end with MUSTER_REJOIN, as soon as they wait again. */
void muster_group_memory_abort(struct muster_group_memory *memory);

/* This rank has ended the call of this number, with group steps or without, well or not: to be
 * called after each one. A rank that waits for a step of that call here ends with MUSTER_INVALID.
 */
void muster_group_memory_leave(struct muster_group_memory *memory, uint64_t call);

/* Blocks until this rank's part is done. MUSTER_INVALID: the ranks call differently, and every rank
 * that takes part gets this status. MUSTER_RETRY: the deadline has passed. MUSTER_REJOIN: a rank
 * died or gave up, or `check` returned it. ret_suspect: the rank that died or is waited for, by its
 * name, else unchanged. The input is intact, unless the call was in place. After MUSTER_RETRY and
 * MUSTER_REJOIN this rank has left the group. */
MUSTER_CHECKED muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                                     const struct muster_group_launch *step,
                                                     uint32_t *ret_suspect);

/* Announces an operation that runs by messages, so that ranks that run another one here end with
 * MUSTER_INVALID. Waits until all ranks have begun the operation before. Of the launch only
 * sequence, call and deadline_ns are used. */
MUSTER_CHECKED muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                                          const struct muster_group_launch *step,
                                                          uint32_t *ret_suspect);

/* The same in parts, for an operation in flight: begin, poll until it is done, end. One operation
 * at a time. The step is copied; its launch is borrowed until the end, and its deadline, `check`
 * and `user` are not used.
 *
 * begin: announces: the operation runs by messages, and is only announced.
 * poll: does what can be done without waiting for another rank, which may be to reduce or copy much
 * data; each wait for a rank polls for so long, until one was in vain. MUSTER_RETRY: it is not done
 * yet; *ret_advanced: it has come further. Else it is to be ended with this status. check: of an
 * operation that is not done: MUSTER_REJOIN: the rank that it waits for has died or has left the
 * group, and the operation is to be ended. end: with the status of poll or of check, or with one of
 * the caller's (MUSTER_RETRY: the limit of the operation has passed); returns it, with its text.
 * ret_suspect: as above. */
void muster_group_memory_begin_step(struct muster_group_memory *memory,
                                    const struct muster_group_launch *step, bool announces);
MUSTER_CHECKED muster_status muster_group_memory_poll(struct muster_group_memory *memory,
                                                      int64_t spin_ns, bool *ret_advanced);
MUSTER_CHECKED muster_status muster_group_memory_check(struct muster_group_memory *memory);
MUSTER_CHECKED muster_status muster_group_memory_end_step(struct muster_group_memory *memory,
                                                          muster_status status,
                                                          uint32_t *ret_suspect);

/* This rank takes part in no operation from this number on: the others, which wait for it there,
 * end with MUSTER_REJOIN. For operations in flight that have failed before they began. */
void muster_group_memory_withdraw(struct muster_group_memory *memory, uint64_t sequence);

#endif
