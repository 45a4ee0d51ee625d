/*
 * The executor: runs any schedule over any links and any memory. Only the executor sees schedules,
 * links and buffers together.
 *
 * An operation is created once per schedule. It holds one transfer for each message, so that a
 * launch allocates nothing.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_H

#include "collectives/call/launch.h"
#include "collectives/schedule/schedule.h"
#include "worker/fabric/fabric.h"

struct muster_operation;
struct muster_queue_ops; /* worker/device/queue.h */

/* Of a launch whose buffers are copies, in pinned memory, of memory of a device: which the
 * operation fetches and stores while it runs. */
struct muster_launch_moves {
    const struct muster_queue_ops *queues; /* of the device */
    const void *in;                        /* on the device; NULL: INPUT is not copied */
    void *out;                             /* likewise */
    void *fetches,
        *stores; /* queues for them, of this launch alone; NULL where nothing is copied */
    bool failed; /* set if the device may still use the pinned memory after the end */
};

/* Takes the schedule (also on failure). ranks[i] is the global rank of the schedule's rank i.
 * fabric and ranks are borrowed for the operation's life; a schedule without messages needs no
 * fabric. */
MUSTER_CHECKED muster_status muster_operation_create(struct muster_fabric *fabric,
                                                     struct muster_schedule *schedule,
                                                     const uint32_t *ranks,
                                                     struct muster_operation **ret_operation);
/* Its launches will be compressed: its schedule counts packs. Once, before the first launch.
 * MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_operation_enable_packs(struct muster_operation *operation);
void muster_operation_destroy(struct muster_operation *operation);

/* The group that performs the operation's group step, which is its whole schedule, and how: the
 * device's method. group is borrowed for the operation's life. Without one the operation fails. */
struct muster_operation_group; /* executor_group.h */
void muster_operation_set_group(struct muster_operation *operation,
                                const struct muster_operation_group *group, unsigned method);

/* How that group's device performs each group step of a schedule that has other steps, too: its
 * method, by the index of the step. Takes the array, of one entry a step of the schedule. */
void muster_operation_set_methods(struct muster_operation *operation, uint8_t *methods);

/* Whether the links of the operation can read memory of a device now: then buffers of a launch may
 * lie there. */
bool muster_operation_reads_devices(const struct muster_operation *operation, uint64_t generation);

/* Blocks until this rank's part is done. The launch is borrowed until then. MUSTER_RETRY: the
 * deadline has passed. MUSTER_INVALID: the ranks disagree; all peers have been sent an abort.
 * MUSTER_REJOIN: a link was lost, or the generation was revoked. In all cases no transfer stays
 * posted. ret_suspect: as in muster_context_run(). */
MUSTER_CHECKED muster_status muster_operation_run(struct muster_operation *operation,
                                                  const struct muster_launch *launch,
                                                  uint32_t *ret_suspect);

/* The same in parts, for operations in flight: start, then progress whenever *awake is true until
 * the operation has ended, then finish. The launch and awake are borrowed until it is finished.
 *
 * One thread at a time calls them: the owner, which sets *awake to false before it calls
 * progress, and waits by muster_fabric_wait_in() with awake as its flag. Several operations of a
 * fabric may have the same flag.
 *
 * start: also after a failure the operation has to be finished, with its status. progress does
 * the local steps that are due; it does not block, and its status is for finish, too. finish: with
 * MUSTER_OK, or with the status of start, of progress or of the wait; returns that of
 * muster_operation_run(). */
MUSTER_CHECKED muster_status muster_operation_start(struct muster_operation *operation,
                                                    const struct muster_launch *launch,
                                                    bool *awake);
MUSTER_CHECKED muster_status muster_operation_progress(struct muster_operation *operation,
                                                       bool *ret_ended);
MUSTER_CHECKED muster_status muster_operation_finish(struct muster_operation *operation,
                                                     muster_status status, uint32_t *ret_suspect);

/* Sends peers (global ranks) the reason why the operation failed here, and waits up to 10 ms until
 * it has left: the fabric moves nothing while no thread waits. muster_last_error() stays as it is.
 */
void muster_launch_abort(struct muster_fabric *fabric, const struct muster_launch *launch,
                         const uint32_t *ranks, size_t count, const char *reason);

#endif
