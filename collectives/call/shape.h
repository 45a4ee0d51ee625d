/*
 * The shape of a call on one rank: how many elements its buffers hold, how they are cut into
 * blocks, and what OUTPUT must hold at the end. It defines what each collective means, for
 * generators, the checker, the context, and tests.
 *
 * Blocks. Where each rank has a part of its own, the buffer that holds all parts is cut into one
 * block for each rank, in the order of ranks, without gaps. Each block has `count` elements, or, if
 * there are bounds, block i is [bounds[i], bounds[i + 1]).
 *
 *   collective          INPUT                     OUTPUT
 *   allreduce           count                     count
 *   reduce              count                     count at the root, else nothing
 *   reduce_scatter      blocks (input_bounds)     this rank's block
 *   allgather(v)        this rank's block         blocks (output_bounds)
 *   gather(v)           this rank's block         blocks (output_bounds) at the root, else nothing
 *   scatter             blocks (input_bounds)     this rank's block
 *                       at the root, else nothing
 *   broadcast           count                     count
 *   alltoall(v)         blocks (input_bounds),    blocks (output_bounds),
 *                       block i goes to rank i    block i comes from rank i
 *   pairwise_exchange   count                     count: part k from the rank whose
 *                                                 number differs in bit k
 *   barrier             nothing                   nothing
 */
#ifndef MUSTER_COLLECTIVES_CALL_SHAPE_H
#define MUSTER_COLLECTIVES_CALL_SHAPE_H

#include "collectives/call/collective.h"

/* The most elements in one buffer of a call; their bytes stay below 2^63. */
#define MUSTER_ELEMENTS_MAX (UINT64_C(1) << 60)

struct muster_shape {
    enum muster_collective collective;
    uint32_t rank, ranks;
    uint32_t root;  /* of broadcast, reduce, gather(v), scatter; else 0 */
    uint64_t count; /* the call's count, in elements; unused if there are bounds */
    /* [ranks + 1] The first is 0, and none is below the one before it. Borrowed, or NULL. In an
     * alltoallv they are this rank's own; in all other collectives all ranks have the same. */
    const uint64_t *input_bounds;
    const uint64_t *output_bounds;
    /* [ranks] Of a reproducible sum: the ranks in the order in which their inputs are reduced,
     * whatever their hosts and ranks are; along one tree (terms.h). Borrowed. NULL: any order. */
    const uint32_t *reduction_order;
    /* Of a pairwise_exchange: into how many parts the data are cut. 0: muster_pairwise_steps_max().
     */
    uint32_t steps;
};

/* MUSTER_INVALID: rank or root out of range; bounds that decrease, that are missing, or that the
 * collective does not have; counts that overflow. */
MUSTER_CHECKED muster_status muster_shape_check(const struct muster_shape *shape);

uint64_t muster_shape_input_count(const struct muster_shape *shape);
uint64_t muster_shape_output_count(const struct muster_shape *shape);

/* Block number `rank` of a buffer that has blocks, also if this rank itself does not have the
 * buffer. span.offset counts from the start of the buffer. */
struct muster_span muster_shape_input_block(const struct muster_shape *shape, uint32_t rank);
struct muster_span muster_shape_output_block(const struct muster_shape *shape, uint32_t rank);

/* In an in-place call: the offset of INPUT from OUTPUT, in elements. */
int64_t muster_shape_in_place_offset(const struct muster_shape *shape);

/* A pairwise_exchange cuts the data into parts (muster_span_part()), and exchanges one in a step.
 * The number of steps, at least 1; the most that so many ranks can have, log2 rounded down; and the
 * partner for part number `part`: the rank whose number differs in that bit, or the rank itself if
 * there is none. */
uint32_t muster_shape_steps(const struct muster_shape *shape);
uint32_t muster_pairwise_steps_max(uint32_t ranks);
uint32_t muster_shape_partner(const struct muster_shape *shape, uint32_t part);

/* What an element of OUTPUT must be: element `origin` of one rank's INPUT, or of all ranks'
 * reduced. */
struct muster_expected {
    bool reduced;    /* over all ranks */
    uint32_t rank;   /* whose INPUT it is from; unused if reduced */
    uint64_t origin; /* which element of INPUT */
    uint64_t count;  /* so many elements, with this one, continue in the same way */
};

/* The expected value of one element of rank's OUTPUT. shapes[i] is that of rank i; all are of one
 * call.
 */
struct muster_expected muster_shape_expected(const struct muster_shape *shapes, uint32_t rank,
                                             uint64_t element);

/* True if all ranks' inputs are reduced; true if it has a root. */
bool muster_collective_reduces(enum muster_collective collective);
bool muster_collective_has_root(enum muster_collective collective);

/* True if its calls have bounds, also when all blocks have one size: allgatherv, gatherv and
 * alltoallv. */
bool muster_collective_needs_bounds(enum muster_collective collective);

/* True if an in-place call needs another schedule, because elements that are sent late lie where
 * others are received early: alltoall(v) and pairwise_exchange. */
bool muster_collective_in_place_counts(enum muster_collective collective);

/* True if in an in-place call OUTPUT has elements of INPUT that the result changes: where inputs
 * are reduced or exchanged. In the others a rank's own block is the same before and after. */
bool muster_collective_overwrites_input(enum muster_collective collective);

/* True if no rank finishes before all ranks have started, whatever the algorithm and the counts
 * are: each rank's result needs all ranks, and empty messages are sent, too. The tests prove it of
 * every algorithm. Of the others some ranks only send, or need the root only. */
bool muster_collective_synchronizes(enum muster_collective collective);

/* True if the rank's INPUT is part of the result; only in a broadcast some are not. */
bool muster_shape_contributes(const struct muster_shape *shape);

#endif
