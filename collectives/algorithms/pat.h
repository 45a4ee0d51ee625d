/*
 * Parallel aggregated trees, for allgather_pat.c and reduce_scatter_pat.c.
 *
 * Every block has a binomial tree of all ranks. In the tree of rank b's block a rank is the node
 * whose number is the rank's distance from b, modulo P. A node's parent is the node without its
 * lowest set bit. An allgather sends blocks down their trees, and a reduce-scatter reduces them on
 * the same way up. All ranks do the same at the same time, each as another node of every tree.
 *
 * Nodes that are multiples of 2^linear are called roots: each has a subtree of 2^linear nodes. On
 * the way down, the first rounds reach all roots, the farthest first, in at most one round a bit:
 * every root that has the block sends it on, and all blocks between the same two ranks are
 * aggregated in one message. Then the subtrees of all roots are handled in parallel, node after
 * node in the order of their numbers: every round has one message, with one block for each root.
 * Blocks are sent on soon after they arrive, so that buffers for `linear` messages are enough,
 * however many ranks there are.
 *
 * Source: S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale
 * (2025), arXiv:2506.20252.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_PAT_H
#define MUSTER_COLLECTIVES_ALGORITHMS_PAT_H

#include "collectives/algorithms/blocks.h"

/* Blocks are aggregated to messages of about so many elements. */
#define MUSTER_PAT_MESSAGE_ELEMENTS UINT64_C(16384)

struct muster_pat {
    struct muster_blocks blocks;
    uint32_t rank, ranks;
    uint32_t levels;   /* bits of a node's number */
    uint32_t linear;   /* bits whose nodes are handled one by one */
    uint64_t base[33]; /* areas in SCRATCH, for nodes with this lowest set bit; [linear]: roots */
};

/* On the way down: a message from node `from` of each root's subtree to node `to`. */
struct muster_pat_round {
    uint32_t from, to;
    uint32_t roots;   /* that take part: the first ones in the order of muster_pat_root() */
    uint32_t skipped; /* index of the only root that has a node `from` but no `to`; or `roots` */
    uint64_t from_at; /* in SCRATCH */
    uint64_t to_at;
};

/* With messages as large as blocks of this size allow. No scratch is reserved yet. */
struct muster_pat muster_pat_of(const struct muster_plan *plan, const struct muster_blocks *blocks);

/* True if several blocks share a message; they then go through SCRATCH. */
bool muster_pat_is_aggregated(const struct muster_pat *pat);

/* Rounds that have messages. */
uint32_t muster_pat_rounds(const struct muster_pat *pat);

/* Only if it is aggregated, and after muster_pat_reserve(). */
struct muster_pat_round muster_pat_round(const struct muster_pat *pat, uint32_t number);

/* One of the at most two messages of a round on this rank: the blocks of some neighbouring roots.
 * The skipped root lies between the two. */
struct muster_pat_message {
    uint32_t end;                /* index behind its last root */
    struct muster_span from, to; /* where its blocks are in SCRATCH, as nodes `from` and `to` */
    uint32_t child, parent;      /* the ranks that it is sent to and received from */
};
/* `number` is 0 or 1. False: there is no such message. */
bool muster_pat_message(const struct muster_pat *pat, const struct muster_pat_round *round,
                        uint32_t number, struct muster_pat_message *ret_message);

/* The roots' node numbers, in the order in which blocks reach them: the first 2^k roots are the
 * parents of the following 2^k. Numbers of P and above do not exist. */
uint32_t muster_pat_root(const struct muster_pat *pat, uint32_t index);

/* The block in whose tree this rank is this node. */
struct muster_span muster_pat_block(const struct muster_pat *pat, uint32_t node);

/* The number of blocks, and of their elements, for which this rank is node `node` in the subtree of
 * one of the roots [first, end). */
uint32_t muster_pat_nodes(const struct muster_pat *pat, uint32_t node, uint32_t first,
                          uint32_t end);
uint64_t muster_pat_elements(const struct muster_pat *pat, uint32_t node, uint32_t first,
                             uint32_t end);

/* Reserves an area for one message of each level of nodes. */
void muster_pat_reserve(struct muster_pat *pat, struct muster_builder *builder);

/* Adds the critical path: all messages, one after the other. */
void muster_pat_formula(const struct muster_pat *pat, const struct muster_topology *topology,
                        struct muster_formula *ret_formula);

#endif
