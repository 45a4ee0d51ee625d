/* The part of the checker that tracks which term every element stands for. */
#ifndef MUSTER_COLLECTIVES_CHECK_CONTENTS_H
#define MUSTER_COLLECTIVES_CHECK_CONTENTS_H

#include "collectives/check/element_ranges.h"
#include "collectives/check/walk.h"

/* Functions that are called with the values while they are checked. A status other than MUSTER_OK
 * ends the check. */
struct muster_values_observer {
    void *user;
    /* The data that a send reads, or what another step's target holds after it. */
    muster_status (*on_step)(void *user, const struct muster_walk_step *where,
                             const struct muster_element_ranges *ranges,
                             const struct muster_terms *terms);
    /* The rank's OUTPUT at the end. */
    muster_status (*on_output)(void *user, uint32_t rank,
                               const struct muster_element_ranges *ranges,
                               const struct muster_terms *terms);
};

/* Runs the walk with symbols in place of elements, and checks that at the end each result is what
 * the collective requires, and is reduced in the same order on all ranks. The observer may be NULL.
 *
 * Out of place, *ret_in_place_differs (if not NULL) is set to true if a step read INPUT after other
 * values had been written to the same elements of OUTPUT. If no step did, and there are no races in
 * place, then every step reads the same values in place: INPUT as long as OUTPUT is not written,
 * and afterwards what was written. So all values are right in place too. */
MUSTER_CHECKED muster_status muster_check_values(const struct muster_shape *shapes,
                                                 const struct muster_walk *walk, bool in_place,
                                                 const struct muster_values_observer *observer,
                                                 bool *ret_in_place_differs);

#endif
