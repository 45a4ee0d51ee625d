/*
 * Lanes between hosts, for collectives with blocks. There are as many as the smallest host has
 * ranks. The ranks of each host are cut into as many runs, and the first of run i carries the run's
 * blocks along lane i: its piece. All pieces of a lane are its column.
 *
 * Between hosts pieces go by dissemination: in round k of an allgather the carrier on host h gives
 * the pieces of hosts h, h - 1, ... to the one on host h + 2^k, of as many as that one lacks of
 * them; a reduce_scatter goes the same way backward. Pieces that lie next to each other in the
 * buffer go in one message.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_LANES_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_LANES_H

#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/level.h"

struct muster_lanes {
    const struct muster_topology *topology; /* borrowed */
    struct muster_blocks blocks;
    uint32_t lanes;
};

/* What one rank knows of itself. */
struct muster_lane {
    const struct muster_lanes *all; /* borrowed */
    uint32_t lane, host;
    uint32_t local_rank, local_size;
    struct muster_span run; /* the ranks of the run */
    bool carries;           /* it is the first of them */
    const uint64_t *starts; /* borrowed: muster_lanes_measure() */
};

struct muster_lanes muster_lanes_of(const struct muster_topology *topology,
                                    const struct muster_blocks *blocks);

/* Where the pieces of a column begin, if they stand one after the other; the last number is their
 * end. For `starts`, which has room for one number more than there are hosts. */
void muster_lanes_measure(const struct muster_lanes *lanes, uint32_t lane, uint64_t *starts);

/* Without the starts. */
struct muster_lane muster_lane_at(const struct muster_lanes *lanes, uint32_t host,
                                  uint32_t local_rank);

/* Of this rank. MUSTER_FATAL: no memory. The caller frees ret_starts. */
MUSTER_CHECKED muster_status muster_lane_init(const struct muster_lanes *lanes, uint32_t rank,
                                              struct muster_lane *ret_lane, uint64_t **ret_starts);

/* The lane that the local rank so far further on, or before, carries; `lanes` if it carries none.
 */
uint32_t muster_lane_after(const struct muster_lane *own, uint32_t distance);
uint32_t muster_lane_before(const struct muster_lane *own, uint32_t distance);

/* The rank at that distance. */
uint32_t muster_lane_rank_after(const struct muster_lane *own, uint32_t distance);
uint32_t muster_lane_rank_before(const struct muster_lane *own, uint32_t distance);

/* Who carries the lane on the host `distance` further on. */
uint32_t muster_lane_carrier(const struct muster_lane *own, uint64_t distance);

/* The piece of the host `distance` before. */
struct muster_span muster_lane_piece(const struct muster_lane *own, uint64_t distance);

/* The pieces of a lane in the order of hosts, those next to each other as one span: *host is where
 * to begin, and then where the next one begins; false: there are no more. */
bool muster_lanes_next(const struct muster_lanes *lanes, uint32_t lane, uint32_t *host,
                       struct muster_span *ret_span);

/* Elements of the column; of so many pieces, those of the hosts `distance` before and on. */
uint64_t muster_lane_column(const struct muster_lane *own);
uint64_t muster_lane_sum(const struct muster_lane *own, uint64_t distance, uint64_t pieces);

/* Rounds between hosts, and the pieces that one of them moves: those of distances 0, 1, ... */
uint32_t muster_lanes_rounds(const struct muster_lanes *lanes);
uint32_t muster_lanes_pieces(const struct muster_lanes *lanes, uint32_t round);

/* What a rank does. */
typedef struct muster_step_totals (*muster_lane_totals)(const struct muster_lane *own);

/* Where there is no memory for it, it says that it takes for ever. */
void muster_lanes_formula(const struct muster_lanes *lanes, muster_lane_totals totals_of,
                          struct muster_formula *ret_formula);

#endif
