/*
 * Broadcast by scatter and allgather: the data is cut into one part for each rank; the parts are
 * scattered down a binomial tree, and then travel around a ring. No rank sends more than about
 * twice the data, however many ranks there are: for large calls.
 *
 * In the ring no rank is sent a part that it has. An inner node of the tree has the parts of all
 * nodes below it already, and the root has all parts.
 *
 * Source: M. Barnett, L. Shuler, R. van de Geijn, S. Gupta, D. G. Payne, J. Watts: Interprocessor
 * collective communication library (InterCom). Scalable High-Performance Computing Conference 1994;
 * R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c).
 *
 * Four ranks, root 0 with parts a b c d (with another root, ranks count from it):
 *
 *   round           0      1      2      3      4
 *   rank 0 sends    cd>2   b>1    a>1    d>1    c>1
 *   rank 1 sends                  b>2    a>2
 *   rank 2 sends           d>3    c>3    b>3    a>3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/subtree.h"

/* Parts [first, end) of the data. */
static struct muster_span parts(const struct muster_plan *plan, uint64_t first, uint64_t end)
{
    const struct muster_span all = {.count = plan->count};
    uint64_t ranks = plan->topology->ranks;
    struct muster_span span = muster_span_part(all, ranks, first);
    struct muster_span last = muster_span_part(all, ranks, end - 1);
    span.count = last.offset + last.count - span.offset;
    return span;
}

/* Parts go down the tree, to the largest subtree first. */
static void scatter(const struct muster_plan *plan, const struct muster_subtree *tree,
                    enum muster_buffer source, struct muster_builder *builder)
{
    if (tree->node == 0) {
        muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = plan->count},
                            MUSTER_OUTPUT, 0);
    } else {
        muster_builder_recv(builder, muster_subtree_parent(tree), MUSTER_OUTPUT,
                            parts(plan, tree->node, tree->end));
        muster_builder_next_round(builder);
    }
    for (uint32_t level = tree->levels; level-- > 0;) {
        if (muster_subtree_has_child(tree, level)) {
            const struct muster_subtree child = muster_subtree_child(tree, level);
            muster_builder_send(builder, muster_subtree_rank(&child), source,
                                parts(plan, child.node, child.end));
            muster_builder_next_round(builder);
        }
    }
}

static bool has(const struct muster_subtree *tree, uint64_t part)
{
    return part >= tree->node && part < tree->end;
}

/* Parts go around the ring, from each rank to the next one. */
static void allgather(const struct muster_plan *plan, const struct muster_subtree *tree,
                      enum muster_buffer source, struct muster_builder *builder)
{
    uint32_t ranks = tree->ranks;
    const struct muster_subtree next = muster_subtree_of(plan, (tree->node + 1) % ranks);
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    for (uint32_t round = 0; round + 1 < ranks; round++) {
        uint64_t outgoing = ((uint64_t)tree->node + ranks - round) % ranks;
        uint64_t incoming = (outgoing + ranks - 1) % ranks;
        if (!has(&next, outgoing)) {
            muster_builder_send(builder, muster_subtree_rank(&next), source,
                                parts(plan, outgoing, outgoing + 1));
        }
        if (!has(tree, incoming)) {
            muster_builder_recv(builder, previous, MUSTER_OUTPUT,
                                parts(plan, incoming, incoming + 1));
        }
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_subtree tree = muster_subtree_own(plan);
    enum muster_buffer source = tree.node == 0 ? MUSTER_INPUT : MUSTER_OUTPUT;
    scatter(plan, &tree, source, builder);
    if (tree.ranks > 1) {
        allgather(plan, &tree, source, builder);
    }
    return MUSTER_OK;
}

/* The root is the busiest rank: it sends all parts but its own down the tree, and all but the next
 * rank's around the ring. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    if (ranks == 1) {
        *ret_formula = (struct muster_formula){.rounds = plan->count > 0};
        return;
    }
    uint32_t rounds = muster_log2_up(ranks) + ranks - 1;
    *ret_formula = (struct muster_formula){.rounds = rounds,
                                           .elements = 2 * plan->count - parts(plan, 0, 2).count};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = 2 * plan->count},
                        ret_formula);
}

const struct muster_generator muster_broadcast_scatter_allgather_generator = {
    .rounds_text = "ceil(log2 P) + P-1",
    .elements_text = "2n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};
