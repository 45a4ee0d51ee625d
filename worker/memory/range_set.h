/*
 * The floor: a set of bytes of the address space, as the fewest stretches that it is made of. Pure;
 * of a fixed size, so that it needs no memory while it changes.
 */
#ifndef MUSTER_WORKER_MEMORY_RANGE_SET_H
#define MUSTER_WORKER_MEMORY_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MUSTER_STRETCHES_MAX = 4096 };

/* [begin, end) */
struct muster_stretch {
    uintptr_t begin, end;
};

/* Zeroed: the empty set. */
struct muster_stretches {
    size_t count;
    struct muster_stretch all[MUSTER_STRETCHES_MAX]; /* sorted; gaps between them */
};

/* Whether all of it is in the set. */
bool muster_stretches_cover(const struct muster_stretches *stretches,
                            struct muster_stretch stretch);

/* False, and nothing has changed, if there would be too many. */
bool muster_stretches_add(struct muster_stretches *stretches, struct muster_stretch stretch);

/* Takes it out. If there would be too many then, more is taken out: the rest of a stretch, above.
 */
void muster_stretches_cut(struct muster_stretches *stretches, struct muster_stretch stretch);

#endif
