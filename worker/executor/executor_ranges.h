/* Steps and messages of an operation whose buffers are several ranges. */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_RANGES_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_RANGES_H

#include "worker/executor/executor_parts.h"

/* Sets where the data of the message is, and what takes the arrived data. A message that lies in
 * one range is like one of an ordinary buffer. */
void muster_message_prepare_ranges(struct muster_step_message *message);

/* Does a local step. */
void muster_operation_step_in_ranges(const struct muster_operation *operation,
                                     const struct muster_step *step);

#endif
