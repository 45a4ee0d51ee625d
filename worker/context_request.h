/*
 * Checks what a caller asks of a context, before anything is sent: ranges, sizes that overflow,
 * missing buffers, buffers that overlap other than in place.
 *
 * Private to the context. May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_REQUEST_H
#define MUSTER_WORKER_CONTEXT_REQUEST_H

#include "worker/context.h"

/* rank and size are the caller's in the context. MUSTER_INVALID names the argument. */
MUSTER_CHECKED muster_status muster_request_check(const struct muster_request *request,
                                                  uint32_t rank, uint32_t size);

/* What of the request the members must agree on: members that the collective has no use for are
 * 0. */
struct muster_call muster_request_call(const struct muster_request *request, size_t algorithm);

/* What its buffers hold on this rank. Members that the collective has no use for are 0. */
struct muster_shape muster_request_shape(const struct muster_request *request, uint32_t rank,
                                         uint32_t size);

#endif
