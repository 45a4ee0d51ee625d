/*
 * A drawing: everything that a picture or a table shows of the schedules of all ranks. For each
 * step it has the column of time, the step at the message's other end, the chunks of data that it
 * moves, and how many ranks' inputs are in them.
 *
 * Columns are the clock of the walk, in which every message and every local step takes one tick:
 * both ends of a message are in one column, and a waiting rank has an empty one. Chunks are the
 * parts into which the spans of all steps cut the data; they are named a, b, c, ... in order.
 */
#ifndef MUSTER_COLLECTIVES_DRAW_DRAWING_H
#define MUSTER_COLLECTIVES_DRAW_DRAWING_H

#include "collectives/schedule/schedule.h"

enum { MUSTER_DRAWING_LABEL_MAX = 64 };

/* Chunks [first, end), numbered from 0. */
struct muster_chunk_run {
    uint64_t first, end;
};

/* What a step moves: the data that it sends, or what its target holds afterwards. */
struct muster_step_data {
    size_t first_run, run_count; /* in drawing.runs */
    uint32_t members;            /* ranks whose inputs are in it; 0 if it is empty */
};

struct muster_drawn_step {
    uint32_t rank;
    const struct muster_step *step; /* borrowed */
    uint32_t column;
    size_t other; /* number of the step at the message's other end; SIZE_MAX: no message */
    struct muster_step_data data;
};

struct muster_drawing {
    const struct muster_shape *shapes;       /* [ranks], borrowed */
    const struct muster_schedule *schedules; /* [ranks], borrowed */
    uint32_t ranks;
    uint32_t columns;
    uint32_t lanes;                       /* of the rank that has most */
    size_t *first_step;                   /* owned [ranks + 1] number of each rank's first step */
    struct muster_drawn_step *steps;      /* owned, rank by rank, in the schedules' order */
    struct muster_step_data *begin, *end; /* owned [ranks] INPUT before, OUTPUT after the call */
    struct muster_chunk_run *runs;        /* owned */
    size_t run_count;
    uint64_t stride; /* elements from one rank's data to the next one's, if nothing is reduced */
    uint64_t *cuts;  /* owned [chunks] where each chunk begins in the data */
    uint64_t chunks;
};

/* The schedules must be proven (muster_check()). Both arrays are borrowed until the drawing is
 * finished. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_drawing_init(const struct muster_shape *shapes,
                                                 const struct muster_schedule *schedules,
                                                 uint32_t ranks, bool in_place,
                                                 struct muster_drawing *ret_drawing);
/* Accepts NULL and zeroed storage. */
void muster_drawing_finish(struct muster_drawing *drawing);

/* The name of data: "abcd", "a-h", "a-c,f"; in alltoall(v) and pairwise_exchange "0>3", the data
 * of rank 0 for rank 3. A name that is too long for size bytes ends in "..". Empty data has no
 * name. */
void muster_drawing_label(const struct muster_drawing *drawing, const struct muster_step_data *data,
                          char *ret_label, size_t size);

#endif
