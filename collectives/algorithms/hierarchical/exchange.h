/*
 * Exchanges: how the members of a level (level.h) reduce and spread their data. Some are made for
 * levels, and reduce each share at its owner. An allreduce serves as well: after it every member
 * has all sums of the level, the owners take theirs to the next level, and later send the results
 * to the others directly.
 *
 * To make an allreduce usable here: define its muster_exchange in its own file, append it to enum
 * muster_exchange_kind, and add it to the table in exchange.c.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_EXCHANGE_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_EXCHANGE_H

#include "collectives/algorithms/level.h"

struct muster_exchange {
    const char *name;
    bool steady; /* the number of a member's rounds does not depend on the count */
    /* The two phases of an exchange that is made for levels; NULL if there is a part. The first
     * leaves the member's share, if it owns one, reduced over all members, and returns its buffer:
     * `source` (INPUT or OUTPUT) if the member is alone, else OUTPUT. The second copies the owners'
     * shares from their OUTPUT to the OUTPUT of all members. */
    enum muster_buffer (*reduce_scatter)(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source);
    void (*allgather)(struct muster_builder *builder, const struct muster_level *level);
    struct muster_step_totals (*totals)(const struct muster_level *level); /* of both phases */
    /* An allreduce among the ranks of a group; NULL if there are the two phases. It reads the span
     * in `source` (INPUT or OUTPUT) and leaves the result at the same place in OUTPUT.
     * part_elements and part_rounds are what member number `index` sends, and in how many rounds.
     */
    void (*part)(struct muster_builder *builder, const struct muster_group *group,
                 enum muster_buffer source, struct muster_span span);
    uint64_t (*part_elements)(uint64_t count, uint32_t size, uint32_t index);
    uint32_t (*part_rounds)(uint64_t count, uint32_t size, uint32_t index);
};

/* The values are parts of algorithms' numbers, which are sent in frames: append only. */
enum muster_exchange_kind {
    MUSTER_EXCHANGE_DEFAULT = 0,
    MUSTER_EXCHANGE_PAIRWISE = 1,
    MUSTER_EXCHANGE_BINOMIAL = 2,
    MUSTER_EXCHANGE_RING = 3,
    MUSTER_EXCHANGE_RING_WHOLE = 4,
    MUSTER_EXCHANGE_BIDIRECTIONAL_RING = 5,
    MUSTER_EXCHANGE_HALVING_DOUBLING = 6,
    MUSTER_EXCHANGE_SWING = 7,
    MUSTER_EXCHANGE_RECURSIVE_DOUBLING = 8,
    MUSTER_EXCHANGE_BCUBE = 9,
    MUSTER_EXCHANGE_ALL_TO_ONE = 10,
    MUSTER_EXCHANGE_DOUBLE_TREE = 11,
    MUSTER_EXCHANGE_RING_CHUNKED = 12,
    MUSTER_EXCHANGE_GROUP = 13, /* within hosts only */
    MUSTER_EXCHANGE_END,
};

/* NULL for values out of range, and for MUSTER_EXCHANGE_DEFAULT. */
const struct muster_exchange *muster_exchange_of(unsigned kind);

/* level_group.c: the group steps of a host that reduce its level's span to the owners' shares, and
 * that spread them. One buffer has the span from `whole` on, the other one this member's share, if
 * it owns one, from `share` on. */
struct muster_group_ends {
    enum muster_buffer span_buffer, share_buffer;
    uint64_t whole, share;
};
void muster_group_level_reduce(struct muster_builder *builder, const struct muster_level *level,
                               const struct muster_group_ends *ends);
void muster_group_level_spread(struct muster_builder *builder, const struct muster_level *level,
                               const struct muster_group_ends *ends);

/* Reduces the shares at their owners, and later spreads the results. */
enum muster_buffer muster_exchange_begin(struct muster_builder *builder,
                                         const struct muster_exchange *exchange,
                                         const struct muster_level *level,
                                         enum muster_buffer source);
void muster_exchange_end(struct muster_builder *builder, const struct muster_exchange *exchange,
                         const struct muster_level *level);
struct muster_step_totals muster_exchange_totals(const struct muster_exchange *exchange,
                                                 const struct muster_level *level);

/* At the last level: allreduces the span. */
void muster_exchange_allreduce(struct muster_builder *builder,
                               const struct muster_exchange *exchange,
                               const struct muster_level *level, enum muster_buffer source);
struct muster_step_totals muster_exchange_allreduce_totals(const struct muster_exchange *exchange,
                                                           const struct muster_level *level);

#endif
