/*
 * Lanes between hosts, for collectives with blocks. There are as many lanes as the smallest host
 * has ranks. The ranks of each host are cut into as many runs of neighbouring ranks, and the first
 * rank of run i is its carrier: it moves the blocks of the run along lane i. So a lane has the
 * blocks of one run of each host.
 *
 * Between hosts the blocks move as in a dissemination: in round k of an allgather the carrier on
 * host h sends the lane's blocks of hosts h, h - 1, ... to the carrier on host h + 2^k, for as many
 * hosts as that one lacks. A reduce_scatter goes the same way backward. Blocks that are adjacent in
 * the buffer share a message.
 *
 * Where the ranks of a host share memory, lanes may carry parts instead: part i of a host's blocks,
 * which are cut into equal parts, one a lane. The carriers are then the first ranks of each host,
 * and there are no runs.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_LANES_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_LANES_H

#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/level.h"

struct muster_lanes {
    const struct muster_topology *topology; /* borrowed */
    struct muster_blocks blocks;
    uint32_t lanes;
    bool parts; /* lanes carry equal parts of the hosts' blocks */
};

/* One rank's view. */
struct muster_lane {
    const struct muster_lanes *all; /* borrowed */
    uint32_t lane, host;
    uint32_t local_rank, local_size;
    struct muster_span run; /* the ranks of its run; with parts, the carrier alone */
    bool carries;           /* it is the carrier: the first of them */
    const uint64_t *starts; /* borrowed: muster_lanes_measure() */
};

struct muster_lanes muster_lanes_of(const struct muster_topology *topology,
                                    const struct muster_blocks *blocks);

/* The same with parts. */
struct muster_lanes muster_lanes_of_parts(const struct muster_topology *topology,
                                          const struct muster_blocks *blocks);

/* All blocks of a host. */
struct muster_span muster_lanes_host(const struct muster_lanes *lanes, uint32_t host);

/* Where the lane's blocks of each host begin if they are stored one host after the other; the last
 * number is their end. `starts` has room for one number more than there are hosts. */
void muster_lanes_measure(const struct muster_lanes *lanes, uint32_t lane, uint64_t *starts);

/* The view of the rank with this local rank on this host, without the starts. */
struct muster_lane muster_lane_at(const struct muster_lanes *lanes, uint32_t host,
                                  uint32_t local_rank);

/* The view of this rank, with the starts. MUSTER_FATAL: no memory. The caller frees ret_starts. */
MUSTER_CHECKED muster_status muster_lane_init(const struct muster_lanes *lanes, uint32_t rank,
                                              struct muster_lane *ret_lane, uint64_t **ret_starts);

/* The lane of which the local rank at this distance, after or before, is the carrier; `lanes` if it
 * is none. */
uint32_t muster_lane_after(const struct muster_lane *own, uint32_t distance);
uint32_t muster_lane_before(const struct muster_lane *own, uint32_t distance);

/* The rank at that distance on the same host. */
uint32_t muster_lane_rank_after(const struct muster_lane *own, uint32_t distance);
uint32_t muster_lane_rank_before(const struct muster_lane *own, uint32_t distance);

/* The lane's carrier on the host `distance` further on. */
uint32_t muster_lane_carrier(const struct muster_lane *own, uint64_t distance);

/* The lane's blocks of the host `distance` before, and where they begin among the lane's blocks. */
struct muster_span muster_lane_blocks(const struct muster_lane *own, uint64_t distance);

uint64_t muster_lane_place(const struct muster_lane *own, uint64_t distance);

/* Carriers send each other the blocks of their lane, in OUTPUT. fresh: their own are sent from the
 * beginning of INPUT: a copy of them may be under way. */
void muster_lane_allgather(const struct muster_lane *own, bool fresh,
                           struct muster_builder *builder);

/* Carriers send each other partial sums, which are in SCRATCH, the lane's blocks of one host after
 * the other; not `reduced`: they are in INPUT still. The last sum, of the own host's blocks, goes
 * to OUTPUT if they are the rank's own block (`done`). */
void muster_lane_reduce_scatter(const struct muster_lane *own, bool reduced, bool done,
                                struct muster_builder *builder);

/* What a carrier sends to others in each of the two, in muster_lanes_rounds() rounds. */
uint64_t muster_lane_allgather_elements(const struct muster_lane *own);
uint64_t muster_lane_reduce_scatter_elements(const struct muster_lane *own);

/* Iterates over the lane's blocks in the order of hosts, adjacent ones as one span. *host is the
 * host to begin with, and is set to the one that the next call begins with. False: there are no
 * more. */
bool muster_lanes_next(const struct muster_lanes *lanes, uint32_t lane, uint32_t *host,
                       struct muster_span *ret_span);

/* Elements of all blocks of the lane; and of those of so many hosts, from the one `distance` before
 * backward. */
uint64_t muster_lane_elements(const struct muster_lane *own);
uint64_t muster_lane_elements_of(const struct muster_lane *own, uint64_t distance, uint64_t hosts);

/* The number of rounds between hosts; and of how many hosts, at distances 0, 1, ..., a round moves
 * the blocks. */
uint32_t muster_lanes_rounds(const struct muster_lanes *lanes);
uint32_t muster_lanes_round_hosts(const struct muster_lanes *lanes, uint32_t round);

/* The totals of a rank's steps. */
typedef struct muster_step_totals (*muster_lane_totals)(const struct muster_lane *own);

/* Without memory it is so expensive that the algorithm is not selected. */
void muster_lanes_formula(const struct muster_lanes *lanes, muster_lane_totals totals_of,
                          struct muster_formula *ret_formula);

#endif
