/*
 * Calls on several ranges: from the caller's ranges to a request on one buffer, whose bytes lie in
 * lists of ranges. Pure, but for the memory of the lists.
 */
#ifndef MUSTER_COLLECTIVES_CALL_REQUEST_RANGES_H
#define MUSTER_COLLECTIVES_CALL_REQUEST_RANGES_H

#include "collectives/call/request.h"

/* The caller's ranges, borrowed until the call returns. A broadcast has only outs. */
struct muster_given_ranges {
    const muster_range *ins, *outs;
    size_t in_count, out_count;
};

/* The lists of one call. Zeroed: none. Kept from call to call, for their memory. */
struct muster_bound_ranges {
    struct muster_range_list in, out;
};

void muster_bound_ranges_finish(struct muster_bound_ranges *bound);

/* Fills the lists from request->ranges, and ret_request with the request on one buffer: its count,
 * in and out, and in_ranges and out_ranges, which are borrowed from the lists. A side whose ranges
 * follow each other in memory is an ordinary buffer. MUSTER_INVALID names the range that is wrong,
 * or both totals if they differ. */
MUSTER_CHECKED muster_status muster_request_bind_ranges(const struct muster_request *request,
                                                        struct muster_bound_ranges *bound,
                                                        struct muster_request *ret_request);

/* The lists have moved from one record to another: makes the request borrow them there. */
void muster_request_move_ranges(struct muster_request *request, struct muster_bound_ranges *from,
                                struct muster_bound_ranges *to);

#endif
