/*
 * Binomial trees whose inner nodes carry the blocks of all nodes below them. Nodes are ranks
 * counted from the root, so that the nodes of a subtree have consecutive numbers. The root's buffer
 * is in the order of ranks, so that a subtree's blocks may wrap around its end.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_SUBTREE_H
#define MUSTER_COLLECTIVES_ALGORITHMS_SUBTREE_H

#include "collectives/algorithms/blocks.h"

struct muster_subtree {
    uint32_t ranks, root;
    uint32_t node; /* 0: the root */
    uint32_t end;  /* the nodes of the subtree are [node, end) */
    uint32_t
        levels; /* child number k is node + 2^k, for k < levels and as far as it is below `end` */
};

struct muster_subtree muster_subtree_of(const struct muster_plan *plan, uint32_t node);

/* The subtree of the plan's own rank. */
struct muster_subtree muster_subtree_own(const struct muster_plan *plan);

/* The subtree of child number `level`. */
struct muster_subtree muster_subtree_child(const struct muster_subtree *tree, uint32_t level);

/* True if there is such a child. */
bool muster_subtree_has_child(const struct muster_subtree *tree, uint32_t level);

uint32_t muster_subtree_rank(const struct muster_subtree *tree);
uint32_t
muster_subtree_parent(const struct muster_subtree *tree); /* the parent's rank; not for the root */

/* Where the blocks of the subtree are in the root's buffer: one span, or two if they wrap around.
 * Returns the number of spans. */
uint32_t muster_subtree_spans(const struct muster_subtree *tree, const struct muster_blocks *blocks,
                              struct muster_span ret_spans[2]);

/* The messages between the node and its parent, as spans of the node's own copy of the blocks: one
 * for each span in the root's buffer if the parent is the root, else one. Returns their number. */
uint32_t muster_subtree_messages(const struct muster_subtree *tree,
                                 const struct muster_blocks *blocks,
                                 struct muster_span ret_spans[2]);

/* Elements of all blocks of the subtree. */
uint64_t muster_subtree_count(const struct muster_subtree *tree,
                              const struct muster_blocks *blocks);

#endif
