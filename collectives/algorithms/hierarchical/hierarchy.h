/* What may be said of a hierarchical allreduce, as a variant (algorithm.h): which exchange at which
 * level, how many leaders, how many levels. */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_HIERARCHY_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_HIERARCHY_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum { MUSTER_LEADERS_MAX = 255, MUSTER_PIECES_MAX = 128 };

/* Kinds are those of enum muster_exchange_kind; what is 0 was not said. */
struct muster_hierarchy {
    unsigned local;   /* among the ranks of a host */
    unsigned cross;   /* among the hosts; with racks among those of a rack */
    unsigned world;   /* among the racks */
    unsigned leaders; /* ranks of a host that go on to other hosts, at most; 0: all */
    unsigned levels;  /* 2: racks do not count; 0: as many as there are */
    unsigned pieces;  /* that the data is cut into, a power of two; 0: one */
};

/* As a number: so many bits each, in the order above. For constants. Added to that, the pieces, by
 * their logarithm. */
#define MUSTER_HIERARCHY(local, cross, world, leaders, flat)               \
    ((uint32_t)(local) | (uint32_t)(cross) << 4 | (uint32_t)(world) << 8 | \
     (uint32_t)(leaders) << 12 | (uint32_t)(flat) << 20)
#define MUSTER_HIERARCHY_PIECES(doublings) ((uint32_t)(doublings) << 21)

struct muster_hierarchy muster_hierarchy_of(uint32_t variant);

extern const struct muster_variants muster_hierarchy_variants;

#endif
