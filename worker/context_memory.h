/*
 * A context whose ranks share memory: how they come to it, and how its operations are done there.
 *
 * Private to the context. May use: device, executor.h, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_MEMORY_H
#define MUSTER_WORKER_CONTEXT_MEMORY_H

#include "worker/context.h"
#include "worker/device/memory.h"
#include "worker/executor.h"

/* Where members meet. */
struct muster_context_meeting {
    struct muster_context *context;
    struct muster_fabric *fabric; /* the context's own, as all that follows */
    uint64_t generation;
    uint32_t number;
    int64_t deadline_ns;
    uint32_t *ret_suspect;
};

/* The number of the last operation of the context. For muster_context_memory_meet(). */
uint64_t muster_context_sequence(const struct muster_context *context);

/* The memory of a context. */
struct muster_context_memory {
    struct muster_memory *memory; /* NULL: there is none */
    struct muster_memory_reach reach;
    const uint32_t *ranks; /* of the context, global; borrowed */
};

/* Rank 0 makes memory and hands it to the others; collective. All get it, or none: then
 * ret_shared->memory is NULL. The statuses of muster_context_run(). */
MUSTER_CHECKED muster_status muster_context_memory_meet(
    const struct muster_context_meeting *meeting, const struct muster_memory_options *options,
    struct muster_context_memory *ret_shared);

/* An operation in it; or, with method 0, only the word that it is done elsewhere. The statuses of
 * muster_operation_run(): where the members disagree, all have been told. */
MUSTER_CHECKED muster_status muster_context_memory_run(const struct muster_context_memory *shared,
                                                       const struct muster_binding *binding,
                                                       const struct muster_shape *shape,
                                                       unsigned method, uint32_t *ret_suspect);

#endif
