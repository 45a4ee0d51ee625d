/*
 * The floor: the allocations of muster_alloc(). Each is an unnamed shared memory of its own
 * (shared_memory.h), so that a peer on this host that gets the descriptor can map it and read it in
 * place.
 *
 * Threads: any.
 */
#ifndef MUSTER_WORKER_MEMORY_ALLOCATION_REGISTRY_H
#define MUSTER_WORKER_MEMORY_ALLOCATION_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At a time: each costs a descriptor, and a search goes through all. */
enum { MUSTER_ALLOCATIONS_MAX = 1024 };

struct muster_allocation {
    char *base;
    size_t size_bytes; /* whole pages */
    int fd;            /* borrowed until the allocation is freed */
    uint64_t id;       /* never used again in this process; not 0 */
};

/* Finds the allocation that contains all of these bytes. It stays as long as the caller may use the
 * bytes. */
bool muster_allocation_find(const void *data, size_t size_bytes,
                            struct muster_allocation *ret_allocation);

/* False once the allocation has been freed. */
bool muster_allocation_is_live(uint64_t id);

/* Grows with each allocation that is freed: peers then drop mappings, and caches drop entries.
 */
uint64_t muster_allocation_freed_count(void);

#endif
