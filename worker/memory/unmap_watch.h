/*
 * The floor: tells which memory of this process went away (was unmapped, moved, or given back to
 * the kernel), so that who keeps something about the pages of a user's memory does not use it for
 * the pages that are there later.
 *
 * The kernel tells it: userfaultfd(2), of which only the events are used, never a fault. It lets no
 * munmap(), madvise(), mremap() or brk() of watched memory return before the event was read, which
 * a thread does that starts with the first watch and ends with the last user. So when the memory
 * can be used anew, muster_unmap_watch_ops.collect() has it.
 *
 * Only private anonymous memory is watched (malloc, stacks, mmap(MAP_ANONYMOUS)): the pages of a
 * shared file also go away when somebody cuts the file, which nobody tells. Where the kernel has no
 * userfaultfd, or forbids it, nothing is.
 *
 * Threads: any, but for the one rule that nobody who unmaps or allocates memory is waited for.
 * After fork() the child watches nothing, and hears that everything went away.
 */
#ifndef MUSTER_WORKER_MEMORY_UNMAP_WATCH_H
#define MUSTER_WORKER_MEMORY_UNMAP_WATCH_H

#include "worker/memory/range_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_UNMAP_LOG_MAX = 1024,  /* stretches that are remembered */
    MUSTER_UNMAP_REPORT_MAX = 64, /* that are told at a time */
};

struct muster_unmap_report {
    bool everything; /* anything may have gone: more than is remembered, or the watch ended */
    bool more;       /* call again */
    size_t count;
    struct muster_range gone[MUSTER_UNMAP_REPORT_MAX];
};

/* An interface, so that tests can pretend. */
struct muster_unmap_watch_ops {
    /* Begins to use the others; the position that muster_unmap_watch_ops.collect() starts from. */
    uint64_t (*hold)(void);
    void (*release)(void);

    /* Whole pages that are in use, and are there (written, or read by a device), from here to the
     * return. True: from now on it is told when they go away. False: they cannot be watched.
     * Asking again for what is watched is cheap. */
    bool (*watch)(const void *base, size_t size_bytes);

    /* What went away since the position, which moves on. What has gone when this is called is in
     * it. False: it cannot be told now, since some watched memory is just being unmapped: rely on
     * nothing that is watched. One short system call if there is no news; does not wait. */
    bool (*collect)(uint64_t *position, struct muster_unmap_report *ret_report);
};

extern const struct muster_unmap_watch_ops muster_unmap_watch_ops;

#endif
