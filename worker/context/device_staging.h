/*
 * Calls whose buffers are memory of a device, which the CPU must not touch. There are two ways:
 *
 * - Direct: the links read the device's memory (RDMA), and the device copies arriving data into
 *   it. For calls that run by messages and have one input, which is neither scaled, copied in
 *   another order nor compressed, once all links of the operation are open.
 * - Staged: the call uses pinned memory of the host in place of the device's. Where the call is
 *   large and has one input and one output that are neither scaled before, copied in another order
 *   nor compressed, the operation itself moves them piece by piece, while its messages are under
 * way (worker/executor/executor_moves.h). Else the input is copied before the call, and the output
 * is copied back after it.
 *
 * A call on a stream is staged. The stream is held until the call has ended.
 *
 * Each rank chooses by itself: the algorithm and the messages are the same either way, and the same
 * as for memory of the host.
 *
 * Private to the context. May use: device, executor.h, collectives, trace, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_DEVICE_STAGING_H
#define MUSTER_WORKER_CONTEXT_DEVICE_STAGING_H

#include "collectives/call/request.h"
#include "worker/context/device_room.h"
#include "worker/device/device.h"
#include "worker/executor/executor.h"

struct muster_timeline;

/* An input and an output buffer: which are memory of a device, and their offsets in the staging
 * memory. */
struct muster_device_pair {
    bool in_on_device, out_on_device;
    struct muster_device_memory in_memory, out_memory;
    uint64_t in_offset, out_offset;
};

/* One call. */
struct muster_device_call {
    struct muster_request request;         /* as it is to be launched */
    const struct muster_request *original; /* as the caller made it; borrowed */
    struct muster_device_room *room;       /* of a staged call; borrowed */
    bool direct;                           /* else staged */
    bool in_order;  /* of a direct call: the device itself puts it behind the program's work */
    bool in_flight; /* set: the thread that ends it must not wait for the program's streams */
    bool may_move;  /* set: the operation may move a staged call's buffers */
    bool moves;     /* it does */
    struct muster_launch_moves launch_moves;
    struct muster_timeline *timeline; /* borrowed; or NULL */
    uint64_t in_bytes, out_bytes;     /* of each buffer */
    bool output_is_input;             /* on the root of a broadcast */
    uint32_t count;                   /* pairs; 1 in a direct call */
    struct muster_device_pair pairs[MUSTER_BUFFERS_MAX];
    const void *inputs[MUSTER_BUFFERS_MAX];
    void *outputs[MUSTER_BUFFERS_MAX];
};

/* Whether any buffer of the request is memory of a device. */
bool muster_request_is_on_device(const struct muster_request *request);

/* room: for staged calls. Fills the rest of `call`, in which `direct`, `may_move` and `timeline`
 * are set. A direct call waits for the work that the program has put on the default stream; a
 * staged call copies its input, or says what the operation is to move. Only the shared part of
 * `launch` is read. MUSTER_FATAL: no memory, or the device's name of the error. */
MUSTER_CHECKED muster_status muster_device_call_begin(struct muster_device_call *call,
                                                      struct muster_device_room *room,
                                                      const struct muster_request *request,
                                                      const struct muster_launch *launch);

/* Of a call that has begun: which buffers of the launch are memory of a device, or are moved. */
void muster_device_call_bind(struct muster_device_call *call, struct muster_launch *launch);

/* In place of muster_local_end() where launch->out_memory is set: finishes the output in memory of
 * a device, there. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_device_call_finish(const struct muster_launch *launch);

/* The call has ended, or will not be launched: its stream, if there is one, goes on. */
void muster_device_call_release(struct muster_device_call *call);

/* The call has succeeded: copies the output of a staged call to the caller's buffers, unless it was
 * moved. MUSTER_FATAL: as above. */
MUSTER_CHECKED muster_status muster_device_call_end(const struct muster_device_call *call);

#endif
