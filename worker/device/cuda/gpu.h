/*
 * Memory of a GPU (CUDA), which the CPU must not touch: finds it, copies it.
 *
 * Muster neither links nor loads libcuda. A process that has memory of a GPU has loaded it, at any
 * time, so it is searched among the loaded libraries. Without it there is no memory of a GPU, and
 * to find that out takes some tens of nanoseconds.
 *
 * Memory that CUDA manages (cudaMallocManaged), and memory of the host that CUDA has pinned, counts
 * as memory of the host: the CPU may use it.
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
    void *context; /* the CUDA context in which it is used */
};

/* Whether the process can have memory of a GPU: true if libcuda is loaded. Quick. */
bool muster_gpu_may_be_there(void);

/* Finds the allocation of an address. False: it is not memory of a GPU. */
bool muster_gpu_find(const void *data, struct muster_gpu_memory *ret_memory);

/* Copies, where `to` or `from` is in this memory, and the other one anywhere. The copy comes after
 * the work on the default stream, and is complete for the CPU and for other devices on return.
 * MUSTER_FATAL: with CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_gpu_copy(const struct muster_gpu_memory *memory, void *to,
                                             const void *from, size_t size_bytes);

/* Waits for the work on the default stream of the memory's context: to be called before another
 * device reads the memory. MUSTER_FATAL: with CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_gpu_wait(const struct muster_gpu_memory *memory);

/* Exports whole pages as a dma-buf, by which another device can use them. The caller closes it; the
 * memory stays as long as the dma-buf is in use. MUSTER_INVALID: there can be none; the text says
 * why. */
MUSTER_CHECKED muster_status muster_gpu_export(const struct muster_gpu_memory *memory,
                                               const void *base, size_t size_bytes, int *ret_fd);

#endif
