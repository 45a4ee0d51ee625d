/*
 * Memory that is registered with one RDMA device: a stage of its own between who sends out of a
 * user's buffer and the device, and a cache, so that memory that is used again is not registered
 * again. Memory is registered in blocks: the address space is cut at every MiB, and a block is
 * clipped to the memory that the caller may use, rounded out to pages.
 *
 *   memory                         may be used           stays registered
 *   of muster_alloc()              the whole piece       until the piece is freed
 *   any other, watched             the extent            until it is unmapped (unmapped.h)
 *   any other, not watched         the extent            until muster_registrations_end()
 *   of a GPU                       its allocation        as long as that has the same id; where it
 *                                                        has none, until muster_registrations_end()
 *
 * and no longer than there is room: what was not held for the longest time makes room first.
 *
 * Who holds a registration overlaps the registering of the next block with the sending of this one
 * by asking for the next block while this one is sent.
 *
 * What was freed stays registered, and so in the machine's memory, until the next hold finds that;
 * memory of a GPU until memory of another allocation is to be registered.
 *
 * Pure but for what it asks about memory (allocated.h, gpu.h, and the watch that it is given): no
 * sockets, clocks, devices. Threads: all calls for one object under one lock, the fabric's.
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_REGISTRATIONS_H
#define MUSTER_WORKER_FABRIC_VERBS_REGISTRATIONS_H

#include "worker/device/cuda/gpu.h"
#include "worker/memory/unmap_watch.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_REGISTRATION_BLOCK_BYTES = 1 << 20,
    /* At a time, of one device; with fewer bytes than the bound, too. */
    MUSTER_REGISTRATIONS_MAX = 16384,
};

/* How memory is registered: with the device, or a pretended one in tests. Borrowed pointers, good
 * until the object is destroyed. */
struct muster_registrar {
    void *device;
    /* Whole pages, of a GPU's memory or (NULL) the host's. NULL: errno says why; after ENOMEM it is
     * called again with less registered. */
    void *(*add)(void *device, const struct muster_gpu_memory *gpu, void *base, size_t size_bytes);
    void (*remove)(void *device, void *handle);
    /* &muster_unmap_watch_ops, or a pretended watch in tests. NULL: nothing is watched. */
    const struct muster_unmap_watch_ops *unmapped;
};

/* Memory that may be used as long as a transfer of it lasts. */
struct muster_extent {
    const void *base;
    size_t size_bytes;
    const struct muster_gpu_memory *gpu; /* that it is in; NULL: memory of the host */
};

struct muster_registrations_figures {
    uint64_t hits;      /* holds that were served by what was registered */
    uint64_t misses;    /* holds that asked the device */
    uint64_t refused;   /* of these, those that it refused, or that there was no room for */
    uint64_t evictions; /* to make room for others */
    uint64_t bytes;     /* registered now */
    uint64_t most_bytes;
    uint64_t count; /* registered now */
};

struct muster_registrations;
struct muster_registration;

/* Bytes that one process should keep registered: half of what it may lock (RLIMIT_MEMLOCK;
 * UINT64_MAX: no limit), and no more than a quarter of the memory of the machine. */
uint64_t muster_registrations_bound(uint64_t lockable_bytes, uint64_t memory_bytes);

/* At most bound_bytes are registered at a time. NULL: no memory. Destroyed by the caller. */
struct muster_registrations *muster_registrations_create(const struct muster_registrar *registrar,
                                                         uint64_t bound_bytes);

/* Removes all registrations, those that are held, too: nobody may use them any more. */
void muster_registrations_destroy(struct muster_registrations *registrations);

/*
 * Holds a registration of the first bytes of [data, data + size_bytes), which lie in the extent;
 * sets *ret_covered_bytes to how many of them it has: up to the end of the block that data is in,
 * so that a range of up to one block takes two calls at most. May block for as long as the device
 * takes to register a block.
 *
 * NULL: it cannot be registered now (there is no room and everything else is held, the device
 * refuses, or it is not all in one allocation of the GPU); the caller copies instead. Each
 * registration is released by the caller, once per call.
 */
struct muster_registration *muster_registrations_hold(struct muster_registrations *registrations,
                                                      const void *data, size_t size_bytes,
                                                      struct muster_extent extent,
                                                      size_t *ret_covered_bytes);

/* What the registrar's add() returned: the memory region of the device. */
void *muster_registration_handle(const struct muster_registration *registration);

void muster_registrations_release(struct muster_registrations *registrations,
                                  struct muster_registration *registration);

/*
 * The caller's right to use the extent ends: its transfer is over, and the memory may be freed and
 * used anew. Called for every extent that was held from, before the user has it back. Registrations
 * of it that nobody watches are removed, those that are still held when they are released; they are
 * not given out again.
 */
void muster_registrations_end(struct muster_registrations *registrations,
                              struct muster_extent extent);

struct muster_registrations_figures
muster_registrations_figures(const struct muster_registrations *registrations);

#endif
