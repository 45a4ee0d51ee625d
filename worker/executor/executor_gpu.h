/*
 * Operations on memory of a GPU: bytes are copied there by CUDA, and what is reduced there is
 * brought to the host block by block, reduced, and taken back.
 *
 * Private to the executor. May use: fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_GPU_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_GPU_H

#include "worker/executor/executor_parts.h"

/* The message has been bound: what comes goes where its step wants it, and what goes is said to be
 * a GPU's if it is. */
void muster_message_bind_gpu(struct message *message);

/* What came could not be handed to the GPU: keeps why in the thread's error text. Under the
 * fabric's lock, when the message is done. */
MUSTER_CHECKED muster_status muster_message_check_gpu(const struct message *message);

/* A local step. MUSTER_FATAL: no memory, or CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_operation_step_gpu(const struct muster_operation *operation,
                                                       const struct muster_step *step);

#endif
