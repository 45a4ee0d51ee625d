/*
 * The memory that the ranks of a group share: how it is laid out, made, found, and who lives in it.
 *
 *   seats       one a rank, written by that rank alone (but for the count of those who sleep)
 *   slots       two a rank, used in turn: what it lays down for the others
 *
 * Each rank holds a lock on one byte of it, its own: the kernel gives it back when the process
 * dies, however it dies, and so says who lives, without a number of a process that another one may
 * have by then.
 *
 * Nothing that is read here is used as a size or an index.
 *
 * Private to worker/device/.
 */
#ifndef MUSTER_WORKER_DEVICE_HOST_GROUP_LAYOUT_H
#define MUSTER_WORKER_DEVICE_HOST_GROUP_LAYOUT_H

#include "worker/device/host/group_memory.h"

#include <stdatomic.h>

enum {
    MUSTER_GROUP_LINE_BYTES = 128,   /* two cache lines: processors fetch them in pairs */
    MUSTER_GROUP_PAYLOAD_BYTES = 16, /* of data that fit into a post */
};

/* Only ever grows. Steps of an operation are below 2^24. */
#define MUSTER_GROUP_PROGRESS(sequence, phase) ((sequence) << 24 | (phase))

/* What a rank says of one operation; fits a cache line. */
struct muster_group_announcement {
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t sequence; /* written last */
    _Atomic uint64_t call[5];                                    /* muster_group_pack() */
    _Atomic uint64_t payload[2]; /* the input itself, or the addresses of INPUT and OUTPUT */
};

/* Where one of a rank's buffers is, if muster_alloc() gave it out: as that process knows it. */
struct muster_group_allocation {
    _Atomic uint64_t id; /* 0: it did not */
    _Atomic uint64_t fd, base, size_bytes;
};

enum muster_group_side { MUSTER_GROUP_INPUT = 0, MUSTER_GROUP_OUTPUT = 1 };

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines are not to be shared */
struct muster_group_rank_slot {
    struct muster_group_announcement announcements[2]; /* of sequences that are even, and odd */
    /* Likewise; written before the post, of operations that may read buffers. */
    _Alignas(MUSTER_GROUP_LINE_BYTES) struct muster_group_allocation
        allocations[2][2];        /* by side */
    _Atomic uint64_t freed_count; /* grows when the rank frees memory of muster_alloc() */
    /* The last step of an operation that is done: MUSTER_GROUP_PROGRESS(). */
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t progress;
    _Atomic uint64_t withdrawn;  /* from this sequence on it takes part no more; 0: it does */
    _Atomic uint32_t futex_word; /* counts what was written, while somebody sleeps */
    _Atomic uint32_t sleepers;   /* written by those who wait for this rank */
    /* Written once, at the beginning. */
    _Alignas(MUSTER_GROUP_LINE_BYTES) _Atomic uint64_t pid;
    _Atomic uint64_t probe_address, probe_value; /* in the rank's own memory */
};

struct muster_group_layout {
    int fd;
    char *base; /* NULL: not mapped */
    size_t size_bytes;
    uint32_t ranks;
};

/* MUSTER_FATAL: no memory or descriptors. */
MUSTER_CHECKED muster_status muster_group_layout_init(uint32_t ranks,
                                                      struct muster_group_layout *ret_layout);
/* Takes the descriptor, also on failure. MUSTER_INVALID: it is not of such memory. */
MUSTER_CHECKED muster_status muster_group_layout_open(int fd, uint32_t ranks,
                                                      struct muster_group_layout *ret_layout);
void muster_group_layout_finish(struct muster_group_layout *layout);

struct muster_group_rank_slot *
muster_group_layout_rank_slot(const struct muster_group_layout *layout, uint32_t rank);
/* MUSTER_GROUP_STAGING_BYTES of it. */
char *muster_group_layout_staging_area(const struct muster_group_layout *layout, uint32_t rank,
                                       uint64_t sequence);

/* Takes the rank's byte for this process. False if another one has it. */
bool muster_group_layout_lock_rank(const struct muster_group_layout *layout, uint32_t rank);
/* The process that has the rank's byte, as this one knows it; 0 if no other process has it. */
int64_t muster_group_layout_rank_holder(const struct muster_group_layout *layout, uint32_t rank);

#endif
