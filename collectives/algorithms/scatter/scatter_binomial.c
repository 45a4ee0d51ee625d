/*
 * Binomial tree scatter: along the gather's tree, from the root down. Every node receives the
 * blocks of all nodes below it, keeps its own and sends the others on, to the farthest child first.
 * ceil(log2 P) rounds; an element moves once for each level. Blocks to be sent on are in SCRATCH,
 * in the order of ranks counted from the root. The root sends the blocks of a subtree in two
 * messages if its ranks wrap around to 0: they are then not adjacent in INPUT.
 *
 * Source: as in gather_binomial.c.
 *
 * Four ranks with blocks a b c d, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 --- cd --------> 2
 *   round 1    0 -- b --> 1       2 -- d --> 3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/subtree.h"

static void send_from_root(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                           struct muster_builder *builder)
{
    muster_builder_copy(builder, MUSTER_INPUT, muster_blocks_at(blocks, tree->root), MUSTER_OUTPUT,
                        0);
    for (uint32_t level = tree->levels; level-- > 0;) {
        const struct muster_subtree child = muster_subtree_child(tree, level);
        struct muster_span spans[2];
        uint32_t count = muster_subtree_spans(&child, blocks, spans);
        for (uint32_t i = 0; i < count; i++) {
            muster_builder_send(builder, muster_subtree_rank(&child), MUSTER_INPUT, spans[i]);
        }
        muster_builder_next_round(builder);
    }
}

/* Receives the blocks of the whole tree at the start of `target`. */
static void receive(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                    enum muster_buffer target, struct muster_builder *builder)
{
    struct muster_span spans[2];
    uint32_t count = muster_subtree_messages(tree, blocks, spans);
    for (uint32_t i = 0; i < count; i++) {
        muster_builder_recv(builder, muster_subtree_parent(tree), target, spans[i]);
    }
    muster_builder_next_round(builder);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_subtree tree = muster_subtree_own(plan);
    if (tree.node == 0) {
        send_from_root(&tree, &blocks, builder);
        return MUSTER_OK;
    }
    if (!muster_subtree_has_child(&tree, 0)) {
        receive(&tree, &blocks, MUSTER_OUTPUT, builder);
        return MUSTER_OK;
    }
    (void)muster_builder_reserve(builder, muster_subtree_count(&tree, &blocks));
    receive(&tree, &blocks, MUSTER_SCRATCH, builder);
    muster_builder_copy(builder, MUSTER_SCRATCH, (struct muster_span){.count = plan->count},
                        MUSTER_OUTPUT, 0);
    for (uint32_t level = tree.levels; level-- > 0;) {
        if (muster_subtree_has_child(&tree, level)) {
            const struct muster_subtree child = muster_subtree_child(&tree, level);
            struct muster_span span = {.offset = (child.node - tree.node) * plan->count,
                                       .count = muster_subtree_count(&child, &blocks)};
            muster_builder_send(builder, muster_subtree_rank(&child), MUSTER_SCRATCH, span);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    uint64_t others = (ranks - 1) * plan->count;
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = others};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = others}, ret_formula);
}

const struct muster_generator muster_scatter_binomial_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
