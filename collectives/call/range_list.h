/*
 * Several ranges of memory as one buffer: its bytes are those of the ranges, one range after the
 * other. Each range has whole elements, so no element lies in two.
 *
 * A list is made of the caller's ranges: empty ones are left out, and neighbours that also follow
 * each other in memory become one run. So a list of one run is an ordinary buffer.
 *
 * Pure, but for the list's memory.
 */
#ifndef MUSTER_COLLECTIVES_CALL_RANGE_LIST_H
#define MUSTER_COLLECTIVES_CALL_RANGE_LIST_H

#include <stdbool.h>
#include <string.h>

#include "worker/muster.h"

/* Bytes that follow each other in memory. */
struct muster_range_run {
    char *address;
    uint64_t begin_bytes; /* its first byte in the buffer */
};

/* The addresses of a run, and the range that it begins with: for finding overlaps. */
struct muster_range_extent {
    uintptr_t begin, end;
    size_t index;
};

/* Zeroed: an empty list. Kept from call to call, for its memory. */
struct muster_range_list {
    struct muster_range_run *runs; /* [count + 1]; the last one begins where the buffer ends */
    size_t count;
    struct muster_range_extent *extents; /* [count] by address */
    size_t room;                         /* of both */
};

void muster_range_list_finish(struct muster_range_list *list);

/* The sum of the counts, without any look at the addresses. `side` names the ranges in error texts:
 * "ins". MUSTER_INVALID: more than MUSTER_RANGES_MAX ranges, no list, or more elements than a
 * buffer may have. */
MUSTER_CHECKED muster_status muster_range_list_total(const muster_range *ranges, size_t range_count,
                                                     const char *side, uint64_t *ret_count);

/* Fills the list; muster_range_list_total() has been asked. MUSTER_INVALID: a range is NULL, not
 * aligned for its elements, wraps around the end of memory, or overlaps another one.
 * MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_range_list_fill(struct muster_range_list *list,
                                                    const muster_range *ranges, size_t range_count,
                                                    size_t element_size_bytes, const char *side);

bool muster_range_list_equal(const struct muster_range_list *one,
                             const struct muster_range_list *other);

/* MUSTER_INVALID: the two have a byte in common; the text names both ranges. */
MUSTER_CHECKED muster_status muster_range_list_check_apart(const struct muster_range_list *ins,
                                                           const struct muster_range_list *outs);

/* The index of the run that has this byte, which is in the list. Runs are those of struct
 * muster_range_list. */
size_t muster_range_find(const struct muster_range_run *runs, size_t count, uint64_t at_bytes);

/* Bytes of a buffer from one on, in a list of ranges or not. */
struct muster_place {
    char *base;                             /* NULL: in the list */
    const struct muster_range_list *ranges; /* NULL: from base on */
    uint64_t at_bytes;                      /* in the list */
};

static inline struct muster_place muster_place_advance(struct muster_place place, uint64_t bytes)
{
    if (place.ranges != NULL) {
        place.at_bytes += bytes;
    } else {
        place.base += bytes;
    }
    return place;
}

/* Where the first byte of a list's place is. *size_bytes, how many are asked for, becomes at most
 * the number that follow there. */
char *muster_place_find(const struct muster_place *place, uint64_t *size_bytes);

static inline char *muster_place_at(const struct muster_place *place, uint64_t *size_bytes)
{
    return place->ranges == NULL ? place->base : muster_place_find(place, size_bytes);
}

/* Copies between places that do not overlap, or are the same. */
void muster_place_copy_parts(struct muster_place to, struct muster_place from, uint64_t size_bytes);

static inline void muster_place_copy(struct muster_place to, struct muster_place from,
                                     uint64_t size_bytes)
{
    if (to.ranges != NULL || from.ranges != NULL) {
        muster_place_copy_parts(to, from, size_bytes);
    } else if (size_bytes > 0 && to.base != from.base) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): without ranges there is a base
         */
        memcpy(to.base, from.base, size_bytes);
    }
}

#endif
