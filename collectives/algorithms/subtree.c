/* Binomial trees whose nodes carry blocks: subtrees, and where their blocks are. */
#include "collectives/algorithms/subtree.h"

#include "collectives/algorithms/generators.h"

/* A subtree's size is given by the lowest set bit of its node. */
struct muster_subtree muster_subtree_of(const struct muster_plan *plan, uint32_t node)
{
    struct muster_subtree tree = {.ranks = plan->topology->ranks, .root = plan->root, .node = node};
    tree.levels = node == 0 ? muster_log2_up(tree.ranks) : (uint32_t)__builtin_ctz(node);
    uint64_t end = (uint64_t)node + (UINT64_C(1) << tree.levels);
    tree.end = end < tree.ranks ? (uint32_t)end : tree.ranks;
    return tree;
}

struct muster_subtree muster_subtree_own(const struct muster_plan *plan)
{
    uint32_t ranks = plan->topology->ranks;
    return muster_subtree_of(plan, (plan->rank + ranks - plan->root) % ranks);
}

bool muster_subtree_has_child(const struct muster_subtree *tree, uint32_t level)
{
    return level < tree->levels && tree->node + (UINT64_C(1) << level) < tree->end;
}

struct muster_subtree muster_subtree_child(const struct muster_subtree *tree, uint32_t level)
{
    struct muster_subtree child = *tree;
    uint64_t end = (uint64_t)tree->node + (UINT64_C(2) << level);
    child.node = tree->node + (UINT32_C(1) << level);
    child.end = end < tree->end ? (uint32_t)end : tree->end;
    child.levels = level;
    return child;
}

uint32_t muster_subtree_rank(const struct muster_subtree *tree)
{
    return (uint32_t)(((uint64_t)tree->node + tree->root) % tree->ranks);
}

uint32_t muster_subtree_parent(const struct muster_subtree *tree)
{
    uint64_t parent = tree->node - (UINT64_C(1) << tree->levels);
    return (uint32_t)((parent + tree->root) % tree->ranks);
}

uint32_t muster_subtree_spans(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                              struct muster_span ret_spans[2])
{
    uint32_t first = muster_subtree_rank(tree);
    uint64_t end = (uint64_t)first + tree->end - tree->node;
    if (end <= tree->ranks) {
        ret_spans[0] = muster_blocks_range(blocks, first, end);
        return 1;
    }
    ret_spans[0] = muster_blocks_range(blocks, first, tree->ranks);
    ret_spans[1] = muster_blocks_range(blocks, 0, end - tree->ranks);
    return 2;
}

uint64_t muster_subtree_count(const struct muster_subtree *tree, const struct muster_blocks *blocks)
{
    struct muster_span spans[2] = {{0}};
    (void)muster_subtree_spans(tree, blocks, spans);
    return spans[0].count + spans[1].count;
}

uint32_t muster_subtree_messages(const struct muster_subtree *tree,
                                 const struct muster_blocks *blocks,
                                 struct muster_span ret_spans[2])
{
    if (muster_subtree_parent(tree) != tree->root) {
        ret_spans[0] = (struct muster_span){.count = muster_subtree_count(tree, blocks)};
        return 1;
    }
    uint32_t count = muster_subtree_spans(tree, blocks, ret_spans);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        ret_spans[i].offset = offset;
        offset += ret_spans[i].count;
    }
    return count;
}
