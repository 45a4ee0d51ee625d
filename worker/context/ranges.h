/* Calls on several ranges as one buffer. */
#ifndef MUSTER_WORKER_CONTEXT_RANGES_H
#define MUSTER_WORKER_CONTEXT_RANGES_H

#include "collectives/call/request_ranges.h"

/* muster_request_bind_ranges() for ranges of host memory. MUSTER_INVALID: a range is memory of a
 * device, besides the other reasons. */
MUSTER_CHECKED muster_status muster_context_bind_ranges(const struct muster_request *request,
                                                        struct muster_bound_ranges *bound,
                                                        struct muster_request *ret_request);

#endif
