/*
 * What a member does alone, before and after the schedule of a call: it scales its input and
 * reduces its buffers to one, and at the end divides, scales and copies what came out.
 *
 * Private to the context. May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_LOCAL_WORK_H
#define MUSTER_WORKER_CONTEXT_LOCAL_WORK_H

#include "worker/context/request.h"

struct muster_local_work {
    const struct muster_request *request; /* borrowed */
    struct muster_reduction reduction;
    uint64_t input_count, output_count; /* elements of one buffer of this member */
    uint64_t contributions;             /* of all members */
    uint64_t scratch_bytes;             /* that muster_local_begin() needs */
    bool gathers;                       /* there is something to do before */
};

/* The request has been checked, and this is what it asks for. */
void muster_local_plan(const struct muster_request *request, const struct muster_shape *shape,
                       struct muster_local_work *ret_work);

/* Returns what the schedule is to take for INPUT. scratch is work->scratch_bytes long. */
const void *muster_local_begin(const struct muster_local_work *work, void *scratch);

/* Makes the results of what the schedule has left in OUTPUT. */
void muster_local_end(const struct muster_local_work *work);

#endif
