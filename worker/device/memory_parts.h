/* What the files of the shared memory's collectives share. Private to worker/device/. */
#ifndef MUSTER_WORKER_DEVICE_MEMORY_PARTS_H
#define MUSTER_WORKER_DEVICE_MEMORY_PARTS_H

#include "worker/base/status.h"
#include "worker/device/memory_region.h"

enum {
    /* What is reduced at a time: with what comes in between it stays in the second cache. */
    MUSTER_MEMORY_SEGMENT_BYTES = 64 << 10,
    MUSTER_MEMORY_LEVELS = 6, /* of the tree over MUSTER_MEMORY_RANKS_MAX */
};

struct muster_memory {
    struct muster_memory_options options;
    struct muster_memory_region region;
    uint64_t probe;                        /* what the others read of this process to try it */
    int64_t pids[MUSTER_MEMORY_RANKS_MAX]; /* as this process knows them */
    uint64_t posted;                       /* the last operation of this rank */
    uint64_t settled;                      /* that all are known to have posted */
    uint32_t spins;                        /* how long it looks before it gives way */
    char *room;                            /* MUSTER_MEMORY_LEVELS x 2 segments */
};

/* One operation under way. */
struct muster_memory_run {
    struct muster_memory *memory;
    const struct muster_memory_work *work;
    size_t element_size_bytes;
    uint32_t suspect; /* or UINT32_MAX */
};

/* Waits until *word, which that rank writes, is at least so much. The statuses of
 * muster_memory_run(). */
MUSTER_CHECKED muster_status muster_memory_wait_slowly(struct muster_memory_run *run, uint32_t rank,
                                                       const _Atomic uint64_t *word,
                                                       uint64_t least);

static inline muster_status muster_memory_wait(struct muster_memory_run *run, uint32_t rank,
                                               const _Atomic uint64_t *word, uint64_t least)
{
    if (atomic_load_explicit(word, memory_order_acquire) >= least) {
        return MUSTER_OK;
    }
    return muster_memory_wait_slowly(run, rank, word, least);
}

/* Wakes those who sleep until the seat's rank writes something: it has. */
void muster_memory_ring(struct muster_memory_seat *seat);

/* MUSTER_REJOIN if that rank died or takes part no more. */
MUSTER_CHECKED muster_status muster_memory_look_after(struct muster_memory_run *run, uint32_t rank);

/* Copies what stands at that address of the other rank's process. */
MUSTER_CHECKED muster_status muster_memory_fetch(struct muster_memory_run *run, uint32_t rank,
                                                 uint64_t address, void *target, size_t size_bytes);

/* Where the inputs of all ranks stand. */
struct muster_memory_inputs {
    const void *bases[MUSTER_MEMORY_RANKS_MAX];  /* here; or NULL */
    uint64_t addresses[MUSTER_MEMORY_RANKS_MAX]; /* then: in that rank's process */
};

/* target = the reduction of elements [span) of all inputs, along the tree of terms.h over
 * options.order. target may be the own input's. */
MUSTER_CHECKED muster_status muster_memory_reduce(struct muster_memory_run *run,
                                                  const struct muster_memory_inputs *inputs,
                                                  struct muster_span span, void *target);

#endif
