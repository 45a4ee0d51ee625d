/* The blocks of a buffer, and places of ranks: a power of two of them. */
#include "collectives/algorithms/blocks.h"

#include "collectives/algorithms/generators.h"

struct muster_blocks muster_blocks_of_input(const struct muster_plan *plan)
{
    return (struct muster_blocks){
        .bounds = plan->input_bounds, .count = plan->count, .ranks = plan->topology->ranks};
}

struct muster_blocks muster_blocks_of_output(const struct muster_plan *plan)
{
    return (struct muster_blocks){
        .bounds = plan->output_bounds, .count = plan->count, .ranks = plan->topology->ranks};
}

struct muster_span muster_blocks_range(const struct muster_blocks *blocks, uint64_t first,
                                       uint64_t end)
{
    if (blocks->bounds == NULL) {
        return (struct muster_span){.offset = first * blocks->count,
                                    .count = (end - first) * blocks->count};
    }
    return (struct muster_span){.offset = blocks->bounds[first],
                                .count = blocks->bounds[end] - blocks->bounds[first]};
}

struct muster_span muster_blocks_at(const struct muster_blocks *blocks, uint64_t rank)
{
    uint64_t index = rank % blocks->ranks;
    return muster_blocks_range(blocks, index, index + 1);
}

uint64_t muster_blocks_total(const struct muster_blocks *blocks)
{
    return muster_blocks_range(blocks, 0, blocks->ranks).count;
}

uint64_t muster_blocks_smallest(const struct muster_blocks *blocks)
{
    uint64_t smallest = UINT64_MAX;
    for (uint32_t rank = 0; rank < muster_blocks_different(blocks); rank++) {
        uint64_t count = muster_blocks_at(blocks, rank).count;
        smallest = count < smallest ? count : smallest;
    }
    return smallest;
}

uint64_t muster_blocks_largest(const struct muster_blocks *blocks)
{
    uint64_t largest = 0;
    for (uint32_t rank = 0; rank < muster_blocks_different(blocks); rank++) {
        uint64_t count = muster_blocks_at(blocks, rank).count;
        largest = count > largest ? count : largest;
    }
    return largest;
}

uint32_t muster_blocks_different(const struct muster_blocks *blocks)
{
    return blocks->bounds == NULL ? 1 : blocks->ranks;
}

struct muster_places muster_places_of(uint32_t ranks)
{
    uint32_t levels = muster_log2_down(ranks);
    return (struct muster_places){.levels = levels, .extras = ranks - (UINT32_C(1) << levels)};
}

uint32_t muster_places_first(const struct muster_places *places, uint32_t place)
{
    return place + (place < places->extras ? place : places->extras);
}

uint32_t muster_places_rank(const struct muster_places *places, uint32_t place)
{
    return muster_places_first(places, place) + (place < places->extras ? 1 : 0);
}

uint32_t muster_places_find(const struct muster_places *places, uint32_t rank)
{
    return rank < 2 * places->extras ? rank / 2 : rank - places->extras;
}

bool muster_places_is_extra(const struct muster_places *places, uint32_t rank)
{
    return rank < 2 * places->extras && rank % 2 == 0;
}

struct muster_span muster_places_range(const struct muster_places *places,
                                       const struct muster_blocks *blocks, uint32_t first,
                                       uint32_t many)
{
    return muster_blocks_range(blocks, muster_places_first(places, first),
                               muster_places_first(places, first + many));
}
