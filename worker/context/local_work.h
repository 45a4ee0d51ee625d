/*
 * What a rank does alone, before and after the operation of a call: it scales its input and
 * reduces its several buffers to one; at the end it averages, scales and copies the result to its
 * further buffers. Buffers whose blocks the schedule needs in another order are copied.
 *
 * Private to the context. May use: caller_order.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_LOCAL_WORK_H
#define MUSTER_WORKER_CONTEXT_LOCAL_WORK_H

#include "collectives/call/request.h"
#include "worker/context/caller_order.h"

/* How the request reduces. */
struct muster_reduction muster_local_reduction(const struct muster_request *request);

/* Scratch that muster_local_begin() needs. Here and below, only the shared part and the
 * reduction count of `launch` are read. */
uint64_t muster_local_scratch_bytes(const struct muster_request *request,
                                    const struct muster_operation_order *order,
                                    const struct muster_launch *launch);

/* Fills the buffers that the operation uses as INPUT and OUTPUT, and their ranges. */
void muster_local_begin(const struct muster_request *request,
                        const struct muster_operation_order *order, void *scratch,
                        struct muster_launch *launch);

/* Computes the results from what the operation has left in OUTPUT. Always MUSTER_OK. */
MUSTER_CHECKED muster_status muster_local_end(const struct muster_request *request,
                                              const struct muster_operation_order *order,
                                              const struct muster_launch *launch);

#endif
