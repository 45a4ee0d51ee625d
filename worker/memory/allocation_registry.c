/* muster_alloc() and muster_free(), and the table of their allocations. */
#include "worker/memory/allocation_registry.h"

#include "worker/base/thread.h"
#include "worker/memory/shared_memory.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 * 1024 * 1024 };

static struct {
    pthread_mutex_t mutex;
    struct muster_allocation entries[MUSTER_ALLOCATIONS_MAX];
    uint32_t count;
    uint64_t last_id;
    atomic_uint_fast64_t freed;
    atomic_uint occupied; /* the count again, for a check without the lock */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static muster_status add(struct muster_allocation allocation)
{
    AUTO_LOCK(&registry.mutex);
    if (registry.count == MUSTER_ALLOCATIONS_MAX) {
        return muster_error_set(MUSTER_INVALID, "more than %d allocations of muster_alloc()",
                                MUSTER_ALLOCATIONS_MAX);
    }
    allocation.id = ++registry.last_id;
    registry.entries[registry.count++] = allocation;
    atomic_store(&registry.occupied, registry.count);
    return MUSTER_OK;
}

/* Makes sealed memory, maps it, and adds it to the table. The table is bounded, so that may fail,
 * too: then all is undone. */
muster_status muster_alloc(size_t size_bytes, void **ret_memory)
{
    size_t rounded =
        (size_bytes + MUSTER_SHARED_PAGE_BYTES - 1) & -(size_t)MUSTER_SHARED_PAGE_BYTES;
    rounded = rounded == 0 ? MUSTER_SHARED_PAGE_BYTES : rounded;
    if (rounded < size_bytes || rounded > PTRDIFF_MAX) {
        return muster_error_set(MUSTER_INVALID, "%zu bytes of memory are too many", size_bytes);
    }
    int fd = -1;
    void *base = NULL;
    TRY(muster_shared_memory_create("muster-alloc", rounded, &fd));
    muster_status status = muster_shared_memory_map(fd, rounded, &base);
    if (status == MUSTER_OK) {
        if (rounded >= HUGE_PAGE_BYTES) {
            (void)madvise(base, rounded, MADV_HUGEPAGE); /* without huge pages it is only slower */
        }
        status = add((struct muster_allocation){.base = base, .size_bytes = rounded, .fd = fd});
    }
    if (status != MUSTER_OK) {
        if (base != NULL) {
            munmap(base, rounded);
        }
        close(fd);
        return status;
    }
    *ret_memory = base;
    return MUSTER_OK;
}

/* Removes the allocation that begins there; false if there is none. */
static bool take(const void *memory, struct muster_allocation *ret_allocation)
{
    AUTO_LOCK(&registry.mutex);
    for (uint32_t i = 0; i < registry.count; i++) {
        if (registry.entries[i].base == memory) {
            *ret_allocation = registry.entries[i];
            registry.entries[i] = registry.entries[--registry.count];
            atomic_store(&registry.occupied, registry.count);
            atomic_fetch_add(&registry.freed, 1);
            return true;
        }
    }
    return false;
}

void muster_free(void *memory)
{
    struct muster_allocation allocation;
    if (memory != NULL && take(memory, &allocation)) {
        munmap(allocation.base, allocation.size_bytes);
        close(allocation.fd);
    }
}

bool muster_allocation_find(const void *data, size_t size_bytes,
                            struct muster_allocation *ret_allocation)
{
    const char *begin = data;
    if (atomic_load(&registry.occupied) == 0) {
        return false;
    }
    AUTO_LOCK(&registry.mutex);
    for (uint32_t i = 0; i < registry.count; i++) {
        const struct muster_allocation *allocation = &registry.entries[i];
        if (begin >= allocation->base && begin < allocation->base + allocation->size_bytes &&
            size_bytes <= (size_t)(allocation->base + allocation->size_bytes - begin)) {
            *ret_allocation = *allocation;
            return true;
        }
    }
    return false;
}

bool muster_allocation_is_live(uint64_t id)
{
    AUTO_LOCK(&registry.mutex);
    for (uint32_t i = 0; i < registry.count; i++) {
        if (registry.entries[i].id == id) {
            return true;
        }
    }
    return false;
}

uint64_t muster_allocation_freed_count(void)
{
    return atomic_load(&registry.freed);
}
