/* Radix sort by 64-bit keys, for the checker: faster than qsort(), as it makes no comparisons. */
#ifndef MUSTER_COLLECTIVES_CHECK_SORT_H
#define MUSTER_COLLECTIVES_CHECK_SORT_H

#include <stddef.h>
#include <stdint.h>

struct muster_sort_item {
    uint64_t key;
    uint64_t value; /* moved with the key */
};

/* Sorts by increasing key; items with equal keys keep their order. `spare` has room for `count`
 * too. */
void muster_sort(struct muster_sort_item *items, struct muster_sort_item *spare, size_t count);

#endif
