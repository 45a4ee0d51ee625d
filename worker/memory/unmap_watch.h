/*
 * The floor: reports which memory of this process went away (was unmapped, moved, or given back to
 * the kernel). A cache of facts about the pages of a user's memory, such as registrations with an
 * RDMA device, drops its entries then, since the same addresses may soon have other pages.
 *
 * Watched memory is registered with userfaultfd(2), of which only the events are used (unmap,
 * remap, remove). The mode is that of write protection, and no page is ever protected, so that no
 * access ever faults or is slower. The kernel lets no munmap(), madvise(), mremap() or brk() of
 * watched memory return before its event has been read. A monitor thread reads the events; it
 * starts with the first watch and ends with the last user. So when the memory can be used anew,
 * collect() has it.
 *
 * - Order: the monitor takes the lock of the log, then reads an event, then adds it to the log.
 *   collect() takes the same lock. So each unmap that has returned is in the log.
 * - The gap: addresses are free a moment before the event comes, and another thread may get them
 *   before munmap() returns. During this gap the kernel refuses another request with EAGAIN.
 *   watch() and collect() make that request first, and report "not now" if it is refused too often.
 * - Deadlock: a thread that frees memory waits for the monitor, and may hold the locks of malloc().
 *   So the monitor neither allocates nor frees, nor does any thread under the lock of the log.
 * - Only private anonymous memory is watched (malloc, stacks, mmap(MAP_ANONYMOUS)): pages of a
 *   shared file also go away when a process truncates the file, without an event. The kind of
 *   a page is read from /proc/self/pagemap. What the kernel refuses is not watched: files, memory
 *   of another userfaultfd, parts of huge pages that were mapped as such.
 * - Memory stays watched until it is unmapped or the watch ends, even if no user needs it any more.
 *   The number of ranges bounds what the kernel keeps; memory beyond that is not watched.
 * - After fork() the child has no watch and waits for no thread; collect() reports that all memory
 *   went away. It may watch anew. A process may end at any time.
 * - Without userfaultfd (before Linux 5.7, or with a filter of system calls, as many containers
 *   have) nothing is watched, and MUSTER_LOG=debug says so. From Linux 5.11 no privilege is needed;
 *   before, vm.unprivileged_userfaultfd=1 or a capability is.
 *
 * Threads: any, but a thread that unmaps or allocates memory must never be waited for.
 */
#ifndef MUSTER_WORKER_MEMORY_UNMAP_WATCH_H
#define MUSTER_WORKER_MEMORY_UNMAP_WATCH_H

#include "worker/memory/range_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Besides these, MUSTER_RANGE_SET_MAX bounds the ranges that are watched. */
enum {
    MUSTER_UNMAP_LOG_MAX = 1024,  /* ranges in the log; older ones are reported as `everything` */
    MUSTER_UNMAP_REPORT_MAX = 64, /* ranges in one report */
};

struct muster_unmap_report {
    bool everything; /* any memory may have gone: the log is too short, or the watch has ended */
    bool more;       /* call again */
    size_t count;
    struct muster_address_range gone[MUSTER_UNMAP_REPORT_MAX];
};

/* An interface, so that tests can replace it. */
struct muster_unmap_watch_ops {
    /* Begins to use the others. Returns the first position for collect(). */
    uint64_t (*hold)(void);
    void (*release)(void);

    /* Watches whole pages, which are in use and exist (were written, or read by a device) during
     * the whole call. True: from now on it is reported when they go away. False: they cannot be
     * watched. Cheap for pages that are watched already. */
    bool (*watch)(const void *base, size_t size_bytes);

    /* Reports what went away since the position, and advances the position. What was gone before
     * the call is in the report. False: not now, since some watched memory is being unmapped at
     * this moment; the caller must then trust no watched memory. One short system call if there is
     * nothing to report; does not wait. */
    bool (*collect)(uint64_t *position, struct muster_unmap_report *ret_report);
};

extern const struct muster_unmap_watch_ops muster_unmap_watch_ops;

#endif
