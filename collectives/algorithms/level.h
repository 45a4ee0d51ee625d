/*
 * Levels: what hierarchical.c builds an allreduce from. The members of a level are the ranks of a
 * host, the hosts of a rack, or all hosts or racks. They cut a span into shares, and each share is
 * reduced at the member that owns it. The owners take their shares to the next level, and
 * afterwards spread the results among the members. At the last level the members allreduce the
 * span. The way in which members do this is an exchange (exchange.h).
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_LEVEL_H
#define MUSTER_COLLECTIVES_ALGORITHMS_LEVEL_H

#include "collectives/schedule/builder.h"

/* One member's view of a level. */
struct muster_level {
    struct muster_group group;
    struct muster_span span;
    uint32_t owners; /* 1..group.size; share number i belongs to the member of that index */
};

struct muster_span muster_level_share(const struct muster_level *level, uint32_t index);
bool muster_level_owns(const struct muster_level *level, uint32_t index);

/* Totals of a member's steps, in both phases. */
struct muster_step_totals {
    uint32_t rounds;
    uint64_t elements; /* sent */
    uint64_t reduced;  /* approximately */
};

/* level_pairwise.c: every owner sends its share to all other members directly. */
void muster_pairwise_allgather(struct muster_builder *builder, const struct muster_level *level);
struct muster_step_totals muster_pairwise_allgather_totals(const struct muster_level *level);

#endif
