/*
 * Buffers of a call that are memory of a GPU, which the CPU must not touch. There are two ways:
 *
 *   direct  The links read the GPU's memory (RDMA), and the executor copies what arrives into it.
 * For calls by messages with one input that is not scaled, once all links of the operation are
 * open. staged  Memory of the host takes the place of the GPU's: the input is copied to it before
 * the call, and the output is copied back after it. For all other calls.
 *
 * Each rank chooses by itself: the algorithm and the messages are the same either way, and the same
 * as for memory of the host.
 *
 * Private to the context. May use: device/cuda, collectives, trace, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_GPU_STAGING_H
#define MUSTER_WORKER_CONTEXT_GPU_STAGING_H

#include "collectives/call/request.h"
#include "worker/device/cuda/gpu.h"

struct muster_timeline;

/* Memory of the host for staged calls; it stays from call to call. */
struct muster_staging {
    char *memory; /* free() it */
    uint64_t size_bytes;
};

/* An input and an output buffer: which are memory of a GPU, and their offsets in the staging
 * memory. */
struct muster_gpu_pair {
    bool in_on_gpu, out_on_gpu;
    struct muster_gpu_memory in_memory, out_memory;
    uint64_t in_offset, out_offset;
};

/* One call. */
struct muster_gpu_call {
    struct muster_request request;         /* as it is to be launched */
    const struct muster_request *original; /* as the caller made it; borrowed */
    bool direct;                           /* else staged */
    struct muster_timeline *timeline;      /* borrowed; or NULL */
    uint64_t in_bytes, out_bytes;          /* of each buffer */
    bool output_is_input;                  /* on the root of a broadcast */
    uint32_t count;                        /* pairs; 1 in a direct call */
    struct muster_gpu_pair pairs[MUSTER_BUFFERS_MAX];
    const void *inputs[MUSTER_BUFFERS_MAX];
    void *outputs[MUSTER_BUFFERS_MAX];
};

/* Whether any buffer of the request is memory of a GPU. */
bool muster_request_is_of_gpu(const struct muster_request *request);

/* Fills the rest of `call`, of which `direct` and `timeline` are set. A direct one waits for what
 * the program has put on the default stream; of a staged one the input is copied. Of launch the
 * shared part counts. MUSTER_FATAL: no memory, or CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_gpu_call_begin(struct muster_gpu_call *call,
                                                   struct muster_staging *staging,
                                                   const struct muster_request *request,
                                                   const struct muster_launch *launch);

/* In place of muster_local_end() where launch->out_gpu is set: finishes the output in memory of a
 * GPU, block by block, in memory of the host. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_gpu_call_finish(const struct muster_launch *launch,
                                                    struct muster_staging *staging);

/* The call has succeeded: copies the output of a staged one to the caller's buffers. MUSTER_FATAL:
 * as above. */
MUSTER_CHECKED muster_status muster_gpu_call_end(const struct muster_gpu_call *call);

#endif
