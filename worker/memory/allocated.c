#include "worker/memory/allocated.h"

#include "worker/base/thread.h"
#include "worker/memory/shared_memory.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 * 1024 * 1024 };

static struct {
    pthread_mutex_t mutex;
    struct muster_allocated pieces[MUSTER_ALLOCATED_MAX];
    uint32_t count;
    uint64_t last_id;
    atomic_uint_fast64_t freed;
    atomic_uint occupied; /* count, for those who look without the lock whether there is any */
} allocated = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static muster_status add(struct muster_allocated piece)
{
    AUTO_LOCK(&allocated.mutex);
    if (allocated.count == MUSTER_ALLOCATED_MAX) {
        return muster_error_set(MUSTER_INVALID, "more than %d pieces of memory",
                                MUSTER_ALLOCATED_MAX);
    }
    piece.id = ++allocated.last_id;
    allocated.pieces[allocated.count++] = piece;
    atomic_store(&allocated.occupied, allocated.count);
    return MUSTER_OK;
}

muster_status muster_alloc(size_t size_bytes, void **ret_memory)
{
    size_t rounded = (size_bytes + PAGE_BYTES - 1) & -(size_t)PAGE_BYTES;
    rounded = rounded == 0 ? PAGE_BYTES : rounded;
    if (rounded < size_bytes || rounded > PTRDIFF_MAX) {
        return muster_error_set(MUSTER_INVALID, "%zu bytes of memory are too many", size_bytes);
    }
    int fd = -1;
    void *base = NULL;
    TRY(muster_shared_memory_create("muster-alloc", rounded, &fd));
    muster_status status = muster_shared_memory_map(fd, rounded, &base);
    if (status == MUSTER_OK) {
        if (rounded >= HUGE_PAGE_BYTES) {
            (void)madvise(base, rounded, MADV_HUGEPAGE); /* without, it is only slower */
        }
        status = add((struct muster_allocated){.base = base, .size_bytes = rounded, .fd = fd});
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

/* Takes it out of the table; false if it is not there. */
static bool take(const void *memory, struct muster_allocated *ret_piece)
{
    AUTO_LOCK(&allocated.mutex);
    for (uint32_t i = 0; i < allocated.count; i++) {
        if (allocated.pieces[i].base == memory) {
            *ret_piece = allocated.pieces[i];
            allocated.pieces[i] = allocated.pieces[--allocated.count];
            atomic_store(&allocated.occupied, allocated.count);
            atomic_fetch_add(&allocated.freed, 1);
            return true;
        }
    }
    return false;
}

void muster_free(void *memory)
{
    struct muster_allocated piece;
    if (memory != NULL && take(memory, &piece)) {
        munmap(piece.base, piece.size_bytes);
        close(piece.fd);
    }
}

bool muster_allocated_find(const void *data, size_t size_bytes,
                           struct muster_allocated *ret_allocated)
{
    const char *begin = data;
    if (atomic_load(&allocated.occupied) == 0) {
        return false;
    }
    AUTO_LOCK(&allocated.mutex);
    for (uint32_t i = 0; i < allocated.count; i++) {
        const struct muster_allocated *piece = &allocated.pieces[i];
        if (begin >= piece->base && begin < piece->base + piece->size_bytes &&
            size_bytes <= (size_t)(piece->base + piece->size_bytes - begin)) {
            *ret_allocated = *piece;
            return true;
        }
    }
    return false;
}

bool muster_allocated_lives(uint64_t id)
{
    AUTO_LOCK(&allocated.mutex);
    for (uint32_t i = 0; i < allocated.count; i++) {
        if (allocated.pieces[i].id == id) {
            return true;
        }
    }
    return false;
}

uint64_t muster_allocated_freed(void)
{
    return atomic_load(&allocated.freed);
}
