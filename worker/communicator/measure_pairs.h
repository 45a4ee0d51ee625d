/*
 * Which pairs of ranks measure links. Neighbours measure the link between them: ranks 0 and 1 of a
 * host, 2 and 3, and so on; likewise neighbouring hosts of a rack, and neighbouring racks. Of many
 * pairs only a few are selected, spread evenly, so that the work does not grow with the job. Pure:
 * all ranks compute the same.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_PAIRS_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_PAIRS_H

#include "collectives/select/cost.h"

/* The stages at each level: first pairs that share no resource, then all pairs that share one
 * (measure.h). */
enum muster_measure_stage {
    MUSTER_MEASURE_ALONE = 0,
    MUSTER_MEASURE_SHARED = 1,
};
enum { MUSTER_MEASURE_STAGES = 2 };

/* What one rank does in a stage. */
struct muster_measure_role {
    bool active; /* false: it does nothing, and the other fields are unset */
    uint32_t peer;
    uint32_t streams; /* through the shared resource, each way; within a host, both ways together */
};

struct muster_measure_pairs {
    const struct muster_topology *topology; /* borrowed */
    /* For each host the one that it measures with in this stage, or UINT32_MAX; the host itself
     * when its ranks measure with each other. Owned. */
    uint32_t *partners[MUSTER_LEVEL_COUNT][MUSTER_MEASURE_STAGES];
    uint32_t streams_max[MUSTER_LEVEL_COUNT]; /* between two partners */
};

/* The levels of the links between these ranks, as bits 1 << enum muster_link_level. */
unsigned muster_measure_levels(const struct muster_topology *topology);

/* Where ranks share cores (`core`), few measure at once. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_measure_pairs_init(const struct muster_topology *topology,
                                                       const struct muster_core_figures *core,
                                                       struct muster_measure_pairs *ret_pairs);
void muster_measure_pairs_finish(struct muster_measure_pairs *pairs);

struct muster_measure_role muster_measure_role(const struct muster_measure_pairs *pairs,
                                               uint32_t rank, enum muster_link_level level,
                                               enum muster_measure_stage stage);

/* The number of ranks that are active in a stage. */
uint32_t muster_measure_count_active(const struct muster_measure_pairs *pairs,
                                     enum muster_link_level level, enum muster_measure_stage stage);

/* True for rank 0, and for ranks that are active in some stage. */
bool muster_measure_has_role(const struct muster_measure_pairs *pairs, uint32_t rank);

/* True if the rank measures what a core can do. */
bool muster_measure_measures_core(const struct muster_measure_pairs *pairs, uint32_t rank);

#endif
