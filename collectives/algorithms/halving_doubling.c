/*
 * Halving-doubling allreduce: reduce-scatter by recursive halving, then allgather by recursive
 * doubling. 2 log2 P rounds with about 2(P-1)/P of the data in all: few rounds and few bytes.
 *
 * Partners are near first, so that most bytes stay within a host where its ranks are a power of
 * two.
 *
 * Where P is not a power of two, the ranks form blocks of falling powers of two (13 = 8 + 4 + 1).
 * Each block reduces its own ranks' data, every block gives its sums to the next larger one, and
 * results come back the other way. Shares nest: a rank's share is a part of the share of one rank
 * of the next smaller block.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.5; blocks as in
 * R. Rabenseifner, J. L. Traeff: More efficient reduction algorithms for non-power-of-two number of
 * processors in message-passing parallel systems. EuroPVM/MPI 2004, section 2.
 *
 * Four ranks; the data are quarters abcd, in brackets what a rank gives away:
 *
 *   round 0    0 <-> 1    0 keeps ab (cd), 1 keeps cd (ab)    2 <-> 3 likewise
 *   round 1    0 <-> 2    0 keeps a (b), 2 keeps b (a)        1 <-> 3: 1 keeps c, 3 keeps d
 *   round 2    0 <-> 2    both have ab                        1 <-> 3: both have cd
 *   round 3    0 <-> 1    both have abcd                      2 <-> 3 likewise
 *
 * Each share is reduced at one rank of the largest block and then copied: all ranks end with the
 * same bits.
 */
#include "collectives/algorithms/generators.h"

/* The block that a rank of the group is in. */
struct block {
    uint32_t first;         /* index in the group of its first rank */
    uint32_t levels;        /* it has 2^levels ranks */
    uint32_t index;         /* of the rank within it */
    uint32_t larger_levels; /* of the block before; if first > 0 */
    uint32_t smaller_first; /* of the block after; if has_smaller */
    uint32_t smaller_levels;
    bool has_smaller;
};

static struct block block_of(uint32_t size, uint32_t index)
{
    struct block block = {.levels = muster_log2_down(size)};
    while (index - block.first >= UINT32_C(1) << block.levels) {
        block.larger_levels = block.levels;
        block.first += UINT32_C(1) << block.levels;
        block.levels = muster_log2_down(size - block.first);
    }
    block.index = index - block.first;
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

/* What is left to the rank of a block after so many halvings: bit 0 of its index decides first. */
static struct muster_span share(struct muster_span span, uint32_t index, uint32_t levels)
{
    for (uint32_t level = 0; level < levels; level++) {
        span = half(span, index >> level & 1);
    }
    return span;
}

static uint32_t peer_in_block(const struct muster_group *group, const struct block *block,
                              uint32_t index)
{
    return muster_group_rank(group, (uint64_t)block->first + index);
}

/* Returns where the rank's sum stands: in OUTPUT, or still in the source if it is alone. */
static enum muster_buffer halve(struct muster_builder *builder, const struct muster_group *group,
                                const struct block *block, enum muster_buffer source,
                                struct muster_span span)
{
    for (uint32_t level = 0; level < block->levels; level++) {
        uint32_t bit = block->index >> level & 1;
        uint32_t peer = peer_in_block(group, block, block->index ^ (UINT32_C(1) << level));
        struct muster_span kept = half(span, bit);
        muster_builder_send(builder, peer, source, half(span, 1 - bit));
        muster_builder_recv_reduce(builder, peer, source, kept, MUSTER_OUTPUT, kept.offset);
        muster_builder_next_round(builder);
        source = MUSTER_OUTPUT;
        span = kept;
    }
    return source;
}

static void collect(struct muster_builder *builder, const struct muster_group *group,
                    const struct block *block, struct muster_span whole)
{
    for (uint32_t level = block->levels; level-- > 0;) {
        uint32_t bit = block->index >> level & 1;
        uint32_t peer = peer_in_block(group, block, block->index ^ (UINT32_C(1) << level));
        struct muster_span both = share(whole, block->index, level);
        muster_builder_send(builder, peer, MUSTER_OUTPUT, half(both, bit));
        muster_builder_recv(builder, peer, MUSTER_OUTPUT, half(both, 1 - bit));
        muster_builder_next_round(builder);
    }
}

/* To or from the ranks of the next larger block whose shares make up this one's. */
static void meet_larger(struct muster_builder *builder, const struct muster_group *group,
                        const struct block *block, enum muster_buffer source,
                        struct muster_span whole, bool give)
{
    uint32_t larger = UINT32_C(1) << block->larger_levels;
    for (uint32_t index = block->index; index < larger; index += UINT32_C(1) << block->levels) {
        uint32_t peer = muster_group_rank(group, (uint64_t)block->first - larger + index);
        struct muster_span part = share(whole, index, block->larger_levels);
        if (give) {
            muster_builder_send(builder, peer, source, part);
        } else {
            muster_builder_recv(builder, peer, MUSTER_OUTPUT, part);
        }
    }
    muster_builder_next_round(builder);
}

void muster_halving_doubling_part(struct muster_builder *builder, const struct muster_group *group,
                                  enum muster_buffer source, struct muster_span whole)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, whole, MUSTER_OUTPUT, whole.offset);
        return;
    }
    struct block block = block_of(group->size, group->index);
    struct muster_span mine = share(whole, block.index, block.levels);
    uint32_t smaller = 0; /* the rank of the next smaller block that has what this one needs */
    enum muster_buffer held = halve(builder, group, &block, source, whole);
    if (block.has_smaller) {
        uint32_t index = block.index & ((UINT32_C(1) << block.smaller_levels) - 1);
        smaller = muster_group_rank(group, (uint64_t)block.smaller_first + index);
        muster_builder_recv_reduce(builder, smaller, held, mine, MUSTER_OUTPUT, mine.offset);
        muster_builder_next_round(builder);
        held = MUSTER_OUTPUT;
    }
    if (block.first > 0) {
        meet_larger(builder, group, &block, held, whole, true);
        meet_larger(builder, group, &block, held, whole, false);
    }
    if (block.has_smaller) {
        /* Together with the first round of doubling: both only read this rank's share. */
        muster_builder_send(builder, smaller, MUSTER_OUTPUT, mine);
    }
    collect(builder, group, &block, whole);
}

uint64_t muster_halving_doubling_part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    struct block block = block_of(size, index);
    struct muster_span whole = {.count = count};
    uint64_t mine = share(whole, block.index, block.levels).count;
    uint64_t elements = count - mine;
    for (uint32_t level = 1; level <= block.levels; level++) {
        elements += share(whole, block.index, level).count;
    }
    elements += block.first > 0 ? mine : 0;
    elements += block.has_smaller ? mine : 0;
    return elements;
}

uint32_t muster_halving_doubling_part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    (void)count; /* empty messages are messages */
    struct block block = block_of(size, index);
    /* What goes to the smaller block shares a round with the doubling. */
    return 2 * block.levels + (block.first > 0 ? 2 : 0) + (block.has_smaller ? 1 : 0);
}

muster_status muster_halving_doubling_generate(const struct muster_plan *plan,
                                               struct muster_builder *builder)
{
    struct muster_group all = muster_group_all(plan);
    muster_halving_doubling_part(builder, &all, MUSTER_INPUT,
                                 (struct muster_span){.count = plan->count});
    return MUSTER_OK;
}

/* Rounds and elements are largest at the first rank of some block. */
void muster_halving_doubling_formula(const struct muster_plan *plan,
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
        uint32_t rounds = muster_halving_doubling_part_rounds(plan->count, ranks, first);
        uint64_t elements = muster_halving_doubling_part_elements(plan->count, ranks, first);
        ret_formula->rounds = rounds > ret_formula->rounds ? rounds : ret_formula->rounds;
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    uint32_t levels = muster_log2_down(ranks);
    uint32_t near = muster_formula_near_rounds(plan->topology);
    for (uint32_t level = 0; level < levels; level++) {
        uint64_t sent = plan->count >> (level + 1);
        muster_formula_add(ret_formula, plan->topology, level < near, 2, 2 * sent);
        ret_formula->reduced += sent;
    }
    if (UINT32_C(1) << levels != ranks) {
        /* The smallest block's way up and down the chain of blocks. */
        muster_formula_add(ret_formula, plan->topology, false, 2, 2 * (plan->count >> levels));
    }
}
