/* A plan: one call on one rank, as a generator gets it. */
#ifndef MUSTER_COLLECTIVES_CALL_CALL_PLAN_H
#define MUSTER_COLLECTIVES_CALL_CALL_PLAN_H

#include "collectives/call/shape.h"
#include "collectives/call/topology.h"

/* What the steps of a group cost that is not in the memory of the host: so long for a step, and the
 * rate of its larger buffer. A rate of 0: the device has no such steps. */
struct muster_group_prices {
    double fixed_us[MUSTER_COLLECTIVE_END];
    double GBps[MUSTER_COLLECTIVE_END];
    /* Of memory that is not the host's: what other algorithms cost beside their own time, as the
     * data is brought to the host and back; at the rate of the larger buffer. */
    double staging_us, staging_GBps;
};

/* The group of the ranks of each host: the memory that they share, or another device's. */
struct muster_memory_reach {
    uint64_t staging_bytes; /* of each rank's staging area, which all others can read */
    bool buffers;           /* each rank can read the others' own buffers, too */
    bool spoils_input;      /* no steps of calls that keep their input are possible */
    bool priced;            /* by these, not by what the cost model knows of the host's memory: */
    struct muster_group_prices prices;
};

struct muster_plan {
    enum muster_collective collective;
    const struct muster_topology *topology; /* borrowed */
    uint32_t rank;
    uint32_t root; /* this and the next four as in muster_shape */
    uint64_t count;
    const uint64_t *input_bounds;    /* borrowed, or NULL */
    const uint64_t *output_bounds;   /* borrowed, or NULL */
    const uint32_t *reduction_order; /* borrowed, or NULL */
    /* INPUT and OUTPUT share memory. It matters in alltoall(v) and pairwise_exchange, which then
     * need scratch for a copy, and where the input is kept; else a schedule is right either way. */
    bool in_place;
    /* Promises that the schedules make; the same on all ranks. */
    bool keep_input;      /* collectives/schedule/keep_input.h; out of place it costs nothing */
    bool finish_together; /* no rank finishes before all have started */
    const struct muster_memory_reach *memory; /* borrowed; NULL: ranks share no memory */
    /* The call's data is in memory of a device that performs group steps of all ranks: what they
     * cost. Borrowed; NULL: it is not. */
    const struct muster_group_prices *device;
    uint32_t variant; /* of the algorithm, if it has variants; set by muster_schedule_generate() and
                         its like, from the algorithm's number */
};

/* The shape of the plan's call. Of a pairwise_exchange it depends on the variant:
 * muster_algorithm_shape() finds it. */
struct muster_shape muster_plan_shape(const struct muster_plan *plan);

#endif
