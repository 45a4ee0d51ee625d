/* What the two ways to open a group of a device have in common: for all ranks
 * (shared_memory_setup.c), and for those of each host (host_memory_setup.c). Private to the
 * context.
 */
#ifndef MUSTER_WORKER_CONTEXT_MEMORY_SETUP_H
#define MUSTER_WORKER_CONTEXT_MEMORY_SETUP_H

#include "worker/base/status.h"
#include "worker/device/group.h"

struct muster_context;
struct muster_device;
struct muster_context_memory;

struct muster_memory_setup {
    struct muster_context *context;
    const struct muster_device *device; /* that the group is of */
    int64_t deadline_ns;
    uint32_t *ret_suspect;
};

/* Whether the answer is yes on all ranks of the context. Collective. */
MUSTER_CHECKED muster_status muster_memory_setup_all(const struct muster_memory_setup *setup,
                                                     bool here, bool *ret_everywhere);

/* Opens the groups with so many members, of which each rank of the context has one, at the same
 * time, each with so many channels; what their steps cost is what they cost at most. *ret_all: all
 * ranks have opened theirs, and start may be called; else none has. A group of one has no memory.
 * Collective in the context. */
MUSTER_CHECKED muster_status muster_memory_setup_open(const struct muster_memory_setup *setup,
                                                      const struct muster_group_options *options,
                                                      uint32_t channels,
                                                      struct muster_context_memory *memory,
                                                      bool *ret_all);

/* The group of each host, in a context of several hosts. Statuses as of
 * muster_context_share_memory(). */
MUSTER_CHECKED muster_status
muster_context_share_host_memory(const struct muster_memory_setup *setup);

#endif
