/* What the two ways to set up shared memory have in common: for all ranks (shared_memory_setup.c),
 * and for those of each host (host_memory_setup.c). Private to the context. */
#ifndef MUSTER_WORKER_CONTEXT_MEMORY_SETUP_H
#define MUSTER_WORKER_CONTEXT_MEMORY_SETUP_H

#include "worker/base/status.h"
#include "worker/device/host/group_memory.h"

struct muster_context;
struct muster_context_memory;

struct muster_memory_setup {
    struct muster_context *context;
    int64_t deadline_ns;
    uint32_t *ret_suspect;
};

/* Whether the answer is yes on all ranks of the context. Collective. */
MUSTER_CHECKED muster_status muster_memory_setup_all(const struct muster_memory_setup *setup,
                                                     bool here, bool *ret_everywhere);

/* Of all members of these groups, at the same time: rank 0 of each group creates its memory, and
 * the others open it. *ret_memory stays NULL in a group of one, where it cannot be mapped, where
 * the link shares no memory, and if any group could not create its own. Collective in the context.
 */
MUSTER_CHECKED muster_status muster_memory_setup_open(
    const struct muster_memory_setup *setup, const struct muster_group_memory_options *options,
    struct muster_group_memory **ret_memory);

/* So many parts of the memory, for calls in flight. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_memory_setup_parts(struct muster_context_memory *memory,
                                                       uint32_t count);

/* The memory of each host, in a context of several hosts. Statuses as of
 * muster_context_share_memory(). */
MUSTER_CHECKED muster_status
muster_context_share_host_memory(const struct muster_memory_setup *setup);

#endif
