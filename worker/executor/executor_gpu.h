/*
 * Operations on memory of a GPU: CUDA copies arrived bytes there. What is reduced there is copied
 * to the host block by block, reduced, and copied back.
 *
 * Private to the executor. May use: fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_GPU_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_GPU_H

#include "worker/executor/executor_parts.h"

/* Completes a transfer that is prepared for memory of the host: marks a send out of memory of a
 * GPU, and lets data that arrives for a GPU be copied or reduced there. */
void muster_message_prepare_gpu(struct muster_step_message *message);

/* MUSTER_FATAL: a copy to the GPU failed; the thread's error text says why. Under the fabric's
 * lock, when the message is done. */
MUSTER_CHECKED muster_status muster_message_check_gpu(const struct muster_step_message *message);

/* A local step. MUSTER_FATAL: no memory, or CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_operation_step_gpu(const struct muster_operation *operation,
                                                       const struct muster_step *step);

#endif
