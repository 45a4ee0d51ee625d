#include "worker/device/host/group_layout.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/memory/shared_memory.h"

enum { PAGE = 4096 };

_Static_assert(sizeof(struct muster_memory_post) == MUSTER_MEMORY_LINE, "a line of its own");

static size_t slots_at(uint32_t ranks)
{
    size_t end = ranks * sizeof(struct muster_memory_seat);
    return (end + PAGE - 1) / PAGE * PAGE;
}

static size_t size_of(uint32_t ranks)
{
    return slots_at(ranks) + (size_t)ranks * 2 * MUSTER_MEMORY_SLOT_BYTES;
}

struct muster_memory_seat *muster_memory_region_seat(const struct muster_memory_region *region,
                                                     uint32_t rank)
{
    return (struct muster_memory_seat *)(void *)region->base + rank;
}

char *muster_memory_region_slot(const struct muster_memory_region *region, uint32_t rank,
                                uint64_t sequence)
{
    return region->base + slots_at(region->ranks) +
           ((size_t)rank * 2 + sequence % 2) * MUSTER_MEMORY_SLOT_BYTES;
}

/* Takes the descriptor, also on failure. */
static muster_status map(int fd, uint32_t ranks, struct muster_memory_region *ret_region)
{
    void *base = NULL;
    muster_status status = muster_shared_memory_map(fd, size_of(ranks), &base);
    if (status != MUSTER_OK) {
        close(fd);
        return status;
    }
    *ret_region = (struct muster_memory_region){
        .fd = fd, .base = base, .size_bytes = size_of(ranks), .ranks = ranks};
    return MUSTER_OK;
}

muster_status muster_memory_region_make(uint32_t ranks, struct muster_memory_region *ret_region)
{
    int fd;
    TRY(muster_shared_memory_create("muster collectives", size_of(ranks), &fd));
    return map(fd, ranks, ret_region);
}

muster_status muster_memory_region_open(int fd, uint32_t ranks,
                                        struct muster_memory_region *ret_region)
{
    muster_status status = muster_shared_memory_check(fd, size_of(ranks));
    if (status != MUSTER_OK) {
        close(fd);
        return status;
    }
    return map(fd, ranks, ret_region);
}

void muster_memory_region_finish(struct muster_memory_region *region)
{
    if (region->base != NULL) {
        munmap(region->base, region->size_bytes);
        close(region->fd);
        region->base = NULL;
    }
}

/* Who lives ----------------------------------------------------------------------------------- */

static struct flock byte_of(uint32_t rank)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)rank, .l_len = 1};
}

bool muster_memory_region_lock(const struct muster_memory_region *region, uint32_t rank)
{
    struct flock lock = byte_of(rank);
    return fcntl(region->fd, F_SETLK, &lock) == 0;
}

int64_t muster_memory_region_holder(const struct muster_memory_region *region, uint32_t rank)
{
    struct flock lock = byte_of(rank);
    if (fcntl(region->fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) {
        return 0;
    }
    return lock.l_pid;
}
