/*
 * Cells: what the elements of one rank stand for while values are checked. The elements are cut
 * wherever a span of the rank's own steps begins or ends, so that a step always reads and writes
 * whole cells, and no cell is ever cut or joined. What a cell holds is one piece nearly always.
 */
#ifndef MUSTER_COLLECTIVES_CHECK_CELLS_H
#define MUSTER_COLLECTIVES_CHECK_CELLS_H

#include "collectives/check/element_ranges.h"

/* Instead of a term, which there are fewer of. */
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
    struct muster_cell *items; /* [count + 1]; the last one only says where all end */
    size_t count;
};

/* Cuts elements from 0 on: cuts[] are in any order, also more than once, and 0 is one. ret_numbers
 * [cut_count]: which cell begins there. All hold MUSTER_TERM_NONE. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_init(const uint64_t *cuts, size_t cut_count,
                                               uint32_t *ret_numbers,
                                               struct muster_cells *ret_cells);
void muster_cells_finish(struct muster_cells *cells);

/* Below, elements are those from the beginning of cell number `first` on, to the end of a cell. */

/* Replaces the contents of ret_part by `count` elements. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_read(const struct muster_cells *cells, uint32_t first,
                                               uint64_t count,
                                               struct muster_element_ranges *ret_part);

/* Puts the part's elements in the place of those there are. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_cells_write(struct muster_cells *cells, uint32_t first,
                                                const struct muster_element_ranges *part);

/* True if nothing was written to any of piece->count elements but what `piece` says of them. */
bool muster_cells_are_free_or(const struct muster_cells *cells, uint32_t first,
                              const struct muster_element_range *range);

#endif
