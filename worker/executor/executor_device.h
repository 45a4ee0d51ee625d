/*
 * Operations on memory of a device: the device copies arrived bytes there, and reduces what is
 * there.
 *
 * Private to the executor. May use: fabric, device, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_DEVICE_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_DEVICE_H

#include "worker/executor/executor_parts.h"

/* Completes a transfer that is prepared for memory of the host: marks a send out of memory of a
 * device, and lets data that arrives for a device be copied or reduced there. */
void muster_message_prepare_device(struct muster_step_message *message);

/* MUSTER_FATAL: a copy to the device failed; the thread's error text says why. Under the fabric's
 * lock, when the message is done. */
MUSTER_CHECKED muster_status muster_message_check_device(const struct muster_step_message *message);

/* A local step. MUSTER_FATAL: no memory, or the device's name of the error. */
MUSTER_CHECKED muster_status muster_operation_step_device(const struct muster_operation *operation,
                                                          const struct muster_step *step);

#endif
