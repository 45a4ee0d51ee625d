/* A plan: one call on one rank, as a generator gets it. */
#ifndef MUSTER_COLLECTIVES_CALL_CALL_PLAN_H
#define MUSTER_COLLECTIVES_CALL_CALL_PLAN_H

#include "collectives/call/shape.h"
#include "collectives/call/topology.h"

/* What the ranks of a topology share. */
struct muster_memory_reach {
    uint64_t slot_bytes; /* that each of them can lay down at a time for all others to see */
    bool buffers;        /* each can read the others' own buffers */
};

struct muster_plan {
    enum muster_collective collective;
    const struct muster_topology *topology; /* borrowed */
    uint32_t rank;
    uint32_t root; /* as in muster_shape, as all that follows */
    uint64_t count;
    const uint64_t *input_bounds;    /* borrowed, or NULL */
    const uint64_t *output_bounds;   /* borrowed, or NULL */
    const uint32_t *reduction_order; /* borrowed, or NULL */
    /* INPUT and OUTPUT start at the same element. It counts in alltoall(v) and pairwise_exchange,
     * which then need room for a copy; in all others a schedule is right either way. */
    bool in_place;
    const struct muster_memory_reach *memory; /* borrowed; NULL: they share no memory */
    uint32_t variant; /* of an algorithm that has variants: muster_schedule_generate() and its like
                         take it from the algorithm's number */
};

/* What the plan says of the call's buffers. */
struct muster_shape muster_plan_shape(const struct muster_plan *plan);

#endif
