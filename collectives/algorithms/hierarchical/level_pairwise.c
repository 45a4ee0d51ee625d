/*
 * A level where every pair of members exchanges directly. In round d each member sends the member d
 * further on that one's share, and receives its own from the member d before. The way back goes
 * likewise.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), sections 4.2 and 4.1.
 *
 * Four members that all own a share; what member 0 sends and receives:
 *
 *   round    0             1             2                to owners
 *            b -> 1        c -> 2        d -> 3
 *            a <- 3        a <- 2        a <- 1
 */
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/level.h"

/* The indices of the members at this distance, after and before this one. */
static uint32_t after(const struct muster_level *level, uint32_t distance)
{
    return (uint32_t)(((uint64_t)level->group.index + distance) % level->group.size);
}

static uint32_t before(const struct muster_level *level, uint32_t distance)
{
    return after(level, level->group.size - distance);
}

/* In each round a member sends one other member that one's share, and receives its own share from
 * another. */
static enum muster_buffer reduce_scatter(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    const struct muster_group *group = &level->group;
    enum muster_buffer held = source;
    for (uint32_t distance = 1; distance < group->size; distance++) {
        uint32_t to = after(level, distance);
        if (muster_level_owns(level, to)) {
            muster_builder_send(builder, muster_group_rank(group, to), source,
                                muster_level_share(level, to));
        }
        if (muster_level_owns(level, group->index)) {
            struct muster_span share = muster_level_share(level, group->index);
            muster_builder_recv_reduce(builder, muster_group_rank(group, before(level, distance)),
                                       held, share, MUSTER_OUTPUT, share.offset);
            held = MUSTER_OUTPUT;
        }
        muster_builder_next_round(builder);
    }
    return held;
}

void muster_pairwise_allgather(struct muster_builder *builder, const struct muster_level *level)
{
    const struct muster_group *group = &level->group;
    for (uint32_t distance = 1; distance < group->size; distance++) {
        uint32_t from = before(level, distance);
        if (muster_level_owns(level, group->index)) {
            muster_builder_send(builder, muster_group_rank(group, after(level, distance)),
                                MUSTER_OUTPUT, muster_level_share(level, group->index));
        }
        if (muster_level_owns(level, from)) {
            muster_builder_recv(builder, muster_group_rank(group, from), MUSTER_OUTPUT,
                                muster_level_share(level, from));
        }
        muster_builder_next_round(builder);
    }
}

/* A member that owns nothing exchanges with the owners only. */
struct muster_step_totals muster_pairwise_allgather_totals(const struct muster_level *level)
{
    uint64_t others = level->group.size - 1;
    if (!muster_level_owns(level, level->group.index)) {
        return (struct muster_step_totals){.rounds = level->owners};
    }
    return (struct muster_step_totals){
        .rounds = level->group.size - 1,
        .elements = others * muster_level_share(level, level->group.index).count};
}

static struct muster_step_totals totals(const struct muster_level *level)
{
    struct muster_step_totals totals = muster_pairwise_allgather_totals(level);
    uint64_t kept = muster_level_owns(level, level->group.index)
                        ? muster_level_share(level, level->group.index).count
                        : 0;
    totals.rounds *= 2;
    totals.reduced = totals.elements;
    totals.elements += level->group.size > 1 ? level->span.count - kept : 0;
    return totals;
}

const struct muster_exchange muster_exchange_pairwise = {
    .name = "pairwise",
    .steady = true,
    .reduce_scatter = reduce_scatter,
    .allgather = muster_pairwise_allgather,
    .totals = totals,
};
