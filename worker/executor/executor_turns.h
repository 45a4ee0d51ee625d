/*
 * Operations in flight of ranks that share memory: each has its turn in the memory.
 *
 * The device performs one group step at a time. All ranks number the operations in flight of a
 * context alike, and take them in this order, whenever their programs have started them: a rank
 * that starts one later than the others only makes them wait. An operation that runs by messages
 * has a turn, too, in which it is announced, so that a rank that disagrees finds out; then its
 * messages move beside the group steps of later operations.
 *
 * An operation that fails where others may not has no successor: the later ones of this rank fail,
 * too, and the other ranks learn that it has left.
 *
 * Private to the executor. Threads: the one that progresses the operations. May use: executor.h,
 * device, fabric, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_TURNS_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_TURNS_H

#include "worker/base/status.h"
#include "worker/executor/executor.h"

enum muster_turn {
    MUSTER_TURN_WAITS = 0, /* its number is not the next one */
    MUSTER_TURN_TAKEN =
        1, /* also in a channel: the device is polled: no message says when it can go on */
    MUSTER_TURN_OVER = 2,     /* the next one has its turn; this one has ended */
    MUSTER_TURN_MESSAGES = 3, /* the next one has its turn, or there are no turns; this one runs by
                                 messages */
};

/* muster_operation_start(), _progress() and _finish() of an operation in flight, in its turn where
 * its group has turns, and in its channel where it has channels. spin_ns: how long it may wait in
 * the group. */
MUSTER_CHECKED muster_status muster_operation_turn_start(struct muster_operation *operation,
                                                         const struct muster_launch *launch,
                                                         bool *awake);
MUSTER_CHECKED muster_status muster_operation_turn_progress(struct muster_operation *operation,
                                                            int64_t spin_ns, bool *ret_ended);
MUSTER_CHECKED muster_status muster_operation_turn_finish(struct muster_operation *operation,
                                                          muster_status status,
                                                          uint32_t *ret_suspect);

/* Between start and finish. *ret_advanced: it has come further in the group in the last call. */
enum muster_turn muster_operation_turn(const struct muster_operation *operation,
                                       bool *ret_advanced);

#endif
