/* Cells: the elements of one rank, cut where spans of its steps begin and end. */
#include "collectives/check/cells.h"

#include <stdlib.h>

#include "collectives/check/sort.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Makes the cells for sorted cuts; the value of a cut is its index among the caller's cuts. */
static muster_status make(const struct muster_sort_item *cuts, size_t cut_count,
                          uint32_t *ret_numbers, struct muster_cells *ret_cells)
{
    size_t used = 1;
    for (size_t i = 1; i < cut_count; i++) {
        used += cuts[i].key != cuts[i - 1].key ? 1 : 0;
    }
    struct muster_cell *items = malloc(used * sizeof *items);
    if (items == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu spans", used);
    }
    size_t number = 0;
    for (size_t i = 0; i < cut_count; i++) {
        number += i > 0 && cuts[i].key != cuts[i - 1].key ? 1 : 0;
        items[number] = (struct muster_cell){.begin = cuts[i].key, .term = MUSTER_TERM_NONE};
        ret_numbers[cuts[i].value] = (uint32_t)number;
    }
    *ret_cells = (struct muster_cells){.items = items, .count = number};
    return MUSTER_OK;
}

muster_status muster_cells_init(const uint64_t *cuts, size_t cut_count, uint32_t *ret_numbers,
                                struct muster_cells *ret_cells)
{
    AUTO_FREE struct muster_sort_item *items = malloc(cut_count * sizeof *items);
    AUTO_FREE struct muster_sort_item *spare = malloc(cut_count * sizeof *spare);
    if (items == NULL || spare == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for %zu cuts", cut_count);
    }
    for (size_t i = 0; i < cut_count; i++) {
        items[i] = (struct muster_sort_item){.key = cuts[i], .value = i};
    }
    muster_sort(items, spare, cut_count);
    return make(items, cut_count, ret_numbers, ret_cells);
}

static void clear(struct muster_cell *cell)
{
    if (cell->term == MUSTER_TERM_SEVERAL) {
        muster_element_ranges_finish(cell->ranges);
        free(cell->ranges);
    }
    cell->term = MUSTER_TERM_NONE;
}

void muster_cells_finish(struct muster_cells *cells)
{
    for (size_t i = 0; i < cells->count; i++) {
        clear(&cells->items[i]);
    }
    free(cells->items);
    *cells = (struct muster_cells){0};
}

static uint64_t size_of(const struct muster_cells *cells, size_t number)
{
    return cells->items[number + 1].begin - cells->items[number].begin;
}

static muster_status append_cell(const struct muster_cells *cells, size_t number,
                                 struct muster_element_ranges *part)
{
    const struct muster_cell *cell = &cells->items[number];
    if (cell->term != MUSTER_TERM_SEVERAL) {
        return muster_element_ranges_append(part, size_of(cells, number), cell->origin, cell->term);
    }
    for (size_t i = 0; i < cell->ranges->used; i++) {
        const struct muster_element_range *range = &cell->ranges->items[i];
        TRY(muster_element_ranges_append(part, range->count, range->origin, range->term));
    }
    return MUSTER_OK;
}

muster_status muster_cells_read(const struct muster_cells *cells, uint32_t first, uint64_t count,
                                struct muster_element_ranges *ret_part)
{
    muster_element_ranges_clear(ret_part);
    uint64_t end = cells->items[first].begin + count;
    for (size_t number = first; cells->items[number].begin < end; number++) {
        TRY(append_cell(cells, number, ret_part));
    }
    return MUSTER_OK;
}

/* Writes `count` elements of a part, from element `from` on, to a cell that needs more than one
 * range. `first` is the part's range that contains the first of them. */
static muster_status write_several(struct muster_cell *cell, uint64_t from, uint64_t count,
                                   const struct muster_element_range *first)
{
    struct muster_element_ranges *ranges = calloc(1, sizeof *ranges);
    if (ranges == NULL) {
        return muster_error_set(MUSTER_FATAL, "check: no memory for a span");
    }
    cell->term = MUSTER_TERM_SEVERAL;
    cell->ranges = ranges;
    for (const struct muster_element_range *range = first; count > 0; range++) {
        uint64_t skipped = from - range->begin;
        uint64_t rest = range->count - skipped;
        uint64_t taken = rest < count ? rest : count;
        TRY(muster_element_ranges_append(ranges, taken, range->origin + skipped, range->term));
        from += taken;
        count -= taken;
    }
    return MUSTER_OK;
}

muster_status muster_cells_write(struct muster_cells *cells, uint32_t first,
                                 const struct muster_element_ranges *part)
{
    uint64_t from = 0; /* element of the part */
    size_t number = first;
    for (size_t i = 0; i < part->used; number++) {
        const struct muster_element_range *range = &part->items[i];
        struct muster_cell *cell = &cells->items[number];
        uint64_t count = size_of(cells, number);
        clear(cell);
        if (range->begin + range->count - from >= count) {
            cell->origin = range->origin + (from - range->begin);
            cell->term = range->term;
        } else {
            TRY(write_several(cell, from, count, range));
        }
        from += count;
        while (i < part->used && part->items[i].begin + part->items[i].count <= from) {
            i++;
        }
    }
    return MUSTER_OK;
}

bool muster_cells_are_unwritten_or(const struct muster_cells *cells, uint32_t first,
                                   const struct muster_element_range *range)
{
    uint64_t begin = cells->items[first].begin;
    for (size_t i = first; cells->items[i].begin < begin + range->count; i++) {
        const struct muster_cell *cell = &cells->items[i];
        bool same =
            cell->term == range->term && cell->origin == range->origin + (cell->begin - begin);
        if (cell->term != MUSTER_TERM_NONE && !same) {
            return false;
        }
    }
    return true;
}
