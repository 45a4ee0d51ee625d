/* The parts of the checker. Each returns MUSTER_INVALID, with the reason as error text, if the
 * schedules are wrong, and MUSTER_FATAL if there is no memory. */
#ifndef MUSTER_COLLECTIVES_CHECK_CHECK_PARTS_H
#define MUSTER_COLLECTIVES_CHECK_CHECK_PARTS_H

#include "collectives/check/cells.h"
#include "collectives/check/contents.h"
#include "collectives/check/walk.h"

/* A layout of one rank's buffers in one array of elements. Out of place they are disjoint; in place
 * INPUT and OUTPUT share elements (schedule.h). */
struct muster_layout {
    uint64_t base[3]; /* of INPUT, OUTPUT and SCRATCH */
    uint64_t count;   /* of all elements */
};
struct muster_layout muster_layout_of(const struct muster_shape *shape,
                                      const struct muster_schedule *schedule, bool in_place);

/* The first cells of a step's source and target. */
struct muster_step_cells {
    uint32_t source, target;
};

/* memory_cuts.c: what one rank's elements stand for while values are checked. The layout is the one
 * in place, also out of place: INPUT then needs no cells of its own, because no step writes it and
 * so it never changes. */
struct muster_rank_cells {
    struct muster_cells cells;        /* cut where spans of the rank's own steps begin and end */
    struct muster_step_cells *places; /* owned [steps of the schedule] */
    uint32_t input, output;           /* the first cells of the two buffers */
};

/* MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_rank_cells_init(const struct muster_shape *shape,
                                                    const struct muster_schedule *schedule,
                                                    struct muster_rank_cells *ret_memory);
void muster_rank_cells_finish(struct muster_rank_cells *memory);

/* races.c: no two steps of this rank that may run at the same time touch the same elements, unless
 * both read them; and no step's source overlaps its own target, unless the two are the same. */
MUSTER_CHECKED muster_status muster_check_races(const struct muster_shape *shape,
                                                const struct muster_schedule *schedule,
                                                bool in_place);

/* input_kept.c: an observer of values (contents.h) that allows only results to be written to
 * OUTPUT. It has the shapes as its user. */
struct muster_values_observer muster_input_kept_observer(const struct muster_shape *shapes);

/* closing_barrier.c: no rank finishes before all ranks have started. */
MUSTER_CHECKED muster_status muster_check_barrier(const struct muster_walk *walk);

/* closing_barrier.c: no step writes OUTPUT before its lane knows that all ranks have started. */
MUSTER_CHECKED muster_status muster_check_late_output(const struct muster_walk *walk);

#endif
