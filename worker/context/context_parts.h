/*
 * A context from within: what its files share.
 *
 *   shared_memory_setup.c how the members come to memory that they share
 *   context.c         members and turns; what the context is asked
 *   autotune.c  calls while it is being found out how they are done fastest
 *   gpu_staging.c     memory of a GPU, and what stands in for it
 *   launch.c    one call: choosing, finding, running
 *
 * Private to the context. May use: executor.h, collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_CONTEXT_PARTS_H
#define MUSTER_WORKER_CONTEXT_CONTEXT_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/base/status.h"
#include "worker/context/algorithm_choice.h"
#include "worker/context/cached_operations.h"
#include "worker/context/context.h"
#include "worker/context/gpu_staging.h"
#include "worker/context/request.h"
#include "worker/context/shared_memory_launch.h"

struct muster_context {
    struct muster_fabric *fabric; /* borrowed */
    uint64_t generation;
    uint32_t number;
    uint32_t rank;
    char *name;
    uint32_t *ranks;
    uint32_t *reduction_order; /* [ranks] ranks by their members' `order`: of reproducible sums */
    struct muster_topology topology;
    struct muster_choices choices;
    atomic_uint_fast64_t progress;
    atomic_bool missed; /* some call did not get its turn: no operation can run any more */

    pthread_mutex_t mutex; /* guards `taken`, `tickets` and `turn` */
    pthread_cond_t given_back;
    uint64_t tickets, turn;      /* given out; and the one whose turn it is */
    bool taken;                  /* a collective is under way; its caller owns what follows */
    uint64_t sequence;           /* of the last operation */
    struct muster_call_key *key; /* room for that of any call */
    struct muster_kept_table kept;
    bool tunes;
    struct muster_tuning tuning;
    void *scratch;
    uint64_t scratch_bytes;
    struct muster_staging staging;
    const struct muster_direct *direct;  /* of the call under way; NULL: it is on the host */
    struct muster_context_memory shared; /* by all ranks; or not */
    muster_status broken; /* why no operation can run any more; MUSTER_OK: they can */
    char broken_text[MUSTER_ERROR_MAX];
};

/* context.c. From now on they share this memory, which becomes the context's. */
void muster_context_set_shared(struct muster_context *context,
                               const struct muster_context_memory *shared);

/* All of the following are for who has the turn. First launch.c. */

/* Leaves the bounds in the key. */
MUSTER_CHECKED muster_status muster_context_check(struct muster_context *context,
                                                  const struct muster_request *request,
                                                  struct muster_asked *ret_asked);

struct muster_plan muster_context_plan(const struct muster_context *context,
                                       const struct muster_asked *asked);

/* The operation for a request that was checked last, made if it is not kept; with an algorithm of
 * its number in place of the one that the request leads to. Borrowed until the next one is looked
 * for. */
MUSTER_CHECKED muster_status muster_context_find(struct muster_context *context,
                                                 const struct muster_request *request,
                                                 const struct muster_asked *asked,
                                                 struct muster_kept **ret_kept);
MUSTER_CHECKED muster_status muster_context_find_with(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      const struct muster_asked *asked,
                                                      size_t algorithm,
                                                      struct muster_kept **ret_kept);

/* Gives it a number and runs it. flags: of the call, besides those of the request. */
MUSTER_CHECKED muster_status muster_context_run_numbered(struct muster_context *context,
                                                         const struct muster_request *request,
                                                         const struct muster_asked *asked,
                                                         const struct muster_kept *kept,
                                                         uint8_t flags, uint32_t *ret_suspect);

/* autotune.c. Runs what `tuned` was found for: with what is found there, or with what is to
 * be tried. */
MUSTER_CHECKED muster_status muster_context_run_tuned(struct muster_context *context,
                                                      const struct muster_request *request,
                                                      const struct muster_asked *asked,
                                                      struct muster_kept *kept,
                                                      uint32_t *ret_suspect);

#endif
