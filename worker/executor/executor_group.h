/*
 * Group steps of operations: a device performs them for the ranks of a group.
 *
 * May use: device, fabric, executor.h, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_GROUP_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_GROUP_H

#include "worker/executor/executor.h"

struct muster_device;

/* A group of ranks for which a device performs group steps. */
struct muster_operation_group {
    const struct muster_device *device;
    void *state;                  /* of this rank, for the device; NULL: there is no group */
    bool buffers;                 /* all ranks can read the buffers of all */
    struct muster_fabric *fabric; /* borrowed */
    const uint32_t *ranks;        /* global; borrowed */
};

/* The device performs one group step, which is the whole operation. Blocks; statuses are those of
 * muster_operation_run(); if the members disagree, all of them are sent an abort. */
MUSTER_CHECKED muster_status muster_operation_group_run(const struct muster_operation_group *group,
                                                        const struct muster_launch *launch,
                                                        unsigned method, uint32_t *ret_suspect);

/* Announces an operation that runs by messages to the group. Statuses as above. */
MUSTER_CHECKED muster_status
muster_operation_group_announce(const struct muster_operation_group *group,
                                const struct muster_launch *launch, uint32_t *ret_suspect);

#endif
