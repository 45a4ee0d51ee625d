/* The part of the checker that follows what every element stands for. Others may observe it. */
#ifndef MUSTER_COLLECTIVES_CHECK_CONTENTS_H
#define MUSTER_COLLECTIVES_CHECK_CONTENTS_H

#include "collectives/check/element_ranges.h"
#include "collectives/check/walk.h"

/* Looks on while values are checked. Each may end that by a status other than MUSTER_OK. */
struct muster_values_observer {
    void *user;
    /* The data that a send reads, or what another step's target holds after it. */
    muster_status (*see_step)(void *user, const struct muster_walk_step *where,
                              const struct muster_element_ranges *ranges,
                              const struct muster_terms *terms);
    /* The rank's OUTPUT at the end. */
    muster_status (*see_output)(void *user, uint32_t rank,
                                const struct muster_element_ranges *ranges,
                                const struct muster_terms *terms);
};

/* Runs the walk with symbols for elements; at the end each result is what the
 * collective promises, reduced in the same order on all ranks. The observer may be NULL.
 *
 * Out of place, *ret_in_place_differs (if not NULL) is true if a step read INPUT where the same
 * elements of OUTPUT had been written, and not by what INPUT holds. If none did, and there are no
 * races in place, every step reads the same in place: INPUT where OUTPUT has not been written yet,
 * and otherwise what was written; so all values are right there too. */
MUSTER_CHECKED muster_status muster_check_values(const struct muster_shape *shapes,
                                                 const struct muster_walk *walk, bool in_place,
                                                 const struct muster_values_observer *observer,
                                                 bool *ret_in_place_differs);

#endif
