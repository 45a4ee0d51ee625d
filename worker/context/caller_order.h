/*
 * The order of ranks in a context: its callers number the ranks as they like, while topologies,
 * plans and schedules count them so that those of a host follow each other. Where both are the
 * same, which is so in every session with a service, nothing here does any work.
 *
 * Everything that a caller gives or reads is in the caller's order: the rank, roots, blocks,
 * counts, what members compare, and texts. Only plans and schedules are in the order of the
 * topology. A schedule is rewritten for the caller's buffers (collectives/schedule/block_moves.h);
 * a buffer for which that cannot be done is copied, in local_work.c.
 *
 * Private to the context. May use: collectives, base.
 */
#ifndef MUSTER_WORKER_CONTEXT_CALLER_ORDER_H
#define MUSTER_WORKER_CONTEXT_CALLER_ORDER_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/schedule/block_moves.h"

/* Of a context. All NULL: both orders are the same. */
struct muster_caller_order {
    uint32_t ranks;
    uint32_t *callers;        /* owned: the caller's rank of each rank of the topology */
    uint32_t *topology_ranks; /* owned: the inverse */
    uint32_t *peers;          /* owned: the global rank of each caller's rank */
};

/* callers may be NULL: both orders are the same. peers: the global rank of each rank of the
 * topology. MUSTER_INVALID: not each rank stands once in `callers`; MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_caller_order_init(uint32_t ranks, const uint32_t *callers,
                                                      const uint32_t *peers,
                                                      struct muster_caller_order *ret_order);

/* Accepts zeroed storage. */
void muster_caller_order_finish(struct muster_caller_order *order);

/* The caller's rank of a rank of the topology. */
uint32_t muster_caller_order_rank(const struct muster_caller_order *order, uint32_t topology_rank);

/* Of one operation. Zeroed: nothing is to be translated. */
struct muster_operation_order {
    uint64_t *input_bounds, *output_bounds; /* owned: the plan's; NULL: the caller's */
    /* Blocks that lie elsewhere in the caller's buffer. Once there is a schedule: of the buffers
     * that have to be copied. */
    struct muster_block_moves input, output;
};

/* shape: in the caller's order. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_operation_order_init(const struct muster_caller_order *order,
                                                         const struct muster_shape *shape,
                                                         struct muster_operation_order *ret_order);
void muster_operation_order_finish(struct muster_operation_order *order);

/* Whether a buffer has to be copied. */
bool muster_operation_order_copies(const struct muster_operation_order *order);

/* Translates rank, root and bounds of a plan from the caller's order. The plan borrows the bounds
 * from both. A pairwise_exchange stays: its partners are defined by the caller's ranks. */
void muster_caller_order_plan(const struct muster_caller_order *order,
                              const struct muster_operation_order *operation,
                              struct muster_plan *plan);

/* The global ranks of the ranks in the plan's schedule. in_order: where both orders are the same.
 */
const uint32_t *muster_caller_order_peers(const struct muster_caller_order *order,
                                          const struct muster_plan *plan, const uint32_t *in_order);

/* Generates a schedule for the caller's buffers. Afterwards `order` has the moves of the buffers
 * that have to be copied. Errors are those of muster_schedule_generate(). */
MUSTER_CHECKED muster_status muster_caller_order_schedule(size_t algorithm,
                                                          const struct muster_plan *plan,
                                                          struct muster_operation_order *order,
                                                          struct muster_schedule *ret_schedule);

#endif
