/* Sorting by numbers, for the checker: faster than qsort(), as nothing is compared. */
#ifndef MUSTER_COLLECTIVES_CHECK_SORT_H
#define MUSTER_COLLECTIVES_CHECK_SORT_H

#include <stddef.h>
#include <stdint.h>

struct muster_sort_item {
    uint64_t key;
    uint64_t value; /* whatever goes with it */
};

/* By rising key; items with equal keys keep their order. There are [count] in `spare` too. */
void muster_sort(struct muster_sort_item *items, struct muster_sort_item *spare, size_t count);

#endif
