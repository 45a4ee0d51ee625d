/*
 * Writing results past the caches (non-temporal stores). An ordinary store first reads the cache
 * line that it writes, and leaves it in the cache. For a result larger than the caches this is
 * useless memory traffic. It pays off from a few MiB on, if the result is not read soon after.
 */
#ifndef MUSTER_COLLECTIVES_REDUCE_STREAM_H
#define MUSTER_COLLECTIVES_REDUCE_STREAM_H

#include "collectives/reduce/reduce.h"

/* Like memcpy(). */
void muster_stream_copy(void *target, const void *source, size_t size_bytes);

/* Like muster_reduction_combine(). */
void muster_stream_combine(const struct muster_reduction *reduction, void *target, const void *left,
                           const void *right, size_t count);

#endif
