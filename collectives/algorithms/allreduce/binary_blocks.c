/*
 * What halving_doubling.c and swing.c share: a reduce-scatter in which partners exchange ever
 * smaller halves of the data, then an allgather in which they exchange ever larger ones, on any
 * number of ranks.
 *
 * Where P is not a power of two, the ranks form blocks of decreasing powers of two (13 = 8 + 4 +
 * 1). Each block reduces the data of its own ranks, sends its sums to the next larger block, and
 * receives the results from it. Shares nest: a rank's share is a part of the share of one rank of
 * the next smaller block.
 *
 * Source: R. Rabenseifner, J. L. Traeff: More efficient reduction algorithms for non-power-of-two
 * number of processors in message-passing parallel systems. EuroPVM/MPI 2004, section 2.
 *
 * Each share is reduced at one rank of the largest block and then copied, so all ranks end with the
 * same bits.
 */
#include "collectives/algorithms/generators.h"

/* The block that a rank of the group is in. */
struct block {
    uint32_t first;         /* index in the group of its first rank */
    uint32_t levels;        /* it has 2^levels ranks */
    uint32_t index;         /* of the rank within it */
    uint32_t share;         /* number of the rank's share: see struct muster_butterfly */
    uint32_t larger_levels; /* of the block before; if first > 0 */
    uint32_t smaller_first; /* of the block after; if has_smaller */
    uint32_t smaller_levels;
    bool has_smaller;
};

static struct block block_of(const struct muster_butterfly *butterfly, uint32_t size,
                             uint32_t index)
{
    struct block block = {.levels = muster_log2_down(size)};
    while (index - block.first >= UINT32_C(1) << block.levels) {
        block.larger_levels = block.levels;
        block.first += UINT32_C(1) << block.levels;
        block.levels = muster_log2_down(size - block.first);
    }
    block.index = index - block.first;
    block.share = butterfly->share_of(block.index, block.levels);
    block.smaller_first = block.first + (UINT32_C(1) << block.levels);
    block.has_smaller = block.smaller_first < size;
    if (block.has_smaller) {
        block.smaller_levels = muster_log2_down(size - block.smaller_first);
    }
    return block;
}

static struct muster_span half(struct muster_span span, uint32_t which)
{
    uint64_t lower = (span.count + 1) / 2;
    return which == 0
               ? (struct muster_span){.offset = span.offset, .count = lower}
               : (struct muster_span){.offset = span.offset + lower, .count = span.count - lower};
}

/* The part of the span that is kept after so many halvings. */
static struct muster_span share(struct muster_span span, uint32_t number, uint32_t levels)
{
    for (uint32_t level = 0; level < levels; level++) {
        span = half(span, number >> level & 1);
    }
    return span;
}

/* One rank's view while its steps are generated. */
struct place {
    struct muster_builder *builder;
    const struct muster_group *group;
    const struct muster_butterfly *butterfly;
    struct block block;
    struct muster_span whole;
};

static uint32_t peer_at(const struct place *place, uint32_t level)
{
    const struct block *block = &place->block;
    uint32_t index = place->butterfly->peer_of(block->index, level, block->levels);
    return muster_group_rank(place->group, (uint64_t)block->first + index);
}

/* The rank that has this share in the block of 2^levels ranks from `first` on. */
static uint32_t rank_with(const struct place *place, uint32_t first, uint32_t levels,
                          uint32_t number)
{
    uint32_t index = place->butterfly->index_of(number, levels);
    return muster_group_rank(place->group, (uint64_t)first + index);
}

/* Reduce-scatter within the block. Returns the buffer that has the rank's sum: OUTPUT, or the
 * source if the rank is alone in its block. */
static enum muster_buffer halve(const struct place *place, enum muster_buffer source)
{
    struct muster_span span = place->whole;
    for (uint32_t level = 0; level < place->block.levels; level++) {
        uint32_t bit = place->block.share >> level & 1;
        uint32_t peer = peer_at(place, level);
        struct muster_span kept = half(span, bit);
        muster_builder_send(place->builder, peer, source, half(span, 1 - bit));
        muster_builder_recv_reduce(place->builder, peer, source, kept, MUSTER_OUTPUT, kept.offset);
        muster_builder_next_round(place->builder);
        source = MUSTER_OUTPUT;
        span = kept;
    }
    return source;
}

/* Allgather within the block. */
static void collect(const struct place *place)
{
    for (uint32_t level = place->block.levels; level-- > 0;) {
        uint32_t bit = place->block.share >> level & 1;
        uint32_t peer = peer_at(place, level);
        struct muster_span both = share(place->whole, place->block.share, level);
        muster_builder_send(place->builder, peer, MUSTER_OUTPUT, half(both, bit));
        muster_builder_recv(place->builder, peer, MUSTER_OUTPUT, half(both, 1 - bit));
        muster_builder_next_round(place->builder);
    }
}

/* Sends this rank's share to the ranks of the next larger block whose shares make it up, or
 * receives it from them. */
static void exchange_with_larger(const struct place *place, enum muster_buffer source, bool send)
{
    const struct block *block = &place->block;
    uint32_t larger = UINT32_C(1) << block->larger_levels;
    for (uint32_t number = block->share; number < larger; number += UINT32_C(1) << block->levels) {
        uint32_t peer = rank_with(place, block->first - larger, block->larger_levels, number);
        struct muster_span part = share(place->whole, number, block->larger_levels);
        if (send) {
            muster_builder_send(place->builder, peer, source, part);
        } else {
            muster_builder_recv(place->builder, peer, MUSTER_OUTPUT, part);
        }
    }
    muster_builder_next_round(place->builder);
}

/* Reduces within the block, then with the next smaller and the next larger one, and spreads the
 * result the same way back. */
void muster_binary_blocks_part(struct muster_builder *builder, const struct muster_group *group,
                               const struct muster_butterfly *butterfly, enum muster_buffer source,
                               struct muster_span whole)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, whole, MUSTER_OUTPUT, whole.offset);
        return;
    }
    struct place place = {.builder = builder,
                          .group = group,
                          .butterfly = butterfly,
                          .block = block_of(butterfly, group->size, group->index),
                          .whole = whole};
    const struct block *block = &place.block;
    struct muster_span mine = share(whole, block->share, block->levels);
    uint32_t smaller = 0; /* the rank of the next smaller block whose share contains this one */
    enum muster_buffer held = halve(&place, source);
    if (block->has_smaller) {
        uint32_t number = block->share & ((UINT32_C(1) << block->smaller_levels) - 1);
        smaller = rank_with(&place, block->smaller_first, block->smaller_levels, number);
        muster_builder_recv_reduce(builder, smaller, held, mine, MUSTER_OUTPUT, mine.offset);
        muster_builder_next_round(builder);
        held = MUSTER_OUTPUT;
    }
    if (block->first > 0) {
        exchange_with_larger(&place, held, true);
        exchange_with_larger(&place, held, false);
    }
    if (block->has_smaller) {
        /* In the same round as the first one of collect(): both only read this rank's share. */
        muster_builder_send(builder, smaller, MUSTER_OUTPUT, mine);
    }
    collect(&place);
}

uint64_t muster_binary_blocks_part_elements(const struct muster_butterfly *butterfly,
                                            uint64_t count, uint32_t size, uint32_t index)
{
    struct block block = block_of(butterfly, size, index);
    struct muster_span whole = {.count = count};
    uint64_t mine = share(whole, block.share, block.levels).count;
    uint64_t elements = count - mine;
    for (uint32_t level = 1; level <= block.levels; level++) {
        elements += share(whole, block.share, level).count;
    }
    elements += block.first > 0 ? mine : 0;
    elements += block.has_smaller ? mine : 0;
    return elements;
}

uint32_t muster_binary_blocks_part_rounds(const struct muster_butterfly *butterfly, uint32_t size,
                                          uint32_t index)
{
    struct block block = block_of(butterfly, size, index);
    /* The send to the smaller block shares a round with collect(). */
    return 2 * block.levels + (block.first > 0 ? 2 : 0) + (block.has_smaller ? 1 : 0);
}

/* The busiest rank is the first rank of some block; its share is number 0. */
void muster_binary_blocks_formula(const struct muster_butterfly *butterfly,
                                  const struct muster_plan *plan,
                                  struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    *ret_formula = (struct muster_formula){0};
    if (ranks == 1) {
        ret_formula->rounds = plan->count > 0 ? 1 : 0;
        return;
    }
    for (uint32_t first = 0; first < ranks;
         first += UINT32_C(1) << muster_log2_down(ranks - first)) {
        uint32_t rounds = muster_binary_blocks_part_rounds(butterfly, ranks, first);
        uint64_t elements =
            muster_binary_blocks_part_elements(butterfly, plan->count, ranks, first);
        ret_formula->rounds = rounds > ret_formula->rounds ? rounds : ret_formula->rounds;
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    uint32_t levels = muster_log2_down(ranks);
    for (uint32_t level = 0; level < levels; level++) {
        uint64_t sent = plan->count >> (level + 1);
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << level, 2, 2 * sent);
        ret_formula->reduced += sent;
    }
    if (UINT32_C(1) << levels != ranks) {
        /* The data of the smallest block goes up and down the chain of blocks. */
        muster_formula_add(ret_formula, plan->topology, UINT64_MAX, 2, 2 * (plan->count >> levels));
    }
}
