#include "worker/device/memory_region.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/base/status.h"

enum { HEADER_BYTES = 4096, PAGE = 4096 };
static const uint64_t MAGIC = UINT64_C(0x3130796d656d756d); /* "mumemy01" */

/* A peer that could cut it would end everybody else with SIGBUS. */
static const int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

_Static_assert(sizeof(struct muster_memory_post) == MUSTER_MEMORY_LINE, "a line of its own");
_Static_assert(sizeof(struct muster_memory_header) <= HEADER_BYTES, "the header has its room");

static size_t slots_at(uint32_t ranks)
{
    size_t end = HEADER_BYTES + ranks * sizeof(struct muster_memory_seat);
    return (end + PAGE - 1) / PAGE * PAGE;
}

static size_t size_of(uint32_t ranks)
{
    return slots_at(ranks) + (size_t)ranks * 2 * MUSTER_MEMORY_SLOT_BYTES;
}

struct muster_memory_seat *muster_memory_region_seat(const struct muster_memory_region *region,
                                                     uint32_t rank)
{
    return (struct muster_memory_seat *)(void *)(region->base + HEADER_BYTES) + rank;
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
    size_t size_bytes = size_of(ranks);
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        muster_status status = muster_error_errno(MUSTER_FATAL, "shared memory");
        close(fd);
        return status;
    }
    *ret_region = (struct muster_memory_region){
        .fd = fd, .base = base, .size_bytes = size_bytes, .ranks = ranks};
    return MUSTER_OK;
}

muster_status muster_memory_region_make(uint32_t ranks, const uint64_t nonce[2],
                                        struct muster_memory_region *ret_region)
{
    int fd = memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "shared memory");
    }
    if (ftruncate(fd, (off_t)size_of(ranks)) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        muster_status status = muster_error_errno(MUSTER_FATAL, "shared memory");
        close(fd);
        return status;
    }
    TRY(map(fd, ranks, ret_region));
    *(struct muster_memory_header *)(void *)ret_region->base =
        (struct muster_memory_header){.magic = MAGIC,
                                      .nonce = {nonce[0], nonce[1]},
                                      .ranks = ranks,
                                      .slot_bytes = MUSTER_MEMORY_SLOT_BYTES};
    return MUSTER_OK;
}

/* It may be anything: the number of the process may mean another one here. */
static bool is_ours(int fd, uint32_t ranks)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
           found.st_size == (off_t)size_of(ranks) && fcntl(fd, F_GET_SEALS) == SEALS;
}

static bool is_proved(const struct muster_memory_region *region, const uint64_t nonce[2])
{
    const struct muster_memory_header *header = (const void *)region->base;
    return header->magic == MAGIC && header->nonce[0] == nonce[0] && header->nonce[1] == nonce[1] &&
           header->ranks == region->ranks && header->slot_bytes == MUSTER_MEMORY_SLOT_BYTES;
}

muster_status muster_memory_region_find(const struct muster_memory_address *address, uint32_t ranks,
                                        struct muster_memory_region *ret_region)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)address->pid,
                   (long long)address->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return muster_error_errno(MUSTER_INVALID, "%s", path);
    }
    if (!is_ours(fd, ranks)) {
        close(fd);
        return muster_error_set(MUSTER_INVALID, "%s is not the memory that was meant", path);
    }
    struct muster_memory_region region;
    TRY(map(fd, ranks, &region));
    if (!is_proved(&region, address->nonce)) {
        muster_memory_region_finish(&region);
        return muster_error_set(MUSTER_INVALID, "%s is other memory than was meant", path);
    }
    *ret_region = region;
    return MUSTER_OK;
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
