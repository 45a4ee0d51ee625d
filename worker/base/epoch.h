/*
 * The number of a generation, below 2^63: the epoch of the store in the upper 31 bits, which each
 * start of a server raises, and below it a count of the job's generations. Compared, stored and
 * sent is the whole; people are shown the count.
 */
#ifndef MUSTER_WORKER_BASE_EPOCH_H
#define MUSTER_WORKER_BASE_EPOCH_H

#include <stdint.h>

enum { MUSTER_EPOCH_MAX = INT32_MAX, MUSTER_EPOCHS_PER_DAY = 24 * 60 * 60 };

/* What people are shown. */
static inline uint64_t muster_epoch_shown(uint64_t generation)
{
    return generation & UINT32_MAX;
}

static inline uint32_t muster_epoch_of(uint64_t generation)
{
    return (uint32_t)(generation >> 32);
}

/* The number after the last one, in this epoch or a later one that the last one has. */
static inline uint64_t muster_epoch_next(uint64_t last, uint32_t epoch)
{
    uint64_t least = (uint64_t)epoch << 32;
    return last < least ? least + muster_epoch_shown(last) + 1 : last + 1;
}

/* The highest number that a joiner may know while the server is in this epoch: clocks of servers
 * differ by less than a day. In the last epoch there is room to count on. */
static inline uint64_t muster_epoch_limit(uint32_t epoch)
{
    uint64_t highest = (uint64_t)epoch + MUSTER_EPOCHS_PER_DAY;
    return highest < MUSTER_EPOCH_MAX ? highest << 32 | UINT32_MAX
                                      : (uint64_t)MUSTER_EPOCH_MAX << 32;
}

#endif
