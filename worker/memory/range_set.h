/*
 * The floor: a set of bytes of the address space, kept as the fewest address ranges. Pure. Its size
 * is fixed, so that a change needs no memory.
 */
#ifndef MUSTER_WORKER_MEMORY_RANGE_SET_H
#define MUSTER_WORKER_MEMORY_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_RANGE_SET_MAX = 4096 };

/* [begin, end) */
struct muster_address_range {
    uintptr_t begin, end;
};

/* Zeroed: the empty set. */
struct muster_range_set {
    size_t count;
    struct muster_address_range ranges[MUSTER_RANGE_SET_MAX]; /* sorted, with gaps between them */
};

/* Whether all of the range is in the set. */
bool muster_range_set_contains(const struct muster_range_set *set,
                               struct muster_address_range range);

/* False, and no change, if the set would have too many ranges. */
bool muster_range_set_add(struct muster_range_set *set, struct muster_address_range range);

/* Removes the range. If the set would have too many ranges then, it removes more: what is left of
 * the highest range, above the gap. */
void muster_range_set_remove(struct muster_range_set *set, struct muster_address_range range);

#endif
