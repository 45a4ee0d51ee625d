/*
 * Who measures with whom. Neighbours measure what is between them: ranks 0 and 1 of a host, 2 and
 * 3, and so on; likewise neighbouring hosts of a rack, and neighbouring racks. Of many pairs only a
 * few are taken, spread evenly, so that the work does not grow with the job. Pure: all ranks know
 * alike who does what.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_PAIRS_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_PAIRS_H

#include "collectives/select/cost.h"

/* At each level first pairs that have what they share to themselves, then all that share it. */
enum muster_measure_stage {
    MUSTER_MEASURE_ALONE = 0,
    MUSTER_MEASURE_SHARED = 1,
};
enum { MUSTER_MEASURE_STAGES = 2 };

/* One rank's part in a stage. */
struct muster_measure_part {
    bool present;
    uint32_t peer;
    uint32_t streams; /* that go through what is shared, each way; host: both ways together */
};

struct muster_measure_pairs {
    const struct muster_topology *topology; /* borrowed */
    /* For each host the one it measures with in this stage (itself: its ranks among themselves), or
     * UINT32_MAX. Owned. */
    uint32_t *partners[MUSTER_LEVEL_COUNT][MUSTER_MEASURE_STAGES];
    uint32_t streams_max[MUSTER_LEVEL_COUNT]; /* between two partners */
};

/* The levels that links between these ranks have, as bits 1 << enum muster_link_level. */
unsigned muster_measure_levels(const struct muster_topology *topology);

/* `core` says who shares cores: where ranks do, few are to be busy at once. MUSTER_FATAL: no
 * memory. */
MUSTER_CHECKED muster_status muster_measure_pairs_init(const struct muster_topology *topology,
                                                       const struct muster_core_figures *core,
                                                       struct muster_measure_pairs *ret_pairs);
void muster_measure_pairs_finish(struct muster_measure_pairs *pairs);

struct muster_measure_part muster_measure_part(const struct muster_measure_pairs *pairs,
                                               uint32_t rank, enum muster_link_level level,
                                               enum muster_measure_stage stage);

/* How many ranks have a part in a stage. */
uint32_t muster_measure_busy(const struct muster_measure_pairs *pairs, enum muster_link_level level,
                             enum muster_measure_stage stage);

/* True for rank 0, and for those that have a part in some stage. */
bool muster_measure_takes_part(const struct muster_measure_pairs *pairs, uint32_t rank);

/* True if the rank is to measure what a core can do. */
bool muster_measure_tries_core(const struct muster_measure_pairs *pairs, uint32_t rank);

#endif
