/*
 * Cells: what the elements of one rank stand for while values are checked. The elements are cut
 * wherever a span of the rank's own steps begins or ends, so that a step always reads and writes
 * whole cells, and no cell is ever cut or joined. Nearly always a cell holds one element range.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_CELLS_H
#define MUSTER_COLLECTIVES_CHECK_CELLS_H

#include "collectives/check/element_ranges.h"

/* In place of a term: the cell holds several ranges. There are never as many terms. */
#define MUSTER_TERM_SEVERAL UINT32_MAX

struct muster_cell {
    uint64_t begin; /* its first element */
    union {
        uint64_t origin;                      /* as in muster_element_range */
        struct muster_element_ranges *ranges; /* owned: several, counted from the cell's begin */
    };
    uint32_t term; /* as in muster_element_range, or MUSTER_TERM_SEVERAL */
};

struct muster_cells {
    struct muster_cell *items; /* [count + 1]; the last one only marks the end */
    size_t count;
};

/* Cuts the elements from 0 on. cuts[] are in any order, may repeat, and include 0. ret_numbers
 * [cut_count] gets the number of the cell that begins at each cut. All cells hold MUSTER_TERM_NONE.
 * MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_init(const uint64_t *cuts, size_t cut_count,
                                               uint32_t *ret_numbers,
                                               struct muster_cells *ret_cells);
void muster_cells_finish(struct muster_cells *cells);

/* Below, the elements begin with cell number `first` and end with some cell. */

/* Sets ret_part to what `count` elements stand for. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_read(const struct muster_cells *cells, uint32_t first,
                                               uint64_t count,
                                               struct muster_element_ranges *ret_part);

/* Overwrites the elements with those of `part`. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_write(struct muster_cells *cells, uint32_t first,
                                                const struct muster_element_ranges *part);

/* True if each of the range's elements was not written yet, or stands for what the range says. */
bool muster_cells_are_unwritten_or(const struct muster_cells *cells, uint32_t first,
                                   const struct muster_element_range *range);

#endif
