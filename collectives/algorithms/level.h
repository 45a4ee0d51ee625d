/*
 * Levels, of which hierarchical.c builds an allreduce: the ranks of a host, the hosts of a rack,
 * all hosts or racks. The members of a level cut a span into shares, reduce each at the member that
 * owns it, let the owners go on with them at the next level, and spread the results. At the last
 * level everything is reduced among the members themselves. How they do that is an exchange
 * (exchange.h).
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

/* What a member does there and back. */
struct muster_step_totals {
    uint32_t rounds;
    uint64_t elements; /* sent */
    uint64_t reduced;  /* roughly */
};

/* level_pairwise.c: every two members exchange directly. */
enum muster_buffer muster_pairwise_reduce_scatter(struct muster_builder *builder,
                                                  const struct muster_level *level,
                                                  enum muster_buffer source);
void muster_pairwise_allgather(struct muster_builder *builder, const struct muster_level *level);
struct muster_step_totals muster_pairwise_totals(const struct muster_level *level);
struct muster_step_totals muster_pairwise_allgather_totals(const struct muster_level *level);

/* level_binomial.c: each share along a binomial tree that ends at its owner. */
enum muster_buffer muster_binomial_reduce_scatter(struct muster_builder *builder,
                                                  const struct muster_level *level,
                                                  enum muster_buffer source);
void muster_binomial_allgather(struct muster_builder *builder, const struct muster_level *level);
struct muster_step_totals muster_binomial_totals(const struct muster_level *level);

/* level_ring.c: each share once around a ring, to its owner and on from it. */
enum muster_buffer muster_level_ring_reduce_scatter(struct muster_builder *builder,
                                                    const struct muster_level *level,
                                                    enum muster_buffer source);
void muster_level_ring_allgather(struct muster_builder *builder, const struct muster_level *level);
struct muster_step_totals muster_level_ring_totals(const struct muster_level *level);

#endif
