/*
 * Operations in flight of ranks that share memory within hosts, on several hosts: their group steps
 * beside messages.
 *
 * The memory of a host has some channels, which know nothing of each other. The operations of a
 * context use them in turn, by their numbers, which are the same on all ranks. In a channel an
 * operation performs its group steps when those of the operations before it there are done, so all
 * ranks of a host perform them in one order, whenever their programs have started them; its
 * messages move at any time. An operation waits for no later one, so none waits in vain.
 *
 * Each rank says in every channel up to which operation it has nothing left to do there; one that
 * runs by messages only has nothing to do. A rank that waits in a group step for one that is over
 * with the operation finds that the two call differently (worker/device/host/README.md).
 *
 * Private to the executor. Threads: the one that progresses the operations. May use: executor.h,
 * device, base.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_CHANNELS_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_CHANNELS_H

#include "worker/executor/executor_group.h"
#include "worker/executor/executor_parts.h"

static inline bool muster_uses_channels(const struct muster_operation *operation)
{
    return operation->group != NULL && operation->group->channels != NULL;
}

/* The operation of a new launch begins. In the order of the launches' numbers. */
void muster_channel_enter(struct muster_operation *operation);

/* Whether the group steps of the operations before it in its channel are done. */
bool muster_channel_is_next(const struct muster_operation *operation);

/* All of its group steps are done, or it has ended; does nothing if it has left already. */
void muster_channel_leave(struct muster_operation *operation);

/* It has ended with a failure that the other ranks may not share: in no channel this rank takes
 * part in an operation that it has not started yet. */
void muster_channel_withdraw(const struct muster_operation *operation);

/* The device's group, and the number of the operation there. */
void *muster_channel_group(const struct muster_operation *operation);
uint64_t muster_channel_number(const struct muster_operation *operation);

#endif
