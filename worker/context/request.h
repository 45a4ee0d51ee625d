/*
 * Checks what a caller asks of a context, before anything is sent: ranges, sizes that overflow,
 * missing buffers, buffers that overlap other than in place.
 *
 * Private to the context. May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_REQUEST_H
#define MUSTER_WORKER_CONTEXT_REQUEST_H

#include "worker/context/context.h"

/* What a request asks for, checked, in the words of the collectives. Members that the collective
 * has no use for are 0. */
struct muster_asked {
    struct muster_shape shape; /* its bounds are in the caller's room */
    bool in_place;             /* that the schedule must know; see muster_plan.in_place */
    bool ordered;              /* reproducible, and the order of additions matters */
};

/* Numbers of `room` that the bounds of a call take. */
#define MUSTER_BOUNDS_ROOM(size) (2 * ((size_t)(size) + 1))

/* rank and size are the caller's in the context. Puts the bounds, if any, into room
 * [MUSTER_BOUNDS_ROOM(size)]: those of the input, then those of the output. MUSTER_INVALID names
 * the argument. */
MUSTER_CHECKED muster_status muster_request_check(const struct muster_request *request,
                                                  uint32_t rank, uint32_t size, uint64_t *room,
                                                  struct muster_asked *ret_asked);

/* Sizes of a call's two buffers on this member, and where the input starts in an in-place call. */
struct muster_extents {
    uint64_t in_bytes, out_bytes;
    int64_t in_place_bytes; /* counted from the output */
};

/* Parts of muster_request_check(): the factors and the user's function; several buffers, each of
 * these extents. */
MUSTER_CHECKED muster_status muster_request_check_reduction(const struct muster_request *request);
MUSTER_CHECKED muster_status muster_request_check_several(const struct muster_request *request,
                                                          const struct muster_extents *extents);

/* The number of buffers that this member contributes, from 1 to MUSTER_BUFFERS_MAX. */
uint8_t muster_request_buffers(const struct muster_request *request);

/* How it reduces; for collectives that do. */
struct muster_reduction muster_request_reduction(const struct muster_request *request);

/* What of the request the members must agree on. */
struct muster_call muster_request_call(const struct muster_request *request,
                                       const struct muster_asked *asked, size_t algorithm);

/* What its buffers hold on this rank, if they have no counts of their own: without bounds. */
struct muster_shape muster_request_shape(const struct muster_request *request, uint32_t rank,
                                         uint32_t size);

#endif
