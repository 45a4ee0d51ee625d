/*
 * The memory that the ranks of a group share: its layout, how it is made and opened, and which
 * ranks are alive.
 *
 *   rank slots      one a rank; written by that rank alone, except the count of its sleepers
 *   staging areas   two a rank, used in turn: input that the other ranks read; pages come with the
 *                   first use
 *
 * Each rank holds a lock (fcntl) on one byte of the memory, the one of its rank. The kernel
 * releases it when the process dies, in whatever way. So a byte without a lock means that the
 * process is dead. A process id would not prove that: another process may have the same id by then.
 *
 * Nothing that is read from this memory is used as a size or an index, except the number of a
 * buffer's runs, which is bounded. Addresses that are read from
 * it go to the kernel only, which fails for invalid ones.
 *
 * Private to worker/device/host/.
 */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_LAYOUT_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_LAYOUT_H

#include "worker/device/host/group_memory.h"

#include <stdatomic.h>

enum {
    MUSTER_GROUP_LINE_BYTES = 128,   /* two cache lines: processors fetch them in pairs */
    MUSTER_GROUP_PAYLOAD_BYTES = 16, /* of input that fits an announcement */
};

/* A number that only grows. Phases of an operation are below 2^24. */
#define MUSTER_GROUP_PROGRESS(sequence, phase) ((sequence) << 24 | (phase))

/* What a rank announces of one operation. Fits a cache line. */
struct muster_group_announcement {
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t sequence; /* written last */
    _Atomic uint64_t call[5];                                    /* packed by group_exchange.c */
    /* The input itself, or the addresses of input and output: of a buffer in several ranges, that
     * of the list of its runs. */
    _Atomic uint64_t payload[2];
};

/* The allocation of muster_alloc() that one of a rank's buffers is in, as its process knows it. */
struct muster_group_allocation {
    _Atomic uint64_t id; /* 0: the buffer is in none */
    _Atomic uint64_t fd, base, size_bytes;
    _Atomic uint64_t run_count; /* of a buffer in several ranges; 0: it is in one piece */
};

enum muster_group_side { MUSTER_GROUP_INPUT = 0, MUSTER_GROUP_OUTPUT = 1 };

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): no two writers share a cache line */
struct muster_group_rank_slot {
    struct muster_group_announcement announcements[2]; /* of even and of odd sequences */
    /* Likewise, by side; written before the announcement of operations that may read buffers. */
    _Alignas(MUSTER_GROUP_LINE_BYTES) struct muster_group_allocation allocations[2][2];
    _Atomic uint64_t freed_count; /* grows when the rank frees memory of muster_alloc() */
    /* The last phase that is done: MUSTER_GROUP_PROGRESS(). */
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t progress;
    _Atomic uint64_t withdrawn; /* the first operation without this rank; 0: none */
    _Atomic uint64_t left;      /* the last call that it has left, where steps are parts of calls */
    _Atomic uint32_t futex_word; /* grows with each write while there are sleepers */
    _Atomic uint32_t sleepers;   /* written by the ranks that wait for this one */
    /* Written once, when the rank takes its slot. */
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t pid;
    _Atomic uint64_t probe_address, probe_value; /* of a number in the rank's own memory */
};

/* The memory has several such parts, one after the other: the first for blocking operations, the
 * others for operations in flight. */
struct muster_group_layout {
    int fd;
    char *base;        /* NULL: not mapped */
    size_t size_bytes; /* of the mapping; 0: it is another one's */
    uint32_t ranks;
};

/* MUSTER_FATAL: no memory or descriptors. */
MUSTER_CHECKED muster_status muster_group_layout_create(uint32_t ranks, int *ret_fd);
/* Takes the descriptor, also on failure. MUSTER_INVALID: it is not of such memory. */
MUSTER_CHECKED muster_status muster_group_layout_open(int fd, uint32_t ranks,
                                                      struct muster_group_layout *ret_layout);
/* Another part, from 1 to MUSTER_GROUP_CHANNELS; to be finished before the layout of the first
 * part, which it borrows. */
struct muster_group_layout muster_group_layout_part(const struct muster_group_layout *layout,
                                                    uint32_t part);
void muster_group_layout_finish(struct muster_group_layout *layout);

static inline struct muster_group_rank_slot *
muster_group_layout_rank_slot(const struct muster_group_layout *layout, uint32_t rank)
{
    return (struct muster_group_rank_slot *)(void *)layout->base + rank;
}

/* Of MUSTER_GROUP_STAGING_BYTES. */
char *muster_group_layout_staging_area(const struct muster_group_layout *layout, uint32_t rank,
                                       uint64_t sequence);

/* Locks the rank's byte for this process. False if another process holds it. */
bool muster_group_layout_lock_rank(const struct muster_group_layout *layout, uint32_t rank);
/* The id of the process that holds the rank's byte, as seen by this process; 0 if no other process
 * holds it. */
int64_t muster_group_layout_rank_holder(const struct muster_group_layout *layout, uint32_t rank);

#endif
