/*
 * The executor: runs any schedule over any links and any memory. The only place that sees
 * schedules, links and buffers together.
 *
 * An operation is made once per cached schedule: it holds one transfer for each message of the
 * schedule, so that running it allocates nothing.
 */
#ifndef MUSTER_WORKER_EXECUTOR_EXECUTOR_H
#define MUSTER_WORKER_EXECUTOR_EXECUTOR_H

#include "collectives/reduce/reduce.h"
#include "collectives/schedule/schedule.h"
#include "worker/fabric/fabric.h"

struct muster_operation;

/* Takes the schedule (also on failure). ranks[i] is the global rank of the schedule's rank i;
 * borrowed for the operation's life. */
MUSTER_CHECKED muster_status muster_operation_create(struct muster_schedule *schedule,
                                                     const uint32_t *ranks,
                                                     struct muster_operation **ret_operation);
void muster_operation_destroy(struct muster_operation *operation);

/* What one run binds to the schedule. */
struct muster_binding {
    struct muster_fabric *fabric;
    uint64_t generation;
    uint32_t context;
    uint64_t sequence;
    struct muster_call call;                  /* compared with the peers' */
    const struct muster_reduction *reduction; /* borrowed; NULL where nothing is reduced */
    const void *in;
    void *out;
    void *scratch; /* at least the schedule's scratch_count elements */
    /* Of in and out: the allocation, if they are memory of a GPU, which the links to all peers must
     * be able to read (muster_operation_reads_gpu()); NULL: memory of the host. Borrowed. */
    const struct muster_gpu_memory *in_gpu, *out_gpu;
    int64_t deadline_ns;
};

/* Whether buffers of the operation may be memory of a GPU for now. */
bool muster_operation_reads_gpu(const struct muster_operation *operation,
                                struct muster_fabric *fabric, uint64_t generation);

/* Blocks until this rank's part is done. MUSTER_RETRY: the deadline has passed; MUSTER_INVALID: the
 * members disagree (all peers have been told); MUSTER_REJOIN. In all cases no transfer is left
 * posted. ret_suspect: as in muster_context_run(). */
MUSTER_CHECKED muster_status muster_operation_run(struct muster_operation *operation,
                                                  const struct muster_binding *binding,
                                                  uint32_t *ret_suspect);

/* Tells members (global ranks) why the operation failed here, and waits a moment until that has
 * left: nothing moves while nobody waits. muster_last_error() stays as it is. */
void muster_binding_abort(const struct muster_binding *binding, const uint32_t *ranks, size_t count,
                          const char *reason);

#endif
