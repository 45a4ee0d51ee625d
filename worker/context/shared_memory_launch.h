/*
 * Runs operations of a context in the memory that its ranks share.
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

/* Runs an operation in the memory. With method 0 it only announces there that this operation runs
 * by messages. Statuses are those of muster_operation_run(); if the members disagree, all of them
 * are sent an abort. */
MUSTER_CHECKED muster_status muster_context_memory_run(const struct muster_context_memory *shared,
                                                       const struct muster_launch *launch,
                                                       unsigned method, uint32_t *ret_suspect);

#endif
