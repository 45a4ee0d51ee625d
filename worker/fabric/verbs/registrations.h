/*
 * A cache of memory registered with one RDMA device, so that memory is not registered again for
 * each message. Memory is registered in blocks: the address space is divided at every MiB, and a
 * block is clipped to the memory that the caller may use, rounded out to pages.
 *
 *   kind of memory                 may be registered     stays registered
 *   of muster_alloc()              the allocation        until it is freed
 *   any other, watched             the usable range      until it is unmapped (unmap_watch.h)
 *   any other, not watched         the usable range      until muster_registrations_end()
 *   of another device              its allocation        as long as that has the same id; where it
 *                                                        has none, until muster_registrations_end()
 *
 * and only while there is room: the least recently held registrations are evicted first.
 *
 * A caller overlaps registration with sending: it holds the next block while this one is sent.
 *
 * Freed memory stays registered, and so pinned, until the next hold notices that it was freed;
 * memory of another device until memory of another allocation is registered.
 *
 * Pure except for questions about memory (allocation_registry.h, devices.h, and the given watch):
 * no sockets, clocks, devices. Threads: all calls for one object under one lock, the fabric's.
 */
#ifndef MUSTER_WORKER_FABRIC_VERBS_REGISTRATIONS_H
#define MUSTER_WORKER_FABRIC_VERBS_REGISTRATIONS_H

#include "worker/device/devices.h"
#include "worker/memory/unmap_watch.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MUSTER_REGISTRATION_BLOCK_BYTES = 1 << 20,
    /* At a time, of one device, even if their bytes are within the bound. */
    MUSTER_REGISTRATIONS_MAX = 16384,
};

/* Registers memory with a device, or a simulated one in tests. Borrowed until the object is
 * destroyed. */
struct muster_registrar {
    void *device;
    /* Whole pages of this memory of another device, or of the host if memory is NULL. NULL: errno
     * says why; after ENOMEM it is called again when something was evicted. */
    void *(*add)(void *device, const struct muster_device_memory *memory, void *base,
                 size_t size_bytes);
    void (*remove)(void *device, void *handle);
    /* &muster_unmap_watch_ops, or a simulated watch in tests. NULL: nothing is watched. */
    const struct muster_unmap_watch_ops *unmap_watch;
};

/* Memory that the caller may use as long as its transfer lasts. */
struct muster_usable_range {
    const void *base;
    size_t size_bytes;
    const struct muster_device_memory *memory; /* its allocation; NULL: host memory */
};

struct muster_registrations_figures {
    uint64_t hits;      /* holds that found a registration */
    uint64_t misses;    /* holds that did not */
    uint64_t refused;   /* misses that could not be registered */
    uint64_t evictions; /* to make room */
    uint64_t bytes;     /* registered now */
    uint64_t most_bytes;
    uint64_t count; /* registered now */
};

struct muster_registrations;
struct muster_registration;

/* Bytes that one process may keep registered: half of what it may lock (RLIMIT_MEMLOCK; UINT64_MAX:
 * no limit), and at most a quarter of the machine's memory. */
uint64_t muster_registrations_bound(uint64_t lockable_bytes, uint64_t memory_bytes);

/* At most bound_bytes are registered at a time. NULL: out of memory. Destroyed by the caller. */
struct muster_registrations *muster_registrations_create(const struct muster_registrar *registrar,
                                                         uint64_t bound_bytes);

/* Removes all registrations, also held ones: none may be in use. */
void muster_registrations_destroy(struct muster_registrations *registrations);

/*
 * Holds a registration of the first bytes of [data, data + size_bytes), which lie in the usable
 * range. Sets *ret_covered_bytes to the number of these bytes: up to the end of the block in which
 * data lies, so that a range of up to one block needs two calls at most. May block for as long as
 * the device takes to register a block.
 *
 * NULL: the memory cannot be registered now (no room and everything else is held, the device
 * refuses, or the bytes are not within one allocation); the caller copies instead. The caller
 * releases each registration once per call.
 */
struct muster_registration *muster_registrations_hold(struct muster_registrations *registrations,
                                                      const void *data, size_t size_bytes,
                                                      struct muster_usable_range usable,
                                                      size_t *ret_covered_bytes);

/* The return value of the registrar's add(): the device's memory region. */
void *muster_registration_handle(const struct muster_registration *registration);

void muster_registrations_release(struct muster_registrations *registrations,
                                  struct muster_registration *registration);

/*
 * The caller's right to use the range ends: its transfer is over, and the memory may be freed and
 * reused. To be called for every range of which something was held, before the user has the memory
 * back. Registrations in it that are not watched are not used again, and are removed, held ones
 * when they are released.
 */
void muster_registrations_end(struct muster_registrations *registrations,
                              struct muster_usable_range usable);

struct muster_registrations_figures
muster_registrations_figures(const struct muster_registrations *registrations);

#endif
