/*
 * Group steps among other steps of a schedule: a device performs each for the ranks of its group,
 * in the order that schedule.h defines, while the messages of the operation move.
 *
 * In an operation of one lane, nothing of which a rank has to look after moves during a group step:
 * it blocks in the group. In one of several lanes the step is polled, between the other work.
 *
 * Private to the executor. Threads: the one that progresses the operation.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_STEPS_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_STEPS_H

#include "worker/base/status.h"
#include "worker/executor/executor.h"

struct muster_group_steps;
struct muster_lane_state;

/* *ret_steps stays NULL where the schedule has none. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_group_steps_create(const struct muster_schedule *schedule,
                                                       struct muster_group_steps **ret_steps);
void muster_group_steps_destroy(struct muster_group_steps *steps);

/* Of a new launch. */
void muster_group_steps_begin(struct muster_operation *operation);

/* Group steps of the lane's present round, whose local steps are done, may be performed now. */
size_t muster_group_steps_in_round(const struct muster_lane_state *lane);

/* Performs the next group step if its lane has come to it. *ret_lane: the lane, if the step is
 * done; else NULL. A step that fails ends the operation, and ret_suspect is as in
 * muster_operation_run(). */
MUSTER_CHECKED muster_status muster_group_steps_progress(struct muster_operation *operation,
                                                         struct muster_lane_state **ret_lane);

/* Whether the device has a group step of the operation, and has to be polled. */
bool muster_group_steps_waits(const struct muster_operation *operation);

/* Until when the operation may wait for the fabric: the next group step has begun, and no message
 * says when it can go on. */
int64_t muster_group_steps_next_poll(const struct muster_operation *operation, int64_t deadline_ns);

/* The operation has failed with this status: leaves the group. Returns the status, with its text;
 * sets *ret_suspect if a rank of the group is to blame. */
MUSTER_CHECKED muster_status muster_group_steps_fail(struct muster_operation *operation,
                                                     muster_status status, uint32_t *ret_suspect);

#endif
