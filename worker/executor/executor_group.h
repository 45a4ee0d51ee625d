/*
 * Group steps of operations: a device performs them for the ranks of a group.
 *
 * May use: device, fabric, executor.h, collectives, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_GROUP_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_GROUP_H

#include <sys/queue.h>

#include "worker/base/status.h"
#include "worker/device/devices.h"
#include "worker/executor/executor.h"

TAILQ_HEAD(muster_operation_list, muster_operation);

/* Where operations in flight perform their group steps, on several hosts (executor_channels.h). */
struct muster_group_channels {
    uint32_t count;
    struct muster_group_channel {
        void *state;                             /* of this rank, for the device; or NULL */
        uint64_t started;                        /* the last operation that has begun here */
        uint64_t left;                           /* as the other ranks have been told */
        struct muster_operation_list operations; /* that have group steps to perform */
    } items[MUSTER_GROUP_CHANNELS];
};

/* states: [count] */
void muster_group_channels_init(struct muster_group_channels *channels, void *const *states,
                                uint32_t count);

/* Whose turn it is among the operations in flight of one rank in one group (executor_turns.h). */
struct muster_group_turns {
    uint64_t next;        /* the number of that operation, from 1 */
    uint64_t ended_from;  /* operations from this number on fail; 0: none */
    muster_status status; /* theirs, with its text */
    char text[MUSTER_ERROR_MAX];
    int64_t check_ns; /* when liveness is checked next */
};

/* A group of ranks for which a device performs group steps. */
struct muster_operation_group {
    const struct muster_device *device;
    void *state;                  /* of this rank, for the device; NULL: there is no group */
    bool buffers;                 /* all ranks can read the buffers of all */
    struct muster_fabric *fabric; /* borrowed */
    const uint32_t *ranks;        /* global; borrowed */
    /* Of a group for operations in flight, whose steps are polled: on one host they take turns, on
     * several they use channels, and `state` is not used; borrowed. Both NULL: its operations
     * block. */
    struct muster_group_turns *turns;
    struct muster_group_channels *channels;
};

/* The device performs one group step, which is the whole operation. Blocks; statuses are those of
 * muster_operation_run(); if the members disagree, all of them are sent an abort. */
MUSTER_CHECKED muster_status muster_operation_group_run(const struct muster_operation_group *group,
                                                        const struct muster_launch *launch,
                                                        unsigned method, uint32_t *ret_suspect);

/* MUSTER_REJOIN: the fabric has lost a rank of the group. */
MUSTER_CHECKED muster_status
muster_operation_group_check(const struct muster_operation_group *group,
                             const struct muster_launch *launch, uint32_t *ret_suspect);

/* The members disagree, and muster_last_error() says how: sends all of them an abort, because ranks
 * that run another collective by messages do not look at the group. */
void muster_operation_group_abort(const struct muster_operation_group *group,
                                  const struct muster_launch *launch);

/* Announces an operation that runs by messages to the group. Statuses as above. */
MUSTER_CHECKED muster_status
muster_operation_group_announce(const struct muster_operation_group *group,
                                const struct muster_launch *launch, uint32_t *ret_suspect);

#endif
