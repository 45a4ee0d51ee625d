/*
 * The shape of a call, as one member sees it: how many elements its buffers hold, how they are cut
 * into blocks, and what stands where at the end. For all who need to know what a collective means:
 * generators, the checker, the context, and tests.
 *
 * Blocks. Where a collective gives each member a part of its own, the buffer that has all parts is
 * cut into one block a rank, in the order of ranks, without gaps: of `count` elements each, or, if
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
 *   pairwise_exchange   count                     count: see muster_shape_partner()
 *   barrier             nothing                   nothing
 */
#ifndef MUSTER_COLLECTIVES_CALL_SHAPE_H
#define MUSTER_COLLECTIVES_CALL_SHAPE_H

#include "collectives/call/collective.h"

/* Elements in one buffer of a call at most; their bytes stay below 2^63. */
#define MUSTER_ELEMENTS_MAX (UINT64_C(1) << 60)

struct muster_shape {
    enum muster_collective collective;
    uint32_t rank, ranks;
    uint32_t root;  /* of broadcast, reduce, gather(v), scatter; else 0 */
    uint64_t count; /* the call's count, elements; unused where there are bounds */
    /* [ranks + 1], from 0 on and never falling, borrowed; or NULL. Those of an alltoallv are this
     * rank's own; in all other collectives every rank has the same. */
    const uint64_t *input_bounds;
    const uint64_t *output_bounds;
    /* [ranks] Of a reproducible sum: the ranks in the order in which their inputs are reduced,
     * whatever their hosts and ranks are; along one tree (terms.h). Borrowed. NULL: any order. */
    const uint32_t *reduction_order;
};

/* MUSTER_INVALID: rank or root out of range, bounds that fall or that the collective has no use
 * for or lacks, counts that overflow. */
MUSTER_CHECKED muster_status muster_shape_check(const struct muster_shape *shape);

uint64_t muster_shape_input_count(const struct muster_shape *shape);
uint64_t muster_shape_output_count(const struct muster_shape *shape);

/* Block number `rank` of a buffer that has blocks, also where this rank itself has nothing there:
 * span.offset counts from the start of the whole. */
struct muster_span muster_shape_input_block(const struct muster_shape *shape, uint32_t rank);
struct muster_span muster_shape_output_block(const struct muster_shape *shape, uint32_t rank);

/* In an in-place call: where INPUT starts, counted in elements from where OUTPUT starts. */
int64_t muster_shape_in_place_offset(const struct muster_shape *shape);

/* With whom a rank exchanges part number `part` (below `ranks`) of a pairwise_exchange, whose
 * buffers are cut in `ranks` parts (muster_span_part()): with everybody once, with itself too. */
uint32_t muster_shape_partner(const struct muster_shape *shape, uint32_t part);

/* What an element of OUTPUT is: element `origin` of one rank's INPUT, or of all reduced. */
struct muster_promise {
    bool reduced;    /* over all ranks */
    uint32_t rank;   /* whose INPUT it comes from; unused if reduced */
    uint64_t origin; /* which element of INPUT */
    uint64_t count;  /* so many elements from this one on continue in the same way */
};

/* Of element `element` of rank's OUTPUT; shapes[i] is rank i's, of one and the same call. */
struct muster_promise muster_shape_promise(const struct muster_shape *shapes, uint32_t rank,
                                           uint64_t element);

/* A sum of all ranks' inputs is made, or one rank is special. */
bool muster_collective_reduces(enum muster_collective collective);
bool muster_collective_has_root(enum muster_collective collective);

/* Its calls say where each block begins, also if all have one size: allgatherv, gatherv and
 * alltoallv. */
bool muster_collective_needs_bounds(enum muster_collective collective);

/* What is sent late stands where what is received early goes to, so that an in-place call needs
 * another schedule: alltoall(v) and pairwise_exchange. */
bool muster_collective_in_place_counts(enum muster_collective collective);

/* True if the rank's INPUT holds something before the call. */
bool muster_shape_contributes(const struct muster_shape *shape);

#endif
