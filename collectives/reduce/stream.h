/*
 * Results written past the caches. An ordinary store first reads the line that it writes, and keeps
 * it; where a result is larger than the caches, that is memory traffic for nothing. Worth it from a
 * few MiB on, and not where somebody reads the result right away.
 */
#ifndef MUSTER_COLLECTIVES_REDUCE_STREAM_H
#define MUSTER_COLLECTIVES_REDUCE_STREAM_H

#include "collectives/reduce/reduce.h"

/* As memcpy(). */
void muster_stream_copy(void *target, const void *source, size_t size_bytes);

/* As muster_reduction_combine(). */
void muster_stream_combine(const struct muster_reduction *reduction, void *target, const void *left,
                           const void *right, size_t count);

#endif
