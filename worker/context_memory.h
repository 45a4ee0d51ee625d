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

/* Rank 0 makes memory and hands it to the others; collective. All get it, or none: *ret_memory is
 * NULL then. ret_reach says what they can do with it. The statuses of muster_context_run(). */
MUSTER_CHECKED muster_status muster_context_memory_meet(
    const struct muster_context_meeting *meeting, const struct muster_memory_options *options,
    struct muster_memory **ret_memory, struct muster_memory_reach *ret_reach);

/* The number of the last operation of the context. For muster_context_memory_meet(). */
uint64_t muster_context_sequence(const struct muster_context *context);

/* An operation in it; or, with method 0, only the word that it is done elsewhere. The statuses of
 * muster_operation_run(): where the members disagree, all have been told. ranks is the binding's
 * context's, [shape->ranks]. */
MUSTER_CHECKED muster_status muster_context_memory_run(struct muster_memory *memory,
                                                       const struct muster_binding *binding,
                                                       const struct muster_shape *shape,
                                                       const uint32_t *ranks, unsigned method,
                                                       uint32_t *ret_suspect);

#endif
