/*
 * Queues of a GPU: a stream of the library's own each, with an event behind each copy.
 *
 * Private to this folder.
 */
#ifndef MUSTER_WORKER_DEVICE_CUDA_CUDA_QUEUE_H
#define MUSTER_WORKER_DEVICE_CUDA_CUDA_QUEUE_H

#include "worker/device/queue.h"

/* Those of the GPU; with a libcuda that has no streams, muster_device_no_queues. */
const struct muster_queue_ops *muster_cuda_queues(void);

#endif
