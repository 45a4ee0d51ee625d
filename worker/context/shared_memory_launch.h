/*
 * A context whose ranks share memory: how its operations are done there.
 *
 * Private to the context. May use: device, executor.h, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_SHARED_MEMORY_LAUNCH_H
#define MUSTER_WORKER_CONTEXT_SHARED_MEMORY_LAUNCH_H

#include "collectives/select/host_memory.h"
#include "worker/device/host/group_memory.h"
#include "worker/executor/executor.h"

/* The memory of a context. */
struct muster_context_memory {
    struct muster_group_memory *memory; /* NULL: there is none */
    struct muster_memory_reach reach;
    struct muster_fabric *fabric; /* borrowed */
    const uint32_t *ranks;        /* of the context, global; borrowed */
};

/* An operation in it; or, with method 0, only the word that it is done elsewhere. The statuses of
 * muster_operation_run(): where the members disagree, all have been told. */
MUSTER_CHECKED muster_status muster_context_memory_run(const struct muster_context_memory *shared,
                                                       const struct muster_launch *launch,
                                                       unsigned method, uint32_t *ret_suspect);

#endif
