/* Lists of element ranges: appending, and reducing two of them. */
#include "collectives/check/element_ranges.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/status.h"

void muster_element_ranges_finish(struct muster_element_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct muster_element_ranges){0};
}

void muster_element_ranges_clear(struct muster_element_ranges *ranges)
{
    ranges->used = 0;
}

static muster_status reserve(struct muster_element_ranges *ranges, size_t count)
{
    if (count <= ranges->capacity) {
        return MUSTER_OK;
    }
    size_t capacity = count < 8 ? 8 : 2 * count;
    struct muster_element_range *items = realloc(ranges->items, capacity * sizeof *items);
    if (items == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu spans", capacity);
    }
    ranges->items = items;
    ranges->capacity = capacity;
    return MUSTER_OK;
}

static uint64_t end_of(const struct muster_element_range *range)
{
    return range->begin + range->count;
}

muster_status muster_element_ranges_append(struct muster_element_ranges *ranges, uint64_t count,
                                           uint64_t origin, uint32_t term)
{
    if (count == 0) {
        return MUSTER_OK;
    }
    struct muster_element_range *last = ranges->used == 0 ? NULL : &ranges->items[ranges->used - 1];
    if (last != NULL && last->term == term &&
        (term == MUSTER_TERM_NONE || last->origin + last->count == origin)) {
        last->count += count;
        return MUSTER_OK;
    }
    uint64_t begin = last == NULL ? 0 : end_of(last);
    TRY(reserve(ranges, ranges->used + 1));
    ranges->items[ranges->used++] = (struct muster_element_range){
        .begin = begin, .count = count, .origin = origin, .term = term};
    return MUSTER_OK;
}

muster_status muster_element_ranges_add(const struct muster_element_ranges *left,
                                        const struct muster_element_ranges *right,
                                        struct muster_terms *terms,
                                        struct muster_element_ranges *ret_sum)
{
    muster_element_ranges_clear(ret_sum);
    uint64_t at = 0;
    for (size_t i = 0, j = 0; i < left->used && j < right->used;) {
        const struct muster_element_range *one = &left->items[i];
        const struct muster_element_range *other = &right->items[j];
        uint64_t origin = one->origin + (at - one->begin);
        uint64_t other_origin = other->origin + (at - other->begin);
        if (origin != other_origin) {
            return muster_error_set(MUSTER_INVALID,
                                    "reduces input element %" PRIu64 " with element %" PRIu64,
                                    origin, other_origin);
        }
        uint32_t sum = MUSTER_TERM_NONE;
        TRY(muster_terms_add(terms, one->term, other->term, &sum));
        uint64_t end = end_of(one) < end_of(other) ? end_of(one) : end_of(other);
        TRY(muster_element_ranges_append(ret_sum, end - at, origin, sum));
        i += end == end_of(one) ? 1 : 0;
        j += end == end_of(other) ? 1 : 0;
        at = end;
    }
    return MUSTER_OK;
}
