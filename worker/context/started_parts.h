/* A call in flight from within. Private to started_calls.c, started_operation.c and
 * started_device.c. */
#ifndef MUSTER_WORKER_CONTEXT_STARTED_PARTS_H
#define MUSTER_WORKER_CONTEXT_STARTED_PARTS_H

#include "worker/base/status.h"
#include "worker/context/buffer_counts.h"
#include "worker/context/context_parts.h"

struct muster_started_call {
    struct muster_in_flight in_flight;
    struct muster_context *context;
    struct muster_message_request *message; /* owned: of point to point; NULL: a collective */
    struct muster_cached_operation own;     /* the key, too; of the links of a cache none is used */
    struct muster_scratch scratch;
    struct muster_request request; /* of this launch, with lists of its own */
    const void **inputs;           /* [list_size] */
    void **outputs;
    uint32_t list_size;
    struct muster_call_ranges ranges;  /* of the request */
    struct muster_device_call *device; /* owned: of a request with memory of a device; or NULL */
    struct muster_device_room staging; /* of that */
    struct muster_operation *counting; /* owned: of an average over lists of buffers; or NULL */
    uint64_t counts[MUSTER_BUFFER_COUNTS_SIZE]; /* of that */
    bool on_device;                             /* this launch has such memory */
    int64_t started_ns;                         /* for the timeline */
    uint64_t figures;                           /* when its algorithm was chosen */
    bool persistent;                            /* stays with its owner between its starts */
    bool detached;
    char refused_text[MUSTER_ERROR_MAX]; /* the ranks disagreed on it; of the failure mutex */
    TAILQ_ENTRY(muster_started_call) order;
};

/* started_operation.c: a call with the operation of the key in context->started, found among those
 * that are kept or made. Its request is not set. With the mutex held. */
MUSTER_CHECKED muster_status muster_started_call_find(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      struct muster_started_call **ret_call);

/* started_device.c: fills the launch. The request is staged where its buffers are memory of a
 * device: then this copies the input. */
MUSTER_CHECKED muster_status muster_started_call_prepare(struct muster_started_call *call,
                                                         struct muster_launch *ret_launch);
/* The launch has ended, with whatever status, or does not begin: its stream goes on. */
void muster_started_call_release(struct muster_started_call *call);
/* The operation has succeeded: computes the results, and copies them to memory of a device. */
MUSTER_CHECKED muster_status muster_started_call_complete(struct muster_started_call *call,
                                                          const struct muster_launch *launch);

#endif
