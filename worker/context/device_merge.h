/*
 * An allreduce of several buffers of one rank that are all in one memory of a device which reduces
 * itself: they are reduced there to one before the call, which is then one in place, and copied
 * from that one after the call. So only one of them goes through the host.
 *
 * Where the result would have other bits than if the CPU had reduced the buffers, nothing is
 * merged: with a factor before the reduction, and for sums and products of more than two 16-bit
 * floats, which the CPU rounds once only.
 *
 * Private to the context. May use: device, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_DEVICE_MERGE_H
#define MUSTER_WORKER_CONTEXT_DEVICE_MERGE_H

#include "collectives/call/request.h"
#include "worker/device/device.h"

struct muster_device_merge {
    const struct muster_request *original; /* borrowed */
    struct muster_request request;         /* what is to be launched */
    bool merged;                           /* else that is the original */
};

/* Reduces the buffers, if they are such. Only the shared part of `launch` is read. MUSTER_FATAL:
 * the device's name of the error. */
MUSTER_CHECKED muster_status muster_device_merge_begin(struct muster_device_merge *merge,
                                                       const struct muster_request *request,
                                                       const struct muster_launch *launch,
                                                       struct muster_timeline *timeline);

/* The call has succeeded. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_device_merge_end(const struct muster_device_merge *merge);

#endif
