/* Element ranges: consecutive elements that stand for the same term. With them the checker's memory
 * depends on the number of spans and not on their length. */
#ifndef MUSTER_COLLECTIVES_CHECK_ELEMENT_RANGES_H
#define MUSTER_COLLECTIVES_CHECK_ELEMENT_RANGES_H

#include "collectives/check/terms.h"

struct muster_element_range {
    uint64_t begin;  /* of its elements in this list */
    uint64_t count;  /* of its elements, at least 1 */
    uint64_t origin; /* the element of the ranks' INPUT that the first one stands for */
    uint32_t term;
};

/* Adjacent ranges without gaps, from element 0 on. Neighbours that could be one range are one, so
 * that equal contents have equal lists. */
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

/* Reduces element by element. Both lists have the same number of elements and no MUSTER_TERM_NONE.
 * MUSTER_INVALID: two elements have different origins, or count a rank twice. */
MUSTER_CHECKED muster_status muster_element_ranges_add(const struct muster_element_ranges *left,
                                                       const struct muster_element_ranges *right,
                                                       struct muster_terms *terms,
                                                       struct muster_element_ranges *ret_sum);

#endif
