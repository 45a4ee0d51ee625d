/*
 * Memory that a launch needs beside the caller's buffers: scratch of its schedule, copies, staging.
 * One launch at a time uses it, and it is kept for the next one.
 *
 * Private to the context. May use: base.
 */
#ifndef MUSTER_WORKER_CONTEXT_SCRATCH_H
#define MUSTER_WORKER_CONTEXT_SCRATCH_H

#include <stdint.h>

#include "worker/base/status.h"

enum { MUSTER_SCRATCH_ALIGNMENT = 64 }; /* a cache line */

/* Zeroed: there is none. free() the memory. */
struct muster_scratch {
    char *memory;
    uint64_t size_bytes;
};

/* The size of a part that is followed by another one. */
static inline uint64_t muster_scratch_aligned(uint64_t size_bytes)
{
    return (size_bytes + MUSTER_SCRATCH_ALIGNMENT - 1) / MUSTER_SCRATCH_ALIGNMENT *
           MUSTER_SCRATCH_ALIGNMENT;
}

/* Makes it at least so large; its contents are lost. MUSTER_FATAL: no memory; nothing has changed.
 */
MUSTER_CHECKED muster_status muster_scratch_reserve(struct muster_scratch *scratch,
                                                    uint64_t size_bytes);

#endif
