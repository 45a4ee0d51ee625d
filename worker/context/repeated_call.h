/*
 * A small call that is the one before once more, on the same buffers: a barrier, or a loss that is
 * added up after each step. It was checked, and its launch was made, when it was called before, so
 * that only the exchange is left. That is half of the time of a call in shared memory.
 *
 * Private to the context. Threads: the caller that has the turn.
 */
#ifndef MUSTER_WORKER_CONTEXT_REPEATED_CALL_H
#define MUSTER_WORKER_CONTEXT_REPEATED_CALL_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/call/request.h"

struct muster_cached_operation;
struct muster_context;

/* Zeroed: there is none. */
struct muster_repeated_call {
    const struct muster_cached_operation *cached; /* borrowed; NULL: there is none */
    struct muster_request request;
    char algorithm[MUSTER_ALGORITHM_NAME_SIZE]; /* the request's; the caller's text may change */
    struct muster_launch launch;
};

/* A call has succeeded: the next one may repeat it, if it is one group step or runs by messages
 * alone, on small buffers in memory of the host, with nothing to do before or after it. */
void muster_repeated_call_note(struct muster_context *context, const struct muster_request *request,
                               const struct muster_cached_operation *cached,
                               const struct muster_launch *launch);

#endif
