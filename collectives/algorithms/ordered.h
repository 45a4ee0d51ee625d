/*
 * Reproducible sums: what the algorithms called ordered_* share. Each element is reduced along one
 * tree over the reduction order (terms.h), so that the same inputs in the same order give the same
 * bits, whatever the algorithm, the ranks and the hosts.
 *
 * Source: P. Balaji, D. Kimpe: On the reproducibility of MPI reduction operations. HPCC 2013, for
 * fixing the order by the contributing processes and not by the topology; the tree is that of
 * binomial reductions and of recursive halving, so that those follow it without further work.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_ORDERED_H
#define MUSTER_COLLECTIVES_ALGORITHMS_ORDERED_H

#include "collectives/schedule/builder.h"

/* A partial sum and where it is stored: the sum of the inputs at the places first to first +
 * 2^level of the reduction order, as far as there are any. */
struct muster_partial_sum {
    uint32_t first, level;
    enum muster_buffer buffer;
    uint64_t at; /* its first element there */
};

/* Reduces all pairs of partial sums that are the two halves of a larger one, until there is no such
 * pair left, in passes of one round each. nodes[0..*count) rise by place, and are single inputs or
 * what an earlier call left, of a group of `size`. A sum in OUTPUT stays there; one in INPUT is
 * only read. Without a builder (NULL) no steps are added. Returns the number of passes. */
uint32_t muster_ordered_merge(struct muster_builder *builder, uint32_t size, uint64_t elements,
                              struct muster_partial_sum *nodes, uint32_t *count);

#endif
