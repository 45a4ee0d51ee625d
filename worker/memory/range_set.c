#include "worker/memory/range_set.h"

#include <string.h>

/* The first whose end is at least this. */
static size_t first_ending(const struct muster_range_set *stretches, uintptr_t at)
{
    size_t low = 0;
    size_t high = stretches->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stretches->all[middle].end < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Puts these in the place of those from index to index_end - 1. */
static bool replace(struct muster_range_set *stretches, size_t index, size_t index_end,
                    const struct muster_range *by, size_t by_count)
{
    size_t count = stretches->count - (index_end - index) + by_count;
    if (count > MUSTER_RANGES_MAX) {
        return false;
    }
    struct muster_range *all = stretches->all;
    memmove(all + index + by_count, all + index_end, (stretches->count - index_end) * sizeof *all);
    if (by_count > 0) {
        memcpy(all + index, by, by_count * sizeof *all);
    }
    stretches->count = count;
    return true;
}

bool muster_range_set_cover(const struct muster_range_set *stretches, struct muster_range stretch)
{
    size_t index = first_ending(stretches, stretch.end);
    return stretch.begin >= stretch.end ||
           (index < stretches->count && stretches->all[index].begin <= stretch.begin);
}

bool muster_range_set_add(struct muster_range_set *stretches, struct muster_range stretch)
{
    if (stretch.begin >= stretch.end) {
        return true;
    }
    size_t index = first_ending(stretches, stretch.begin);
    size_t index_end = index;
    while (index_end < stretches->count && stretches->all[index_end].begin <= stretch.end) {
        const struct muster_range *other = &stretches->all[index_end++];
        stretch.begin = other->begin < stretch.begin ? other->begin : stretch.begin;
        stretch.end = other->end > stretch.end ? other->end : stretch.end;
    }
    return replace(stretches, index, index_end, &stretch, 1);
}

void muster_range_set_cut(struct muster_range_set *stretches, struct muster_range stretch)
{
    size_t index = first_ending(stretches, stretch.begin + 1);
    size_t index_end = index;
    struct muster_range rest[2];
    size_t rest_count = 0;
    while (index_end < stretches->count && stretches->all[index_end].begin < stretch.end) {
        index_end++;
    }
    if (stretch.begin >= stretch.end || index == index_end) {
        return;
    }
    struct muster_range below = {stretches->all[index].begin, stretch.begin};
    struct muster_range above = {stretch.end, stretches->all[index_end - 1].end};
    if (below.begin < below.end) {
        rest[rest_count++] = below;
    }
    if (above.begin < above.end) {
        rest[rest_count++] = above;
    }
    if (!replace(stretches, index, index_end, rest, rest_count)) {
        (void)replace(stretches, index, index_end, rest, rest_count - 1);
    }
}
