/*
 * What the files of this folder give to the table, and to each other.
 *
 * A `generate` adds one rank's steps; a `formula` says what they must add up to. A `part` runs an
 * allreduce among the ranks of a group on one span: it reads `source` (INPUT or OUTPUT) and leaves
 * the result in OUTPUT, at the same place.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H
#define MUSTER_COLLECTIVES_ALGORITHMS_GENERATORS_H

#include "collectives/builder.h"

/* ring.c */
muster_status muster_ring_generate(const struct muster_plan *plan, struct muster_builder *builder);
void muster_ring_formula(const struct muster_plan *plan, struct muster_formula *ret_formula);
void muster_ring_part(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span);
uint64_t muster_ring_part_elements(uint64_t count, uint32_t size, uint32_t index);
uint32_t muster_ring_part_rounds(uint32_t size, uint32_t index);

/* ring_chunked.c */
muster_status muster_ring_chunked_generate(const struct muster_plan *plan,
                                           struct muster_builder *builder);
void muster_ring_chunked_formula(const struct muster_plan *plan,
                                 struct muster_formula *ret_formula);

/* allgather_ring.c */
muster_status muster_allgather_ring_generate(const struct muster_plan *plan,
                                             struct muster_builder *builder);
void muster_allgather_ring_formula(const struct muster_plan *plan,
                                   struct muster_formula *ret_formula);

/* reduce_scatter_ring.c */
muster_status muster_reduce_scatter_ring_generate(const struct muster_plan *plan,
                                                  struct muster_builder *builder);
void muster_reduce_scatter_ring_formula(const struct muster_plan *plan,
                                        struct muster_formula *ret_formula);

/* broadcast_binomial.c */
muster_status muster_broadcast_binomial_generate(const struct muster_plan *plan,
                                                 struct muster_builder *builder);
void muster_broadcast_binomial_formula(const struct muster_plan *plan,
                                       struct muster_formula *ret_formula);

/* barrier_dissemination.c */
muster_status muster_barrier_dissemination_generate(const struct muster_plan *plan,
                                                    struct muster_builder *builder);
void muster_barrier_dissemination_formula(const struct muster_plan *plan,
                                          struct muster_formula *ret_formula);

/* Whole messages as long as everything went between hosts, if there is more than one host, else
 * within the one; `uplink` ranks of a host send at a time. */
void muster_formula_flat(const struct muster_topology *topology, struct muster_path path,
                         uint32_t uplink, struct muster_formula *ret_formula);

/* The smallest k with 2^k >= value; value >= 1. */
static inline uint32_t muster_log2_up(uint32_t value)
{
    return value <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(value - 1);
}

/* The largest k with 2^k <= value; value >= 1. */
static inline uint32_t muster_log2_down(uint32_t value)
{
    return 31 - (uint32_t)__builtin_clz(value);
}

#endif
