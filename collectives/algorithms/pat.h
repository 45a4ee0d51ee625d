/*
 * Parallel aggregated trees, for allgather_pat.c and reduce_scatter_pat.c.
 *
 * Every block has a binomial tree of the ranks, each rank being a node: that of rank b's block
 * whose number is the rank's distance from b, modulo P. A node's parent lies its lowest bit before
 * it. An allgather takes blocks down their trees and a reduce-scatter sums them up on the same ways
 * back; all ranks do the same at the same time, each in its own place of every tree.
 *
 * Nodes that are multiples of 2^linear are called roots: each has a tree of 2^linear nodes below
 * it. Down, the first rounds reach all roots, farthest first, at most one round a bit: in each,
 * every root that has the block gives it on, and all that go between the same two ranks are
 * aggregated in one message. Then all roots' trees are gone through in parallel, node after node,
 * in the order of their numbers: every round has one message with a block for each root. Blocks are
 * passed on soon after they come, so that buffers for `linear` messages are enough, however many
 * ranks there are.
 *
 * Source: S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale
 * (2025), arXiv:2506.20252.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_PAT_H
#define MUSTER_COLLECTIVES_ALGORITHMS_PAT_H

#include "collectives/algorithms/blocks.h"

/* Elements of one message, about, that blocks are aggregated to. */
#define MUSTER_PAT_MESSAGE_ELEMENTS UINT64_C(16384)

struct muster_pat {
    struct muster_blocks blocks;
    uint32_t rank, ranks;
    uint32_t levels;   /* bits of a node's number */
    uint32_t linear;   /* of them are gone through node by node */
    uint64_t base[33]; /* in SCRATCH, of the area for nodes with this lowest bit; [linear]: roots */
};

/* Down, a message that goes from node `from` of each root's tree to node `to`. */
struct muster_pat_round {
    uint32_t from, to;
    uint32_t roots;   /* those that take part, in their order: see muster_pat_root() */
    uint32_t skipped; /* number of the only root that has a node `from` but no `to`; or `roots` */
    uint64_t from_at; /* in SCRATCH */
    uint64_t to_at;
};

/* As large messages as blocks of this size allow. Nothing is reserved yet. */
struct muster_pat muster_pat_of(const struct muster_plan *plan, const struct muster_blocks *blocks);

/* Several blocks go in one message, by way of SCRATCH. */
bool muster_pat_is_aggregated(const struct muster_pat *pat);

/* Rounds that have messages. */
uint32_t muster_pat_rounds(const struct muster_pat *pat);

/* Of an aggregated one, after muster_pat_reserve(). */
struct muster_pat_round muster_pat_round(const struct muster_pat *pat, uint32_t number);

/* One of the at most two messages of a round, on this rank: of roots [first, end), without the one
 * in the middle that does not go on. */
struct muster_pat_message {
    uint32_t end;
    struct muster_span from, to; /* where its blocks stand in SCRATCH, as those of such nodes */
    uint32_t child, parent;      /* the ranks to which it goes down, and from which it comes */
};
/* Number 0 or 1; false: there is none. */
bool muster_pat_message(const struct muster_pat *pat, const struct muster_pat_round *round,
                        uint32_t number, struct muster_pat_message *ret_message);

/* The roots, in the order in which blocks come to them: any 2^k first of them have nodes that the
 * following 2^k have as parents. Numbers of P and above do not exist. */
uint32_t muster_pat_root(const struct muster_pat *pat, uint32_t index);

/* The block whose tree this rank has this place in. */
struct muster_span muster_pat_block(const struct muster_pat *pat, uint32_t node);

/* Blocks, and their elements, that this rank has as node `node` of roots [first, end). */
uint32_t muster_pat_nodes(const struct muster_pat *pat, uint32_t node, uint32_t first,
                          uint32_t end);
uint64_t muster_pat_elements(const struct muster_pat *pat, uint32_t node, uint32_t first,
                             uint32_t end);

/* Areas for one message of each kind of nodes. */
void muster_pat_reserve(struct muster_pat *pat, struct muster_builder *builder);

/* The ways of all messages, one after the other. */
void muster_pat_formula(const struct muster_pat *pat, const struct muster_topology *topology,
                        struct muster_formula *ret_formula);

#endif
