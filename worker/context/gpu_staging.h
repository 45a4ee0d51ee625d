/*
 * Calls on memory of a GPU, which the CPU must not touch. Two ways:
 *
 *   direct  The links read it themselves (RDMA), and the executor copies what comes into it. For
 *           calls by messages, with one input that is not scaled, when all links of the operation
 *           are open.
 *   staged  Memory of the host stands in for it, into which the input is copied before the call,
 *           and out of which the output is copied after it. For all others.
 *
 * That is this member's own affair: how the algorithm is chosen, and what goes to the others, is
 * the same either way, and the same as for memory of the host.
 *
 * Private to the context. May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_GPU_STAGING_H
#define MUSTER_WORKER_CONTEXT_GPU_STAGING_H

#include "worker/context/local_work.h"
#include "worker/context/request.h"
#include "worker/device/cuda/gpu.h"

struct muster_timeline;

/* The buffers of a direct call: which are memory of a GPU. */
struct muster_direct {
    bool in_there, out_there;
    struct muster_gpu_memory in, out;
};

/* Memory that stands in; kept from call to call. */
struct muster_staging {
    char *memory; /* free() it */
    uint64_t size_bytes;
};

/* An input and an output buffer, and where in the staging memory those are that are a GPU's. */
struct muster_staged {
    bool in_there, out_there;
    struct muster_gpu_memory in_memory, out_memory;
    uint64_t in_at, out_at;
};

/* One call. */
struct muster_staged_call {
    struct muster_request request;      /* as it is to be run */
    const struct muster_request *asked; /* as the caller made it; borrowed */
    struct muster_timeline *timeline;   /* borrowed; or NULL */
    uint64_t in_bytes, out_bytes;       /* of each buffer */
    bool brings_output; /* what is there before the call matters: a broadcast's root */
    uint32_t count;     /* pairs */
    struct muster_staged pairs[MUSTER_BUFFERS_MAX];
    const void *inputs[MUSTER_BUFFERS_MAX];
    void *outputs[MUSTER_BUFFERS_MAX];
};

/* Whether any of a request's buffers is memory of a GPU. */
bool muster_request_is_of_gpu(const struct muster_request *request);

/* Of a request with one input; waits for what programs have put on the default stream.
 * MUSTER_FATAL: CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_direct_begin(struct muster_direct *ret_direct,
                                                 const struct muster_request *request);

/* muster_local_end() for an output in memory of a GPU: block by block, in memory of the host.
 * MUSTER_FATAL: as below. */
MUSTER_CHECKED muster_status muster_direct_end(const struct muster_direct *direct,
                                               const struct muster_local_work *work,
                                               struct muster_staging *staging);

/* Fills `call` and copies the input. MUSTER_FATAL: no memory, or CUDA's name of the error. */
MUSTER_CHECKED muster_status muster_staged_call_begin(struct muster_staged_call *call,
                                                      struct muster_staging *staging,
                                                      struct muster_timeline *timeline,
                                                      const struct muster_request *request,
                                                      const struct muster_shape *shape);
/* It went well: copies the output to where the caller has it. MUSTER_FATAL likewise. */
MUSTER_CHECKED muster_status muster_staged_call_end(const struct muster_staged_call *call);

#endif
