/*
 * Binomial trees whose inner nodes carry the blocks of all below them. Nodes are ranks counted from
 * the root, so that those below a node follow it without gaps; in the root's buffer, which goes by
 * ranks as they are, they may go on at its start.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_SUBTREE_H
#define MUSTER_COLLECTIVES_ALGORITHMS_SUBTREE_H

#include "collectives/algorithms/blocks.h"

struct muster_subtree {
    uint32_t ranks, root;
    uint32_t node;   /* 0: the root */
    uint32_t end;    /* the node and those below it are [node, end) */
    uint32_t levels; /* its child number k is node + 2^k, for k < levels as far as below `end` */
};

struct muster_subtree muster_subtree_of(const struct muster_plan *plan, uint32_t node);

/* Of the plan's own rank. */
struct muster_subtree muster_subtree_own(const struct muster_plan *plan);

/* The tree below child number `level`. */
struct muster_subtree muster_subtree_child(const struct muster_subtree *tree, uint32_t level);

/* True if there is such a child. */
bool muster_subtree_has_child(const struct muster_subtree *tree, uint32_t level);

uint32_t muster_subtree_rank(const struct muster_subtree *tree);
uint32_t muster_subtree_parent(const struct muster_subtree *tree); /* its rank; not of the root */

/* Where the blocks of the tree stand in the root's buffer: in one piece, or in two if they go on at
 * its start. Returns the number of pieces. */
uint32_t muster_subtree_pieces(const struct muster_subtree *tree,
                               const struct muster_blocks *blocks,
                               struct muster_span ret_pieces[2]);

/* The messages between the node and its parent, as spans of what the node has: the pieces that
 * stand in the root's buffer, if that is the parent, else one. Returns their number. */
uint32_t muster_subtree_messages(const struct muster_subtree *tree,
                                 const struct muster_blocks *blocks,
                                 struct muster_span ret_spans[2]);

/* Elements of the blocks of the tree. */
uint64_t muster_subtree_count(const struct muster_subtree *tree,
                              const struct muster_blocks *blocks);

#endif
