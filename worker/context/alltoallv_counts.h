/*
 * All members' counts in an alltoallv, for algorithms that need them (muster_plan.all_counts).
 *
 * Private to the context. May use: request.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_ALLTOALLV_COUNTS_H
#define MUSTER_WORKER_CONTEXT_ALLTOALLV_COUNTS_H

#include "worker/context/request.h"

/* Belongs to who has the turn. */
struct muster_context_counts {
    uint64_t *all;   /* owned [ranks * ranks], as in a plan; NULL: never needed so far */
    uint64_t *heard; /* owned [ranks + 1][2 * ranks]: what each has for whom, and what it expects of
                        whom; the last are this member's own words */
};

/* For who has the turn and a request that was checked last. Where its algorithm uses them the
 * members tell each other their counts, and asked->all_counts are borrowed until the next call.
 * Collective, with the statuses of muster_context_run(); MUSTER_INVALID on all members: the counts
 * of two of them do not fit. */
MUSTER_CHECKED muster_status muster_context_learn_counts(struct muster_context *context,
                                                         const struct muster_request *request,
                                                         struct muster_asked *asked,
                                                         uint32_t *ret_suspect);

/* The same without asking anybody: as if every member had the counts that this one has for others,
 * its own blocks to come included. For predictions. */
MUSTER_CHECKED muster_status muster_context_assume_counts(struct muster_context *context,
                                                          const struct muster_request *request,
                                                          struct muster_asked *asked);

#endif
