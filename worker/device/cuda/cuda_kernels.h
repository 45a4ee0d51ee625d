/*
 * Reductions on the GPU by the kernels in ptx.h, whose results have the same bits as those of the
 * CPU. The kernels of a type are loaded at its first use in a context, when the driver compiles
 * them for its GPU.
 *
 * Private to the folder and its tests. Any thread.
 */
#ifndef MUSTER_WORKER_DEVICE_CUDA_CUDA_KERNELS_H
#define MUSTER_WORKER_DEVICE_CUDA_CUDA_KERNELS_H

#include "worker/device/cuda/cuda_library.h"
#include "worker/device/device.h"

/* Where kernels are enqueued. The context is current. */
struct muster_cuda_stream {
    const struct muster_cuda *cuda;
    void *context;
    uintptr_t stream;
};

/* Addresses as the GPU knows them: of its memory, or of memory of the host that it can read. */
struct muster_cuda_operands {
    uint64_t target, left, right;
    uint64_t count; /* of elements */
};

/* Enqueue target = left op right, where target and left may be the same, and what
 * muster_reduction_finish() does. They do not wait. *ret_enqueued: false, with MUSTER_OK, where the
 * CPU has to do it: the type or the alignment has no kernel, or the driver does not take ours,
 * which is logged once. MUSTER_FATAL: the GPU fails, and the text names it. */
MUSTER_CHECKED muster_status muster_cuda_launch_combine(const struct muster_cuda_stream *on,
                                                        const struct muster_reduction *reduction,
                                                        const struct muster_cuda_operands *operands,
                                                        bool *ret_enqueued);
/* `target` is finished in place; the other two are not used. */
MUSTER_CHECKED muster_status muster_cuda_launch_finish(const struct muster_cuda_stream *on,
                                                       const struct muster_reduction *reduction,
                                                       const struct muster_cuda_operands *operands,
                                                       uint64_t contributions, bool *ret_enqueued);

/* The slots combine, reduces and finish of the device. */
bool muster_cuda_reduces(const struct muster_device_memory *memory,
                         const struct muster_reduction *reduction);
MUSTER_CHECKED muster_status muster_cuda_combine(const struct muster_combination *combination);
MUSTER_CHECKED muster_status muster_cuda_finish(const struct muster_device_memory *memory,
                                                const struct muster_reduction *reduction,
                                                void *data, uint64_t count, uint64_t contributions);

#endif
