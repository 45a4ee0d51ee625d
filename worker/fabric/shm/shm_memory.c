/* The memory of a shared memory link: mapped, and verified to be the dialler's. */
#include "worker/fabric/shm/shm.h"
#include "worker/memory/shared_memory.h"

#include <string.h>
#include <sys/mman.h>

/* Each ring is mapped twice, the second mapping right after the first, so that data that wraps is
 * contiguous. */
static bool map_rings(unsigned char *base, int fd)
{
    for (int i = 0; i < 4; i++) {
        unsigned char *at = base + SHM_HEADER_BYTES + (size_t)i * SHM_RING_BYTES;
        off_t offset = SHM_HEADER_BYTES + (off_t)(i / 2) * SHM_RING_BYTES;
        if (mmap(at, SHM_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) ==
            MAP_FAILED) {
            return false;
        }
    }
    return true;
}

bool muster_shm_map(struct muster_shm_path *path, uint32_t side)
{
    int fd = path->memory_fd;
    unsigned char *base =
        mmap(NULL, SHM_MAPPED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    path->mapped = base; /* from now on free_path() unmaps it */
    bool mapped = mmap(base, SHM_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                       0) != MAP_FAILED &&
                  map_rings(base, fd);
    struct muster_shm_memory *memory = (struct muster_shm_memory *)base;
    path->side = side;
    path->mine = &memory->sides[side];
    path->theirs = &memory->sides[1 - side];
    close(fd);
    path->memory_fd = -1;
    return mapped;
}

void muster_shm_set_rings(struct muster_shm_link *end, const struct muster_shm_path *path)
{
    unsigned char *data[2] = {path->mapped + SHM_HEADER_BYTES,
                              path->mapped + SHM_HEADER_BYTES + 2 * (size_t)SHM_RING_BYTES};
    muster_ring_init(&end->out, &path->mine->written, &path->theirs->read, data[path->side],
                     SHM_RING_BYTES);
    muster_ring_init(&end->in, &path->mine->read, &path->theirs->written, data[1 - path->side],
                     SHM_RING_BYTES);
}

bool muster_shm_verify_memory(struct muster_shm_path *path)
{
    return muster_shared_memory_check(path->memory_fd, SHM_MEMORY_BYTES) == MUSTER_OK &&
           muster_shm_map(path, 1) &&
           memcmp(path->theirs->nonce, path->nonce, SHM_NONCE_BYTES) == 0;
}

void muster_shm_unmap(struct muster_shm_path *path)
{
    if (path->mapped != NULL) {
        munmap(path->mapped, SHM_MAPPED_BYTES);
    }
}
