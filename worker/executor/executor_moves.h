/*
 * Moves of an operation (collectives/schedule/moves.h): the caller's buffers are memory of a
 * device, INPUT and OUTPUT of the launch are pinned memory of the host, and the device copies
 * between them while the steps run. A round of a lane begins when what it reads has been fetched;
 * what is final when it ends is stored: averaged and scaled on the host, then copied.
 *
 * The owner of the operation enqueues and polls; done functions only read how much is fetched and
 * say how much is final.
 *
 * Private to the executor. May use: device, collectives, trace, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_MOVES_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_MOVES_H

#include "worker/executor/executor_parts.h"

/* The operation is bound to a launch: plans its moves the first time, and enqueues all fetches. If
 * the launch has none: nothing. MUSTER_FATAL: no memory, or the device's name of an error. */
MUSTER_CHECKED muster_status muster_moves_begin(struct muster_operation *operation);
void muster_moves_destroy(struct muster_operation *operation);

/* Whether the present round of the lane may be posted, with the early receives of the next one.
 * Any thread. */
bool muster_moves_allow(const struct muster_lane_state *lane);
/* Whether the end of the lane's present round makes elements final. Any thread. */
bool muster_moves_has_stores(const struct muster_lane_state *lane);

/* Of the owner: looks how much is fetched, and enqueues stores. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_moves_progress(struct muster_operation *operation);
/* Whether all lanes have ended and everything is stored. */
bool muster_moves_are_complete(const struct muster_operation *operation);
/* Whether the operation waits for the device, so that it is to be polled. */
bool muster_moves_wait(const struct muster_operation *operation);
/* Whether the device has been at work for it just now, so that it is worth polling often. */
bool muster_moves_advance(const struct muster_operation *operation);
int64_t muster_moves_next_poll(const struct muster_operation *operation, int64_t until_ns);

/* An operation that is one group step and is prepared for a launch with moves: the step between its
 * fetches and its stores. Blocks. Statuses of muster_operation_run(). */
MUSTER_CHECKED muster_status muster_moves_run_in_group(struct muster_operation *operation,
                                                       uint32_t *ret_suspect);
/* The same in flight: begin; the group has its turn once all is fetched; then its step is done, and
 * the rest is progress. */
MUSTER_CHECKED muster_status muster_moves_begin_in_group(struct muster_operation *operation);
MUSTER_CHECKED muster_status muster_moves_fetch_in_group(struct muster_operation *operation,
                                                         bool *ret_fetched);
void muster_moves_end_in_group(struct muster_operation *operation);

/* The operation has failed: waits a while until the device has left the buffers alone. */
void muster_moves_give_up(struct muster_operation *operation);

#endif
