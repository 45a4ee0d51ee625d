/*
 * How buffers of peers are read. Those in memory of muster_alloc() are mapped in this process at
 * the first use, and read in place from then on. Others are copied by the kernel
 * (process_vm_readv).
 *
 * A rank announces in its rank slot which allocations its buffers are in: the descriptor in its own
 * process, and an id that it never uses again. A process that may read a peer's memory may also
 * duplicate its descriptors (pidfd_getfd): the kernel checks both by the same rule. A few mappings
 * are cached for each rank, until that rank frees any of its allocations.
 */
#include "worker/device/host/group_parts.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker/memory/allocation_registry.h"
#include "worker/memory/shared_memory.h"

enum { PARTS_MAX = 64 }; /* of one call of the kernel */

/* Announcing ---------------------------------------------------------------------------------- */

/* Ranges are in one, if all of them are in the same. */
static bool find_allocation(const void *data, const struct muster_range_list *ranges,
                            size_t size_bytes, struct muster_allocation *ret_found)
{
    if (ranges == NULL) {
        return muster_allocation_find(data, size_bytes, ret_found);
    }
    const struct muster_range_extent *first = &ranges->extents[0];
    const struct muster_range_extent *last = &ranges->extents[ranges->count - 1];
    return muster_allocation_find(data, 1, ret_found) &&
           first->begin >= (uintptr_t)ret_found->base &&
           last->end <= (uintptr_t)ret_found->base + ret_found->size_bytes;
}

static void announce_buffer(struct muster_group_allocation *allocation, const void *data,
                            const struct muster_range_list *ranges, size_t size_bytes)
{
    struct muster_allocation found = {0};
    bool there = size_bytes > 0 && find_allocation(data, ranges, size_bytes, &found);
    atomic_store_explicit(&allocation->run_count, ranges != NULL ? ranges->count : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&allocation->id, there ? found.id : 0, memory_order_relaxed);
    atomic_store_explicit(&allocation->fd, (uint64_t)found.fd, memory_order_relaxed);
    atomic_store_explicit(&allocation->base, (uint64_t)(uintptr_t)found.base, memory_order_relaxed);
    atomic_store_explicit(&allocation->size_bytes, found.size_bytes, memory_order_relaxed);
}

void muster_group_announce_allocations(const struct muster_group_run *run, size_t in_bytes,
                                       size_t out_bytes)
{
    struct muster_group_rank_slot *slot =
        muster_group_rank_slot_of(run, muster_group_own_rank(run));
    struct muster_group_allocation *allocations = slot->allocations[run->launch->sequence % 2];
    atomic_store_explicit(&slot->freed_count, muster_allocation_freed_count(),
                          memory_order_relaxed);
    announce_buffer(&allocations[MUSTER_GROUP_INPUT], run->launch->in, run->launch->in_ranges,
                    in_bytes);
    announce_buffer(&allocations[MUSTER_GROUP_OUTPUT], run->launch->out, run->launch->out_ranges,
                    out_bytes);
}

bool muster_group_all_allocated(const struct muster_group_run *run)
{
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        const struct muster_group_allocation *allocations =
            muster_group_rank_slot_of(run, rank)->allocations[run->launch->sequence % 2];
        if (atomic_load_explicit(&allocations[MUSTER_GROUP_INPUT].id, memory_order_relaxed) == 0 ||
            atomic_load_explicit(&allocations[MUSTER_GROUP_OUTPUT].id, memory_order_relaxed) == 0) {
            return false;
        }
    }
    return true;
}

/* Mapping ------------------------------------------------------------------------------------- */

static void unmap(struct muster_group_mapping *mapping)
{
    if (mapping->base != NULL) {
        munmap(mapping->base, mapping->size_bytes);
        *mapping = (struct muster_group_mapping){.base = NULL};
    }
}

void muster_group_unmap_peer(struct muster_group_memory *memory, uint32_t rank)
{
    for (int i = 0; i < MUSTER_GROUP_MAPPINGS_MAX; i++) {
        unmap(&memory->mappings[rank].items[i]);
    }
}

/* Duplicates a descriptor of another process; -1: the kernel refuses. */
static int copy_descriptor(int64_t pid, uint64_t fd)
{
    int process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (process < 0) {
        return -1;
    }
    int copy = (int)syscall(SYS_pidfd_getfd, process, (int)fd, 0);
    close(process);
    return copy;
}

/* The descriptor is checked before it is mapped: its owner must not be able to cut the memory under
 * the mapping. */
static bool map(int64_t pid, const struct muster_group_allocation *allocation,
                struct muster_group_mapping *ret_mapping)
{
    size_t size_bytes = atomic_load_explicit(&allocation->size_bytes, memory_order_relaxed);
    int fd = copy_descriptor(pid, atomic_load_explicit(&allocation->fd, memory_order_relaxed));
    if (fd < 0) {
        return false;
    }
    void *base = muster_shared_memory_check(fd, size_bytes) == MUSTER_OK
                     ? mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    close(fd);
    if (base == MAP_FAILED) {
        return false;
    }
    *ret_mapping = (struct muster_group_mapping){
        .id = atomic_load_explicit(&allocation->id, memory_order_relaxed),
        .base = base,
        .size_bytes = size_bytes,
    };
    return true;
}

/* Finds the mapping of an allocation, or makes it in the place of the oldest; NULL: it cannot be
 * mapped. */
static const struct muster_group_mapping *find(struct muster_group_memory *memory, uint32_t rank,
                                               const struct muster_group_allocation *allocation)
{
    struct muster_group_mappings *mappings = &memory->mappings[rank];
    uint64_t id = atomic_load_explicit(&allocation->id, memory_order_relaxed);
    for (int i = 0; i < MUSTER_GROUP_MAPPINGS_MAX; i++) {
        if (mappings->items[i].base != NULL && mappings->items[i].id == id) {
            return &mappings->items[i];
        }
    }
    struct muster_group_mapping *mapping =
        &mappings->items[mappings->next++ % MUSTER_GROUP_MAPPINGS_MAX];
    unmap(mapping);
    return map(memory->pids[rank], allocation, mapping) ? mapping : NULL;
}

const void *muster_group_map_peer_buffer(const struct muster_group_run *run, uint32_t rank,
                                         enum muster_group_side side, uint64_t address,
                                         size_t size_bytes)
{
    struct muster_group_memory *memory = run->memory;
    const struct muster_group_rank_slot *slot = muster_group_rank_slot_of(run, rank);
    const struct muster_group_allocation *allocation =
        &slot->allocations[run->launch->sequence % 2][side];
    uint64_t freed_count = atomic_load_explicit(&slot->freed_count, memory_order_relaxed);
    if (freed_count != memory->mappings[rank].freed_count) {
        muster_group_unmap_peer(memory, rank);
        memory->mappings[rank].freed_count = freed_count;
    }
    if (atomic_load_explicit(&allocation->id, memory_order_relaxed) == 0) {
        return NULL;
    }
    const struct muster_group_mapping *mapping = find(memory, rank, allocation);
    uint64_t offset = address - atomic_load_explicit(&allocation->base, memory_order_relaxed);
    bool within = mapping != NULL && offset <= mapping->size_bytes &&
                  size_bytes <= mapping->size_bytes - offset;
    return within ? mapping->base + offset : NULL;
}

/* Copying by the kernel ----------------------------------------------------------------------- */

static muster_status fail_copy(struct muster_group_run *run, uint32_t rank)
{
    int reason = errno;
    TRY(muster_group_check_liveness(run, rank));
    if (reason == ESRCH) { /* it is dying: the kernel frees its memory before its lock */
        return muster_group_report_death(run, rank);
    }
    errno = reason;
    return muster_error_errno(MUSTER_REJOIN, "the memory of rank %u",
                              run->memory->options.names[rank]);
}

muster_status muster_group_copy_from_peer(struct muster_group_run *run, uint32_t rank,
                                          uint64_t address, void *target, size_t size_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        struct iovec here = {.iov_base = (char *)target + done, .iov_len = size_bytes - done};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(address + done), // NOLINT
                              .iov_len = size_bytes - done};
        ssize_t got = process_vm_readv((pid_t)run->memory->pids[rank], &here, 1, &there, 1, 0);
        if (got <= 0) {
            return fail_copy(run, rank);
        }
        done += (size_t)got;
    }
    return MUSTER_OK;
}

static int list_parts(struct muster_place place, size_t size_bytes, struct iovec parts[PARTS_MAX])
{
    int count = 0;
    while (size_bytes > 0 && count < PARTS_MAX) {
        uint64_t size = size_bytes;
        parts[count].iov_base = muster_place_at(&place, &size);
        parts[count++].iov_len = size;
        place = muster_place_advance(place, size);
        size_bytes -= size;
    }
    return count;
}

/* The kernel copies as much as both lists of parts hold. */
muster_status muster_group_copy_place_from_peer(struct muster_group_run *run, uint32_t rank,
                                                struct muster_place from, struct muster_place to,
                                                size_t size_bytes)
{
    while (size_bytes > 0) {
        struct iovec here[PARTS_MAX];
        struct iovec there[PARTS_MAX];
        unsigned long here_count = (unsigned long)list_parts(to, size_bytes, here);
        unsigned long there_count = (unsigned long)list_parts(from, size_bytes, there);
        ssize_t got = process_vm_readv((pid_t)run->memory->pids[rank], here, here_count, there,
                                       there_count, 0);
        if (got <= 0) {
            return fail_copy(run, rank);
        }
        from = muster_place_advance(from, (uint64_t)got);
        to = muster_place_advance(to, (uint64_t)got);
        size_bytes -= (size_t)got;
    }
    return MUSTER_OK;
}
