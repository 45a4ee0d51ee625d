/* Several ranges of memory as one buffer: lists of ranges, their checks, and where a byte is. */
#include "collectives/call/range_list.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/call/shape.h"
#include "worker/base/status.h"

/* Making -------------------------------------------------------------------------------------- */

void muster_range_list_finish(struct muster_range_list *list)
{
    free(list->runs);
    free(list->extents);
    *list = (struct muster_range_list){.runs = NULL};
}

muster_status muster_range_list_total(const muster_range *ranges, size_t range_count,
                                      const char *side, uint64_t *ret_count)
{
    uint64_t total = 0;
    if (range_count > MUSTER_RANGES_MAX) {
        return muster_error_set(MUSTER_INVALID, "%zu ranges in %s: %d are the most", range_count,
                                side, MUSTER_RANGES_MAX);
    }
    if (range_count > 0 && ranges == NULL) {
        return muster_error_set(MUSTER_INVALID, "%s is NULL, with %zu ranges", side, range_count);
    }
    for (size_t i = 0; i < range_count; i++) {
        if (ranges[i].count > MUSTER_ELEMENTS_MAX - total) {
            return muster_error_set(MUSTER_INVALID,
                                    "range %zu of %s: with its %zu elements the ranges are over "
                                    "the limit of %llu",
                                    i, side, ranges[i].count,
                                    (unsigned long long)MUSTER_ELEMENTS_MAX);
        }
        total += ranges[i].count;
    }
    *ret_count = total;
    return MUSTER_OK;
}

/* The content is lost. */
static muster_status reserve(struct muster_range_list *list, size_t count)
{
    if (count < list->room) {
        return MUSTER_OK;
    }
    muster_range_list_finish(list);
    list->runs = calloc(count + 1, sizeof *list->runs);
    list->extents = calloc(count + 1, sizeof *list->extents);
    if (list->runs == NULL || list->extents == NULL) {
        muster_range_list_finish(list);
        return muster_error_set(MUSTER_FATAL, "no memory for a list of %zu ranges", count);
    }
    list->room = count + 1;
    return MUSTER_OK;
}

static muster_status check_range(const muster_range *range, size_t index, size_t element_size_bytes,
                                 const char *side)
{
    uintptr_t address = (uintptr_t)range->address;
    uint64_t end = 0;
    if (range->address == NULL) {
        return muster_error_set(MUSTER_INVALID, "range %zu of %s is NULL, with %zu elements", index,
                                side, range->count);
    }
    if (address % element_size_bytes != 0) {
        return muster_error_set(MUSTER_INVALID,
                                "range %zu of %s begins at %p, which is not aligned to its "
                                "elements of %zu bytes",
                                index, side, range->address, element_size_bytes);
    }
    if (__builtin_mul_overflow((uint64_t)range->count, element_size_bytes, &end) ||
        __builtin_add_overflow(end, address, &end) || end > UINTPTR_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "range %zu of %s: %zu elements of %zu bytes from %p are more than "
                                "there is memory",
                                index, side, range->count, element_size_bytes, range->address);
    }
    return MUSTER_OK;
}

static int compare_extents(const void *left, const void *right)
{
    const struct muster_range_extent *a = left;
    const struct muster_range_extent *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Callers often have their ranges in the order of their addresses. */
static void sort_extents(struct muster_range_list *list)
{
    for (size_t i = 1; i < list->count; i++) {
        if (list->extents[i].begin < list->extents[i - 1].begin) {
            qsort(list->extents, list->count, sizeof *list->extents, compare_extents);
            return;
        }
    }
}

static muster_status check_disjoint(const struct muster_range_list *list, const char *side)
{
    for (size_t i = 1; i < list->count; i++) {
        if (list->extents[i].begin < list->extents[i - 1].end) {
            return muster_error_set(MUSTER_INVALID, "ranges %zu and %zu of %s overlap",
                                    list->extents[i - 1].index, list->extents[i].index, side);
        }
    }
    return MUSTER_OK;
}

muster_status muster_range_list_fill(struct muster_range_list *list, const muster_range *ranges,
                                     size_t range_count, size_t element_size_bytes,
                                     const char *side)
{
    uint64_t done_bytes = 0;
    TRY(reserve(list, range_count));
    list->count = 0;
    for (size_t i = 0; i < range_count; i++) {
        uint64_t bytes = ranges[i].count * element_size_bytes;
        if (ranges[i].count == 0) {
            continue;
        }
        TRY(check_range(&ranges[i], i, element_size_bytes, side));
        uintptr_t begin = (uintptr_t)ranges[i].address;
        if (list->count > 0 && list->extents[list->count - 1].end == begin) {
            list->extents[list->count - 1].end += bytes;
        } else {
            list->runs[list->count] =
                (struct muster_range_run){.address = ranges[i].address, .begin_bytes = done_bytes};
            list->extents[list->count++] =
                (struct muster_range_extent){.begin = begin, .end = begin + bytes, .index = i};
        }
        done_bytes += bytes;
    }
    list->runs[list->count] = (struct muster_range_run){.begin_bytes = done_bytes};
    sort_extents(list);
    return check_disjoint(list, side);
}

/* Two lists ----------------------------------------------------------------------------------- */

bool muster_range_list_equal(const struct muster_range_list *one,
                             const struct muster_range_list *other)
{
    bool equal = one->count == other->count;
    for (size_t i = 0; i < one->count && equal; i++) {
        equal = one->runs[i].address == other->runs[i].address &&
                one->runs[i + 1].begin_bytes == other->runs[i + 1].begin_bytes;
    }
    return equal;
}

muster_status muster_range_list_check_apart(const struct muster_range_list *ins,
                                            const struct muster_range_list *outs)
{
    size_t i = 0;
    size_t j = 0;
    while (i < ins->count && j < outs->count) {
        const struct muster_range_extent *in = &ins->extents[i];
        const struct muster_range_extent *out = &outs->extents[j];
        if (in->begin < out->end && out->begin < in->end) {
            return muster_error_set(MUSTER_INVALID,
                                    "range %zu of ins overlaps range %zu of outs, and not all "
                                    "ranges are in place",
                                    in->index, out->index);
        }
        if (in->end <= out->begin) {
            i++;
        } else {
            j++;
        }
    }
    return MUSTER_OK;
}

/* Places -------------------------------------------------------------------------------------- */

size_t muster_range_find(const struct muster_range_run *runs, size_t count, uint64_t at_bytes)
{
    size_t low = 0;
    size_t high = count; /* runs[low] begins at or before the byte, runs[high] after it */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (runs[middle].begin_bytes <= at_bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

char *muster_place_find(const struct muster_place *place, uint64_t *size_bytes)
{
    const struct muster_range_list *list = place->ranges;
    const struct muster_range_run *run =
        &list->runs[muster_range_find(list->runs, list->count, place->at_bytes)];
    uint64_t left = run[1].begin_bytes - place->at_bytes;
    *size_bytes = *size_bytes < left ? *size_bytes : left;
    return run->address + (place->at_bytes - run->begin_bytes);
}

void muster_place_copy_parts(struct muster_place to, struct muster_place from, uint64_t size_bytes)
{
    while (size_bytes > 0) {
        uint64_t size = size_bytes;
        char *target = muster_place_at(&to, &size);
        const char *source = muster_place_at(&from, &size);
        if (target != source) {
            memcpy(target, source, size);
        }
        to = muster_place_advance(to, size);
        from = muster_place_advance(from, size);
        size_bytes -= size;
    }
}
