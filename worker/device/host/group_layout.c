/* Lays out, makes and opens the shared memory of a group, and locks the bytes of its ranks. */
#include "worker/device/host/group_layout.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/memory/shared_memory.h"

_Static_assert(sizeof(struct muster_group_announcement) == MUSTER_GROUP_LINE_BYTES,
               "a line of its own");

enum { PARTS = 1 + MUSTER_GROUP_CHANNELS };

static size_t slots_at(uint32_t ranks)
{
    size_t end = ranks * sizeof(struct muster_group_rank_slot);
    return (end + MUSTER_SHARED_PAGE_BYTES - 1) / MUSTER_SHARED_PAGE_BYTES *
           MUSTER_SHARED_PAGE_BYTES;
}

static size_t part_bytes(uint32_t ranks)
{
    return slots_at(ranks) + (size_t)ranks * 2 * MUSTER_GROUP_STAGING_BYTES;
}

static size_t size_of(uint32_t ranks)
{
    return PARTS * part_bytes(ranks);
}

char *muster_group_layout_staging_area(const struct muster_group_layout *layout, uint32_t rank,
                                       uint64_t sequence)
{
    return layout->base + slots_at(layout->ranks) +
           ((size_t)rank * 2 + sequence % 2) * MUSTER_GROUP_STAGING_BYTES;
}

/* Takes the descriptor, also on failure. */
static muster_status map(int fd, uint32_t ranks, struct muster_group_layout *ret_layout)
{
    void *base = NULL;
    muster_status status = muster_shared_memory_map(fd, size_of(ranks), &base);
    if (status != MUSTER_OK) {
        close(fd);
        return status;
    }
    *ret_layout = (struct muster_group_layout){
        .fd = fd, .base = base, .size_bytes = size_of(ranks), .ranks = ranks};
    return MUSTER_OK;
}

muster_status muster_group_layout_create(uint32_t ranks, int *ret_fd)
{
    return muster_shared_memory_create("muster collectives", size_of(ranks), ret_fd);
}

muster_status muster_group_layout_open(int fd, uint32_t ranks,
                                       struct muster_group_layout *ret_layout)
{
    muster_status status = muster_shared_memory_check(fd, size_of(ranks));
    if (status != MUSTER_OK) {
        close(fd);
        return status;
    }
    return map(fd, ranks, ret_layout);
}

struct muster_group_layout muster_group_layout_part(const struct muster_group_layout *layout,
                                                    uint32_t part)
{
    return (struct muster_group_layout){.fd = layout->fd,
                                        .base = layout->base + part * part_bytes(layout->ranks),
                                        .size_bytes = 0,
                                        .ranks = layout->ranks};
}

void muster_group_layout_finish(struct muster_group_layout *layout)
{
    if (layout->base != NULL && layout->size_bytes > 0) {
        munmap(layout->base, layout->size_bytes);
        close(layout->fd);
    }
    layout->base = NULL;
}

/* Which ranks are alive ----------------------------------------------------------------------- */

static struct flock byte_of(uint32_t rank)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)rank, .l_len = 1};
}

bool muster_group_layout_lock_rank(const struct muster_group_layout *layout, uint32_t rank)
{
    struct flock lock = byte_of(rank);
    return fcntl(layout->fd, F_SETLK, &lock) == 0;
}

int64_t muster_group_layout_rank_holder(const struct muster_group_layout *layout, uint32_t rank)
{
    struct flock lock = byte_of(rank);
    if (fcntl(layout->fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) {
        return 0;
    }
    return lock.l_pid;
}
