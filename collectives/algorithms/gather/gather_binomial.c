/*
 * Binomial tree gather and gatherv: every node collects the blocks of the nodes below it behind its
 * own, and sends them on in one message. ceil(log2 P) rounds; an element moves once for each level.
 * An inner node collects the blocks in SCRATCH, in the order of ranks counted from the root. It
 * sends them to the root in two messages if its subtree's ranks wrap around to 0: they are then not
 * adjacent in OUTPUT.
 *
 * Source: E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory,
 * practice, and experience. Concurrency and Computation 19 (2007) (the gather on a minimum spanning
 * tree).
 *
 * Four ranks with blocks a b c d, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 <-- b --- 1    2 <-- d -- 3
 *   round 1    0 <-------- cd -- 2
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/subtree.h"

/* The root receives each child's blocks at their places in OUTPUT. */
static void collect_at_root(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                            struct muster_builder *builder)
{
    struct muster_span own = muster_blocks_at(blocks, tree->root);
    muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = own.count},
                        MUSTER_OUTPUT, own.offset);
    for (uint32_t level = 0; muster_subtree_has_child(tree, level); level++) {
        const struct muster_subtree child = muster_subtree_child(tree, level);
        struct muster_span spans[2];
        uint32_t count = muster_subtree_spans(&child, blocks, spans);
        for (uint32_t i = 0; i < count; i++) {
            muster_builder_recv(builder, muster_subtree_rank(&child), MUSTER_OUTPUT, spans[i]);
        }
        muster_builder_next_round(builder);
    }
}

/* An inner node: its own block at the start of SCRATCH, then those of each child. */
static void collect_in_scratch(const struct muster_subtree *tree,
                               const struct muster_blocks *blocks, struct muster_builder *builder)
{
    uint64_t place = muster_blocks_at(blocks, muster_subtree_rank(tree)).count;
    (void)muster_builder_reserve(builder, muster_subtree_count(tree, blocks));
    muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = place}, MUSTER_SCRATCH,
                        0);
    for (uint32_t level = 0; muster_subtree_has_child(tree, level); level++) {
        const struct muster_subtree child = muster_subtree_child(tree, level);
        struct muster_span span = {.offset = place, .count = muster_subtree_count(&child, blocks)};
        muster_builder_recv(builder, muster_subtree_rank(&child), MUSTER_SCRATCH, span);
        muster_builder_next_round(builder);
        place += span.count;
    }
}

static void send_to_parent(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                           enum muster_buffer source, struct muster_builder *builder)
{
    struct muster_span spans[2];
    uint32_t count = muster_subtree_messages(tree, blocks, spans);
    for (uint32_t i = 0; i < count; i++) {
        muster_builder_send(builder, muster_subtree_parent(tree), source, spans[i]);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_subtree tree = muster_subtree_own(plan);
    if (tree.node == 0) {
        collect_at_root(&tree, &blocks, builder);
        return MUSTER_OK;
    }
    bool leaf = !muster_subtree_has_child(&tree, 0);
    if (!leaf) {
        collect_in_scratch(&tree, &blocks, builder);
    }
    send_to_parent(&tree, &blocks, leaf ? MUSTER_INPUT : MUSTER_SCRATCH, builder);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t ranks = blocks.ranks;
    uint64_t own = muster_blocks_at(&blocks, plan->root).count;
    uint64_t most = 0; /* elements that one rank sends */
    for (uint32_t node = 1; node < ranks; node++) {
        const struct muster_subtree tree = muster_subtree_of(plan, node);
        uint64_t count = muster_subtree_count(&tree, &blocks);
        most = count > most ? count : most;
    }
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? own > 0 : muster_log2_up(ranks),
                                           .elements = most};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = muster_log2_up(ranks),
                                             .elements = muster_blocks_total(&blocks) - own},
                        ret_formula);
}

const struct muster_generator muster_gather_binomial_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "n 2^(ceil(log2 P) - 1) or less",
    .generate = generate,
    .formula = find_formula,
};
