/* Pieces: ranges of elements that stand for the same term, so that the checker's memory depends on
 * the number of spans and not on their length. */
#ifndef MUSTER_COLLECTIVES_CHECK_ELEMENT_RANGES_H
#define MUSTER_COLLECTIVES_CHECK_ELEMENT_RANGES_H

#include "collectives/check/terms.h"

struct muster_element_range {
    uint64_t begin;  /* of its elements in this list */
    uint64_t count;  /* of its elements, at least 1 */
    uint64_t origin; /* element of the callers' input that the first one stands for */
    uint32_t term;
};

/* Adjacent ranges without gaps, from 0 on; neighbours that could be one are one, so equal contents
 * give equal lists. */
struct muster_element_ranges {
    struct muster_element_range *items; /* owned */
    size_t used, capacity;
};

void muster_element_ranges_finish(struct muster_element_ranges *ranges);
void muster_element_ranges_clear(struct muster_element_ranges *ranges);

/* Adds elements at the end; none if count is 0. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_element_ranges_append(struct muster_element_ranges *ranges,
                                                          uint64_t count, uint64_t origin,
                                                          uint32_t term);

/* Element by element. Both have the same number of elements and no NONE. MUSTER_INVALID: different
 * origins meet, or a rank is counted twice. */
MUSTER_CHECKED muster_status muster_element_ranges_add(const struct muster_element_ranges *left,
                                                       const struct muster_element_ranges *right,
                                                       struct muster_terms *terms,
                                                       struct muster_element_ranges *ret_sum);

#endif
