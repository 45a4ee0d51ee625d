/*
 * The floor: a set of bytes of the address space, as the fewest stretches that it is made of. Pure;
 * of a fixed size, so that it needs no memory while it changes.
 */
#ifndef MUSTER_WORKER_MEMORY_RANGE_SET_H
#define MUSTER_WORKER_MEMORY_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_RANGES_MAX = 4096 };

/* [begin, end) */
struct muster_range {
    uintptr_t begin, end;
};

/* Zeroed: the empty set. */
struct muster_range_set {
    size_t count;
    struct muster_range ranges[MUSTER_RANGES_MAX]; /* sorted; gaps between them */
};

/* Whether all of it is in the set. */
bool muster_range_set_contains(const struct muster_range_set *set, struct muster_range range);

/* False, and nothing has changed, if there would be too many. */
bool muster_range_set_add(struct muster_range_set *set, struct muster_range range);

/* Takes it out. If there would be too many then, more is taken out: the rest of a stretch, above.
 */
void muster_range_set_remove(struct muster_range_set *set, struct muster_range range);

#endif
