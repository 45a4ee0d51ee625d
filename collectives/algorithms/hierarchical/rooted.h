/*
 * The levels of a collective with leaders: one rank is the leader of each host, and one of these
 * the leader of each rack. On the root's host and in its rack the leader is the root, elsewhere the
 * first rank.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_ROOTED_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_ROOTED_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/level.h"

/* From the top: the leaders of the racks; of one rack's hosts; the ranks of one host. */
enum { MUSTER_ROOTED_LEVELS = 3 };

struct muster_rooted_level {
    struct muster_group group; /* muster_rooted_of() sets the lists of the upper two levels */
    uint32_t root;             /* the index of the leader among them */
};

struct muster_rooted {
    const struct muster_topology *topology; /* borrowed */
    uint32_t root;
    struct muster_rooted_level levels[MUSTER_ROOTED_LEVELS];
    uint32_t first; /* the rank takes part in this level and in those below */
};

/* The levels of the rank with this local rank on this host, without the lists. */
struct muster_rooted muster_rooted_at(const struct muster_topology *topology, uint32_t root,
                                      uint32_t host, uint32_t local_rank);

/* The levels of the plan's rank, with the lists, which are stored in `ranks` and borrowed. */
struct muster_rooted muster_rooted_of(const struct muster_plan *plan, uint32_t *ranks);

/* The length of `ranks`. */
size_t muster_rooted_room(const struct muster_topology *topology);

/* The member's place at a level, counted from the leader. */
uint32_t muster_rooted_place(const struct muster_rooted_level *level);

/* The totals of the member at a place. Place 0, the leader, is on the critical path. */
typedef struct muster_step_totals (*muster_rooted_totals)(uint64_t count, uint32_t size,
                                                          uint32_t place);

/* The formula of a collective with the members' totals at each level. */
void muster_rooted_formula(const struct muster_plan *plan,
                           const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS],
                           struct muster_formula *ret_formula);

#endif
