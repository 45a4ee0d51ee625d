/*
 * PAT reduce-scatter: the sum of every block goes up a binomial tree of its own, to far ranks last;
 * small blocks between the same two ranks share a message. It is the PAT allgather backward: from
 * log2 P rounds, if all blocks of a round fit into one message, to P-1, if each has its own. Each
 * rank sends P-1 blocks.
 *
 * Source: S. Jeaugey (see pat.h).
 *
 * Four ranks, small blocks; digits are blocks:
 *
 *   round 0    0 -> 3: 31    1 -> 0: 02    2 -> 1: 13    3 -> 2: 20
 *   round 1    0 -> 2: 2     1 -> 3: 3     2 -> 0: 0     3 -> 1: 1
 *
 * Large ones:
 *
 *   round 0    0 -> 3: 1     1 -> 0: 2     2 -> 1: 3     3 -> 2: 0
 *   round 1    0 -> 2: 2     1 -> 3: 3     2 -> 0: 0     3 -> 1: 1
 *   round 2    0 -> 3: 3     1 -> 0: 0     2 -> 1: 1     3 -> 2: 2
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/pat.h"

/* The messages of a round, in the direction opposite to the allgather's. The last round writes to
 * OUTPUT. */
static void move(const struct muster_pat *pat, struct muster_builder *builder,
                 const struct muster_pat_round *round, bool last)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct muster_pat_message message;
        if (!muster_pat_message(pat, round, i, &message)) {
            continue;
        }
        muster_builder_send(builder, message.parent, MUSTER_SCRATCH, message.to);
        muster_builder_recv_reduce(builder, message.child, MUSTER_SCRATCH, message.from,
                                   last ? MUSTER_OUTPUT : MUSTER_SCRATCH,
                                   last ? 0 : message.from.offset);
    }
}

/* Copies this rank's own input for the node in each of the `roots` subtrees to SCRATCH at `at`,
 * where the sums of the nodes below are received. */
static void load(const struct muster_pat *pat, struct muster_builder *builder, uint32_t node,
                 uint64_t at, uint32_t roots)
{
    for (uint32_t i = 0; i < roots; i++) {
        uint32_t mine = muster_pat_root(pat, i) + node;
        if (mine < pat->ranks) {
            struct muster_span block = muster_pat_block(pat, mine);
            muster_builder_copy(builder, MUSTER_INPUT, block, MUSTER_SCRATCH, at);
            at += block.count;
        }
    }
}

/* Loads the nodes whose areas in SCRATCH become free with the round of node `next`. Nodes are
 * handled from the highest number down, and the nodes with the same lowest set bit share an area:
 * node next - 2^level follows node next + 2^level there, for each level below next's lowest bit. */
static void load_before(const struct muster_pat *pat, struct muster_builder *builder, uint32_t next)
{
    uint32_t roots = UINT32_C(1) << (pat->levels - pat->linear);
    for (uint32_t level = 0; level < (uint32_t)__builtin_ctz(next); level++) {
        load(pat, builder, next - (UINT32_C(1) << level), pat->base[level], roots);
    }
}

static void generate_aggregated(struct muster_pat *pat, struct muster_builder *builder)
{
    muster_pat_reserve(pat, builder);
    load(pat, builder, 0, pat->base[pat->linear], UINT32_C(1) << (pat->levels - pat->linear));
    load_before(pat, builder, UINT32_C(1) << pat->linear);
    muster_builder_next_round(builder);
    for (uint32_t number = muster_pat_rounds(pat); number-- > 0;) {
        struct muster_pat_round round = muster_pat_round(pat, number);
        move(pat, builder, &round, number == 0);
        if (number >= pat->levels - pat->linear) {
            load_before(pat, builder, round.to);
        }
        muster_builder_next_round(builder);
    }
}

/* Each block has a message of its own. Partial sums wait in one slot for each level, as only one
 * node of a level waits at a time. */
static void generate_single(struct muster_pat *pat, struct muster_builder *builder)
{
    uint32_t ranks = pat->ranks;
    uint64_t largest = muster_blocks_largest(&pat->blocks);
    for (uint32_t level = 1; level <= pat->levels && ranks > 2; level++) {
        bool waits = level == pat->levels || (UINT32_C(1) << level) + 1 < ranks;
        pat->base[level] = waits ? muster_builder_reserve(builder, largest) : 0;
    }
    for (uint32_t from = ranks; from-- > 1;) { /* the node that sends up */
        uint32_t low = from & -from;
        uint32_t to = from - low;
        uint32_t level = to == 0 ? pat->levels : (uint32_t)__builtin_ctz(to);
        struct muster_span out = muster_pat_block(pat, from);
        struct muster_span in = muster_pat_block(pat, to);
        bool leaf = low == 1 || from + 1 >= ranks;
        bool last = from == 1;
        bool first =
            2 * low == (to & -to) || to + 2 * low >= ranks; /* the first message to that node */
        struct muster_span there = {.offset = pat->base[level], .count = in.count};
        if (!leaf) {
            out.offset = pat->base[__builtin_ctz(from)];
        }
        muster_builder_send(builder, (pat->rank + ranks - low) % ranks,
                            leaf ? MUSTER_INPUT : MUSTER_SCRATCH, out);
        muster_builder_recv_reduce(builder, (pat->rank + low) % ranks,
                                   first ? MUSTER_INPUT : MUSTER_SCRATCH, first ? in : there,
                                   last ? MUSTER_OUTPUT : MUSTER_SCRATCH, last ? 0 : there.offset);
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    struct muster_pat pat = muster_pat_of(plan, &blocks);
    if (pat.ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, muster_pat_block(&pat, 0), MUSTER_OUTPUT, 0);
    } else if (muster_pat_is_aggregated(&pat)) {
        generate_aggregated(&pat, builder);
    } else {
        generate_single(&pat, builder);
    }
    return MUSTER_OK;
}

/* Every rank sends all blocks but its own. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    struct muster_pat pat = muster_pat_of(plan, &blocks);
    uint64_t total = muster_blocks_total(&blocks);
    uint64_t elements = total - muster_blocks_smallest(&blocks);
    uint32_t copies = total > 0 && (blocks.ranks == 1 || muster_pat_is_aggregated(&pat)) ? 1 : 0;
    *ret_formula = (struct muster_formula){
        .rounds = muster_pat_rounds(&pat) + copies, .elements = elements, .reduced = elements};
    muster_pat_formula(&pat, plan->topology, ret_formula);
}

const struct muster_generator muster_reduce_scatter_pat_generator = {
    .rounds_text = "A + P/2^A - 1, A = log2 of the blocks in a message; A > 0: 1 more",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
