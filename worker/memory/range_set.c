/* Sorted ranges of addresses: found by bisection, merged and split in place. */
#include "worker/memory/range_set.h"

#include <string.h>

/* The index of the first range whose end is at least `at`. */
static size_t first_ending(const struct muster_range_set *set, uintptr_t at)
{
    size_t low = 0;
    size_t high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->ranges[middle].end < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Replaces the ranges index to index_end - 1 by others. */
static bool replace(struct muster_range_set *set, size_t index, size_t index_end,
                    const struct muster_address_range *by, size_t by_count)
{
    size_t count = set->count - (index_end - index) + by_count;
    if (count > MUSTER_RANGE_SET_MAX) {
        return false;
    }
    struct muster_address_range *ranges = set->ranges;
    memmove(ranges + index + by_count, ranges + index_end,
            (set->count - index_end) * sizeof *ranges);
    if (by_count > 0) {
        memcpy(ranges + index, by, by_count * sizeof *ranges);
    }
    set->count = count;
    return true;
}

bool muster_range_set_contains(const struct muster_range_set *set,
                               struct muster_address_range range)
{
    size_t index = first_ending(set, range.end);
    return range.begin >= range.end ||
           (index < set->count && set->ranges[index].begin <= range.begin);
}

bool muster_range_set_add(struct muster_range_set *set, struct muster_address_range range)
{
    if (range.begin >= range.end) {
        return true;
    }
    size_t index = first_ending(set, range.begin);
    size_t index_end = index;
    while (index_end < set->count && set->ranges[index_end].begin <= range.end) {
        const struct muster_address_range *other = &set->ranges[index_end++];
        range.begin = other->begin < range.begin ? other->begin : range.begin;
        range.end = other->end > range.end ? other->end : range.end;
    }
    return replace(set, index, index_end, &range, 1);
}

/* All ranges that the removed one touches are replaced by what is left of them: at most one below
 * it and one above. */
void muster_range_set_remove(struct muster_range_set *set, struct muster_address_range range)
{
    size_t index = first_ending(set, range.begin + 1);
    size_t index_end = index;
    struct muster_address_range rest[2];
    size_t rest_count = 0;
    while (index_end < set->count && set->ranges[index_end].begin < range.end) {
        index_end++;
    }
    if (range.begin >= range.end || index == index_end) {
        return;
    }
    struct muster_address_range below = {set->ranges[index].begin, range.begin};
    struct muster_address_range above = {range.end, set->ranges[index_end - 1].end};
    if (below.begin < below.end) {
        rest[rest_count++] = below;
    }
    if (above.begin < above.end) {
        rest[rest_count++] = above;
    }
    if (!replace(set, index, index_end, rest, rest_count)) {
        (void)replace(set, index, index_end, rest, rest_count - 1);
    }
}
