/* The parameters of a hierarchical allreduce, and their variant number (algorithm.h): the exchange
 * at each level, the leaders, the levels, the pieces. */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_HIERARCHY_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_HIERARCHY_H

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum { MUSTER_LEADERS_MAX = 255, MUSTER_PIECES_MAX = 128 };

/* The first three are of enum muster_exchange_kind. 0: the default. */
struct muster_hierarchy {
    unsigned local;   /* among the ranks of a host */
    unsigned cross;   /* among the hosts; with racks, among the hosts of a rack */
    unsigned world;   /* among the racks */
    unsigned leaders; /* at most so many ranks of a host own shares; 0: all */
    unsigned levels;  /* 2: racks are ignored; 0: as many levels as the topology has */
    unsigned pieces;  /* into which the data is cut, a power of two; 0: one piece */
};

/* The variant number, for constants: some bits for each parameter, in the order above. The pieces
 * are added by their logarithm. */
#define MUSTER_HIERARCHY(local, cross, world, leaders, flat)               \
    ((uint32_t)(local) | (uint32_t)(cross) << 4 | (uint32_t)(world) << 8 | \
     (uint32_t)(leaders) << 12 | (uint32_t)(flat) << 20)
#define MUSTER_HIERARCHY_PIECES(doublings) ((uint32_t)(doublings) << 21)

struct muster_hierarchy muster_hierarchy_of(uint32_t variant);

/* Whether local=group stands for group steps in the plan; else it stands for the default, by
 * messages. That is so where ranks share no memory; and in pieces, if the number of rounds between
 * hosts depends on a piece's size, because the ranks of a host would come to their group steps in
 * different orders. */
bool muster_hierarchy_shares(const struct muster_plan *plan);

extern const struct muster_variants muster_hierarchy_variants;

#endif
