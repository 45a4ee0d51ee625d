/*
 * The floor: what muster_alloc() has given out. Each piece is a memory without a name
 * (shared_memory.h) of its own, so that a peer on this host that gets its descriptor can map it and
 * read it in place.
 *
 * Threads: any.
 */
#ifndef MUSTER_WORKER_MEMORY_ALLOCATION_REGISTRY_H
#define MUSTER_WORKER_MEMORY_ALLOCATION_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pieces at a time: each costs a descriptor, and finding one looks at all. */
enum { MUSTER_ALLOCATIONS_MAX = 1024 };

struct muster_allocation {
    char *base;
    size_t size_bytes; /* whole pages */
    int fd;            /* borrowed until it is freed */
    uint64_t id;       /* never used again in this process; not 0 */
};

/* The piece that all of these bytes are in; false if there is none. It stays as long as the caller
 * may use the bytes. */
bool muster_allocation_find(const void *data, size_t size_bytes,
                            struct muster_allocation *ret_allocation);

/* False once it has been freed. */
bool muster_allocation_is_live(uint64_t id);

/* Grows whenever a piece is freed: what was told to peers is to be looked through then. */
uint64_t muster_allocation_freed_count(void);

#endif
