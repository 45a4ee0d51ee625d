/*
 * Calls on several ranges as one buffer: binds them, and stages those in memory of a device.
 *
 * Private to the context. May use: staged_ranges.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_RANGES_H
#define MUSTER_WORKER_CONTEXT_RANGES_H

#include "worker/context/staged_ranges.h"

struct muster_context;

/* The ranges of one call. Zeroed: none. Kept from call to call, for its memory. */
struct muster_call_ranges {
    struct muster_bound_ranges bound;
    struct muster_staged_ranges staged;
};

void muster_call_ranges_finish(struct muster_call_ranges *ranges);

/* muster_request_bind_ranges() for ranges of any memory. ret_request has memory of the host, and is
 * borrowed from `ranges`. Where ranges.staged is active, its input is to be fetched before the call
 * is launched, and its output stored after that. Statuses also as muster_staged_ranges_begin(). */
MUSTER_CHECKED muster_status muster_context_bind_ranges(const struct muster_context *context,
                                                        const struct muster_request *request,
                                                        struct muster_call_ranges *ranges,
                                                        struct muster_request *ret_request);

/* Moves the ranges, from which the request is borrowed; the two records change their memory. */
void muster_call_ranges_move(struct muster_request *request, struct muster_call_ranges *from,
                             struct muster_call_ranges *to);

#endif
