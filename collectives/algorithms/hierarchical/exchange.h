/*
 * How the members of a level (level.h) exchange, by name. The exchanges that reduce to owners are
 * made for it; any allreduce that has a `part` (generators.h) will do too: after it every member
 * has all sums of the level, the owners go on with theirs, and give them to the others directly.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_EXCHANGE_H
#define MUSTER_COLLECTIVES_ALGORITHMS_HIERARCHICAL_EXCHANGE_H

#include "collectives/algorithms/level.h"

struct muster_exchange {
    const char *name;
    /* Leaves the member's share, if it has one, reduced over all members in the buffer that it
     * returns: `source` (INPUT or OUTPUT) if it is alone, else OUTPUT. Then what the owners have of
     * their shares in OUTPUT, in everybody's OUTPUT. NULL: there is only a part. */
    enum muster_buffer (*reduce_scatter)(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source);
    void (*allgather)(struct muster_builder *builder, const struct muster_level *level);
    struct muster_step_totals (*totals)(const struct muster_level *level); /* of both */
    /* An allreduce, as in generators.h. NULL: there are only the two halves. */
    void (*part)(struct muster_builder *builder, const struct muster_group *group,
                 enum muster_buffer source, struct muster_span span);
    uint64_t (*part_elements)(uint64_t count, uint32_t size, uint32_t index);
    uint32_t (*part_rounds)(uint64_t count, uint32_t size, uint32_t index);
};

/* The values are parts of algorithms' numbers, which travel: append only. */
enum muster_exchange_kind {
    MUSTER_EXCHANGE_DEFAULT = 0,
    MUSTER_EXCHANGE_PAIRWISE = 1,
    MUSTER_EXCHANGE_BINOMIAL = 2,
    MUSTER_EXCHANGE_RING_TWO_PHASE = 3,
    MUSTER_EXCHANGE_RING = 4,
    MUSTER_EXCHANGE_BIDIRECTIONAL_RING = 5,
    MUSTER_EXCHANGE_HALVING_DOUBLING = 6,
    MUSTER_EXCHANGE_SWING = 7,
    MUSTER_EXCHANGE_RECURSIVE_DOUBLING = 8,
    MUSTER_EXCHANGE_BCUBE = 9,
    MUSTER_EXCHANGE_ALL_TO_ONE = 10,
    MUSTER_EXCHANGE_DOUBLE_TREE = 11,
    MUSTER_EXCHANGE_RING_CHUNKED = 12,
    MUSTER_EXCHANGE_END,
};

/* NULL for values out of range, and for DEFAULT. */
const struct muster_exchange *muster_exchange_of(unsigned kind);

/* To the owners, and on the way back; at the last level all members own. */
enum muster_buffer muster_exchange_begin(struct muster_builder *builder,
                                         const struct muster_exchange *exchange,
                                         const struct muster_level *level,
                                         enum muster_buffer source);
void muster_exchange_end(struct muster_builder *builder, const struct muster_exchange *exchange,
                         const struct muster_level *level);
struct muster_step_totals muster_exchange_totals(const struct muster_exchange *exchange,
                                                 const struct muster_level *level);

/* At the last level: an allreduce. */
void muster_exchange_allreduce(struct muster_builder *builder,
                               const struct muster_exchange *exchange,
                               const struct muster_level *level, enum muster_buffer source);
struct muster_step_totals muster_exchange_allreduce_totals(const struct muster_exchange *exchange,
                                                           const struct muster_level *level);

#endif
