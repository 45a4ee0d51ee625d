/*
 * The blocks of a buffer, for the generators of collectives that have them: one a rank, in the
 * order of ranks, of equal or of different sizes (collectives/call/shape.h).
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_BLOCKS_H
#define MUSTER_COLLECTIVES_ALGORITHMS_BLOCKS_H

#include "collectives/algorithms/algorithm.h"

struct muster_blocks {
    const uint64_t *bounds; /* borrowed; NULL: all have `count` elements */
    uint64_t count;
    uint32_t ranks;
};

struct muster_blocks muster_blocks_of_input(const struct muster_plan *plan);
struct muster_blocks muster_blocks_of_output(const struct muster_plan *plan);

/* Blocks [first, end), which lie next to each other. */
struct muster_span muster_blocks_range(const struct muster_blocks *blocks, uint64_t first,
                                       uint64_t end);

/* The block of this rank, modulo the ranks. */
struct muster_span muster_blocks_at(const struct muster_blocks *blocks, uint64_t rank);

/* Elements of all blocks together, of the smallest block, and of the largest. */
uint64_t muster_blocks_total(const struct muster_blocks *blocks);
uint64_t muster_blocks_smallest(const struct muster_blocks *blocks);
uint64_t muster_blocks_largest(const struct muster_blocks *blocks);

/* The number of ranks, from 0 on, among which a formula finds the busiest one: 1 if all blocks have
 * one size, as all ranks then do the same. */
uint32_t muster_blocks_different(const struct muster_blocks *blocks);

/* Places: for algorithms that need a power of two of ranks, where P is any number. Each of the
 * first `extras` places stands for two neighbouring ranks, of which the second acts for both. */
struct muster_places {
    uint32_t levels; /* there are 2^levels */
    uint32_t extras;
};

struct muster_places muster_places_of(uint32_t ranks);

/* The first of the ranks that the place stands for, and the rank that acts. The first rank of place
 * 2^levels, which is one too far, is P. */
uint32_t muster_places_first(const struct muster_places *places, uint32_t place);
uint32_t muster_places_rank(const struct muster_places *places, uint32_t place);

/* The place that stands for this rank; and whether another rank acts for this one. */
uint32_t muster_places_find(const struct muster_places *places, uint32_t rank);
bool muster_places_is_extra(const struct muster_places *places, uint32_t rank);

/* The blocks of the ranks of places [first, first + many). */
struct muster_span muster_places_range(const struct muster_places *places,
                                       const struct muster_blocks *blocks, uint32_t first,
                                       uint32_t many);

#endif
