/* Merging partial sums along the tree of the reduction order. */
#include "collectives/algorithms/ordered.h"

#include "collectives/algorithms/generators.h"

/* A node whose upper half has no places is the larger sum already. */
static void climb(struct muster_partial_sum *node, uint32_t size)
{
    uint32_t top = muster_log2_up(size);
    while (node->level < top && (node->first >> node->level) % 2 == 0 &&
           size - node->first <= UINT32_C(1) << node->level) {
        node->level++;
    }
}

static bool are_halves(const struct muster_partial_sum *lower,
                       const struct muster_partial_sum *upper, uint32_t level)
{
    return lower->level == level && upper->level == level && (lower->first >> level) % 2 == 0 &&
           upper->first - lower->first == UINT32_C(1) << level;
}

/* Leaves the sum in `lower`. Its place is that in OUTPUT, if one of the two is there, and never one
 * in INPUT, which is only read. */
static void reduce(struct muster_builder *builder, uint32_t size, uint64_t elements,
                   struct muster_partial_sum *lower, const struct muster_partial_sum *upper)
{
    bool up = upper->buffer == MUSTER_OUTPUT || lower->buffer == MUSTER_INPUT;
    const struct muster_partial_sum target = up ? *upper : *lower;
    const struct muster_partial_sum source = up ? *lower : *upper;
    if (builder != NULL) {
        muster_builder_reduce(builder, source.buffer,
                              (struct muster_span){.offset = source.at, .count = elements},
                              target.buffer, target.at);
    }
    lower->buffer = target.buffer;
    lower->at = target.at;
    lower->level++;
    climb(lower, size);
}

/* Merges the pairs of one level. Returns how many sums are left. */
static uint32_t merge_level(struct muster_builder *builder, uint32_t size, uint64_t elements,
                            struct muster_partial_sum *nodes, uint32_t count, uint32_t level)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        nodes[left] = nodes[i];
        if (i + 1 < count && are_halves(&nodes[left], &nodes[i + 1], level)) {
            reduce(builder, size, elements, &nodes[left], &nodes[i + 1]);
            i++;
        }
        left++;
    }
    return left;
}

uint32_t muster_ordered_merge(struct muster_builder *builder, uint32_t size, uint64_t elements,
                              struct muster_partial_sum *nodes, uint32_t *count)
{
    uint32_t passes = 0;
    for (uint32_t i = 0; i < *count; i++) {
        climb(&nodes[i], size);
    }
    for (uint32_t level = 0; level < muster_log2_up(size); level++) {
        uint32_t left = merge_level(builder, size, elements, nodes, *count, level);
        passes += left < *count && elements > 0 ? 1 : 0;
        *count = left;
        if (builder != NULL) {
            muster_builder_next_round(builder);
        }
    }
    return passes;
}
