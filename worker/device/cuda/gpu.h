/*
 * The floor: memory of a GPU (CUDA), which the CPU must not touch. Here it is found, and copied.
 *
 * Muster neither links nor loads libcuda. A process that has memory of a GPU has loaded it, and it
 * is looked for among what is loaded: where it is not, there is no such memory, and to know that
 * takes some tens of nanoseconds. It may be loaded at any time.
 *
 * Memory that CUDA manages (cudaMallocManaged) and that of the host which CUDA has pinned is
 * memory of the host here: the CPU may use it.
 *
 * Threads: any; none needs a CUDA context of its own.
 */
#ifndef MUSTER_WORKER_DEVICE_CUDA_GPU_H
#define MUSTER_WORKER_DEVICE_CUDA_GPU_H

#include "worker/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocation. */
struct muster_gpu_memory {
    uintptr_t begin, end;
    uint64_t id;   /* never used again in this process; 0: it has none */
    void *context; /* of CUDA, in which it is used */
};

/* Whether there can be any: quick, and true only where libcuda is loaded. */
bool muster_gpu_may_be_there(void);

/* False: the address is none of a GPU's. */
bool muster_gpu_find(const void *data, struct muster_gpu_memory *ret_memory);

/* One of the two is in this memory, the other one anywhere. All of it is there when this returns,
 * for the CPU and for other devices. What was put on the default stream is done before.
 * MUSTER_FATAL: with CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_gpu_copy(const struct muster_gpu_memory *memory, void *to,
                                             const void *from, size_t size_bytes);

/* Waits for what was put on the default stream of the memory's context, before another device reads
 * it. MUSTER_FATAL likewise. */
MUSTER_CHECKED muster_status muster_gpu_wait(const struct muster_gpu_memory *memory);

/* A dma-buf of these whole pages, by which another device can use them. The caller closes it; the
 * memory stays as long as it is in use. MUSTER_INVALID: there can be none, and why. */
MUSTER_CHECKED muster_status muster_gpu_export(const struct muster_gpu_memory *memory,
                                               const void *base, size_t size_bytes, int *ret_fd);

#endif
