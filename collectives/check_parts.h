/* The parts of the checker. Each returns MUSTER_INVALID with the reason as error text where the
 * schedules are wrong, and MUSTER_FATAL without memory. */
#ifndef MUSTER_COLLECTIVES_CHECK_PARTS_H
#define MUSTER_COLLECTIVES_CHECK_PARTS_H

#include "collectives/pieces.h"
#include "collectives/walk.h"

/* Where one rank's buffers lie in one line of elements. Out of place they lie apart; in place INPUT
 * and OUTPUT share elements as schedule.h says. */
struct muster_layout {
    uint64_t base[3]; /* of INPUT, OUTPUT and SCRATCH */
    uint64_t count;   /* of all elements */
};
struct muster_layout muster_layout_of(const struct muster_shape *shape,
                                      const struct muster_schedule *schedule, bool in_place);

/* check_races.c: no two steps of this rank that may run at the same time touch the same elements,
 * unless both read; and no step's source overlaps its own target, unless it is the same. */
MUSTER_CHECKED muster_status muster_check_races(const struct muster_shape *shape,
                                                const struct muster_schedule *schedule,
                                                bool in_place);

/* Looks on while values are checked. Each may end that by a status other than MUSTER_OK. */
struct muster_values_observer {
    void *user;
    /* The data that a send reads, or what another step's target holds after it. */
    muster_status (*see_step)(void *user, const struct muster_walk_step *where,
                              const struct muster_pieces *pieces, const struct muster_terms *terms);
    /* The rank's OUTPUT at the end. */
    muster_status (*see_output)(void *user, uint32_t rank, const struct muster_pieces *pieces,
                                const struct muster_terms *terms);
};

/* check_values.c: runs the walk with symbols for elements; at the end each result is what the
 * collective promises, reduced in the same order on all ranks. The observer may be NULL. */
MUSTER_CHECKED muster_status muster_check_values(const struct muster_shape *shapes,
                                                 const struct muster_walk *walk, bool in_place,
                                                 const struct muster_values_observer *observer);

/* check_barrier.c: nobody is through before everybody has come. */
MUSTER_CHECKED muster_status muster_check_barrier(const struct muster_walk *walk);

#endif
