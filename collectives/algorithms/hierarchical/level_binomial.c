/*
 * A level where each share has a binomial tree of its own, whose root is the share's owner. The
 * trees are rotations of one tree: in round j every member exchanges only with the members 2^j
 * before and after it, whatever the tree, so that all shares travel at the same time, in ceil(log2
 * P) rounds in each direction. With one owner this is a binomial reduce and broadcast; if all
 * members own a share no less can be sent.
 *
 * Source: J. L. Traeff: Optimal, non-pipelined reduce-scatter and allreduce algorithms.
 * arXiv:2410.14234 (2024), for the rotated trees; binomial trees as in Thakur et al. (see
 * allgather_ring.c), section 4.4.
 *
 * Four members that all own a share, a letter each; on the way to the owners:
 *
 *   round 0    1 -- a,c --> 0    2 -- b,d --> 1    3 -- a,c --> 2    0 -- b,d --> 3
 *   round 1    2 -- a --> 0      3 -- b --> 1      0 -- c --> 2      1 -- d --> 3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/level.h"

/* This member's place in the tree of a share; the root is 0. The parent is at the place without the
 * lowest set bit. In round j the places whose lowest set bit is j send to their parents. */
static uint32_t place_in(const struct muster_level *level, uint32_t share)
{
    return (level->group.index + level->group.size - share) % level->group.size;
}

static bool sends_up(uint32_t place, uint32_t round)
{
    return place % (UINT32_C(2) << round) == UINT32_C(1) << round;
}

static bool receives_from_child(uint32_t place, uint32_t round, uint32_t size)
{
    uint32_t bit = UINT32_C(1) << round;
    return place % (2 * bit) == 0 && bit < size - place;
}

/* The ranks with which this member exchanges in a round. */
static uint32_t parent(const struct muster_level *level, uint32_t round)
{
    return muster_group_rank(&level->group, (uint64_t)level->group.index + level->group.size -
                                                (UINT32_C(1) << round));
}

static uint32_t child(const struct muster_level *level, uint32_t round)
{
    return muster_group_rank(&level->group, (uint64_t)level->group.index + (UINT32_C(1) << round));
}

/* Every share goes up a tree of its own, whose root is its owner; a member adds the steps of all
 * shares in each round. */
static enum muster_buffer reduce_scatter(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    uint32_t size = level->group.size;
    uint32_t rounds = muster_log2_up(size);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < level->owners; i++) {
            uint32_t place = place_in(level, i);
            struct muster_span share = muster_level_share(level, i);
            /* The first child, if there is any, sends in round 0. */
            bool has_sums = round > 0 && receives_from_child(place, 0, size);
            enum muster_buffer held = has_sums ? MUSTER_OUTPUT : source;
            if (sends_up(place, round)) {
                muster_builder_send(builder, parent(level, round), held, share);
            } else if (receives_from_child(place, round, size)) {
                muster_builder_recv_reduce(builder, child(level, round), held, share, MUSTER_OUTPUT,
                                           share.offset);
            }
        }
        muster_builder_next_round(builder);
    }
    return size > 1 ? MUSTER_OUTPUT : source;
}

static void allgather(struct muster_builder *builder, const struct muster_level *level)
{
    uint32_t size = level->group.size;
    for (uint32_t round = muster_log2_up(size); round-- > 0;) {
        for (uint32_t i = 0; i < level->owners; i++) {
            uint32_t place = place_in(level, i);
            if (sends_up(place, round)) {
                muster_builder_recv(builder, parent(level, round), MUSTER_OUTPUT,
                                    muster_level_share(level, i));
            } else if (receives_from_child(place, round, size)) {
                muster_builder_send(builder, child(level, round), MUSTER_OUTPUT,
                                    muster_level_share(level, i));
            }
        }
        muster_builder_next_round(builder);
    }
}

static struct muster_step_totals totals(const struct muster_level *level)
{
    struct muster_step_totals totals = {0};
    uint32_t size = level->group.size;
    uint32_t busy = 0; /* a bit for each round that the member takes part in */
    for (uint32_t i = 0; i < level->owners; i++) {
        uint32_t place = place_in(level, i);
        uint64_t share = muster_level_share(level, i).count;
        for (uint32_t round = 0; round < muster_log2_up(size); round++) {
            bool up = sends_up(place, round);
            bool down = receives_from_child(place, round, size);
            totals.elements +=
                up || down ? share : 0; /* the sum goes up, or the result goes down */
            totals.reduced += down ? share : 0;
            busy |= up || down ? UINT32_C(1) << round : 0;
        }
    }
    totals.rounds = 2 * (uint32_t)__builtin_popcount(busy);
    return totals;
}

const struct muster_exchange muster_exchange_binomial = {
    .name = "binomial",
    .steady = true,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .totals = totals,
};
