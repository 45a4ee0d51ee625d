/*
 * A level where each share travels around a ring from the member after its owner to the owner, and
 * is reduced on the way; then the result travels around it from the owner. It is as in ring.c, but
 * share i ends at member i, and some members may own no share.
 */
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/level.h"

/* The number of the share that the member with this index sends in this round, towards its owner.
 */
static uint32_t outgoing(uint32_t size, uint32_t index, uint32_t round)
{
    return (uint32_t)(((uint64_t)index + 2 * (uint64_t)size - 1 - round) % size);
}

static uint32_t neighbour(const struct muster_level *level, bool next)
{
    const struct muster_group *group = &level->group;
    return muster_group_rank(group, (uint64_t)group->index + (next ? 1 : group->size - 1));
}

/* In each round a member receives a share, reduces it with its own data, and sends it on in the
 * next round. The last one that it receives is its own. */
static enum muster_buffer reduce_scatter(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    uint32_t size = level->group.size;
    for (uint32_t round = 0; round + 1 < size; round++) {
        uint32_t out = outgoing(size, level->group.index, round);
        uint32_t in = outgoing(size, level->group.index, round + 1);
        if (muster_level_owns(level, out)) {
            muster_builder_send(builder, neighbour(level, true),
                                round == 0 ? source : MUSTER_OUTPUT,
                                muster_level_share(level, out));
        }
        if (muster_level_owns(level, in)) {
            struct muster_span share = muster_level_share(level, in);
            muster_builder_recv_reduce(builder, neighbour(level, false), source, share,
                                       MUSTER_OUTPUT, share.offset);
        }
        muster_builder_next_round(builder);
    }
    return size > 1 ? MUSTER_OUTPUT : source;
}

/* In each round the share after the one of the same round of the reduce-scatter. */
static void allgather(struct muster_builder *builder, const struct muster_level *level)
{
    uint32_t size = level->group.size;
    for (uint32_t round = 0; round + 1 < size; round++) {
        uint32_t out = (outgoing(size, level->group.index, round) + 1) % size;
        uint32_t in = outgoing(size, level->group.index, round);
        if (muster_level_owns(level, out)) {
            muster_builder_send(builder, neighbour(level, true), MUSTER_OUTPUT,
                                muster_level_share(level, out));
        }
        if (muster_level_owns(level, in)) {
            muster_builder_recv(builder, neighbour(level, false), MUSTER_OUTPUT,
                                muster_level_share(level, in));
        }
        muster_builder_next_round(builder);
    }
}

static uint64_t share_count(const struct muster_level *level, uint32_t index)
{
    return muster_level_owns(level, index) ? muster_level_share(level, index).count : 0;
}

static struct muster_step_totals totals(const struct muster_level *level)
{
    struct muster_step_totals totals = {0};
    uint32_t size = level->group.size;
    uint32_t index = level->group.index;
    for (uint32_t round = 0; round + 1 < size; round++) {
        uint32_t there = outgoing(size, index, round);
        uint32_t back = (there + 1) % size;
        uint32_t later = outgoing(size, index, round + 1);
        bool owned = muster_level_owns(level, there);
        totals.rounds += owned || muster_level_owns(level, later) ? 1 : 0;
        totals.rounds += owned || muster_level_owns(level, back) ? 1 : 0;
        totals.elements += share_count(level, there) + share_count(level, back);
        totals.reduced += share_count(level, later);
    }
    return totals;
}

const struct muster_exchange muster_exchange_ring = {
    .name = "ring",
    .steady = true,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .totals = totals,
};
