/*
 * Small collectives of a context beside its calls, in a thread of their own: they have numbers of
 * their own, so that calls go on meanwhile.
 *
 * Private to the context. May use: executor, fabric, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_QUIET_EXCHANGE_H
#define MUSTER_WORKER_CONTEXT_QUIET_EXCHANGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "worker/base/status.h"
#include "worker/muster.h"

struct muster_context;

struct muster_quiet_exchange {
    struct muster_context *context;
    const atomic_bool *cancelled; /* ends exchanges of this rank, within 50 ms */
    uint64_t sequence;            /* of the last one; the same on all ranks */
};

/* An allreduce of values, in place. Blocks until all ranks have come, however long that takes.
 * MUSTER_REJOIN: a rank was lost, the generation has ended, or it is cancelled; then the context
 * has to end, too. */
MUSTER_CHECKED muster_status muster_quiet_exchange_run(struct muster_quiet_exchange *exchange,
                                                       void *values, uint64_t count,
                                                       muster_type type, muster_op op);

#endif
