#include "worker/device/host/group_memory_parts.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker/base/random.h"

/* Making -------------------------------------------------------------------------------------- */

static struct muster_memory_seat *own_seat(const struct muster_group_memory *memory)
{
    return muster_memory_region_seat(&memory->region, memory->options.rank);
}

/* Sits down in the region that it has. */
static muster_status sit_down(struct muster_group_memory *memory)
{
    size_t room_bytes = (size_t)MUSTER_MEMORY_LEVELS * 2 * MUSTER_MEMORY_SEGMENT_BYTES;
    void *room = NULL;
    if (posix_memalign(&room, MUSTER_MEMORY_LINE, room_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    memory->room = room; /* its pages come when they are first used */
    if (!muster_memory_region_lock(&memory->region, memory->options.rank)) {
        return muster_error_set(MUSTER_INVALID, "somebody else has the seat of rank %u",
                                memory->options.names[memory->options.rank]);
    }
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
    muster_random_bytes(&memory->probe, sizeof memory->probe);
    struct muster_memory_seat *seat = own_seat(memory);
    atomic_store(&seat->withdrawn, 0); /* of somebody who sat here before */
    atomic_store(&seat->pid, (uint64_t)getpid());
    atomic_store(&seat->probe_address, (uint64_t)(uintptr_t)&memory->probe);
    atomic_store(&seat->probe_value, memory->probe);
    return MUSTER_OK;
}

/* fd is -1: there is none yet. Takes it, also on failure. */
static muster_status make(const struct muster_group_memory_options *options, int fd,
                          struct muster_group_memory **ret_memory)
{
    struct muster_group_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    const struct muster_spin_host host = {.members = options->ranks,
                                          .index = options->rank,
                                          .cores = options->cores,
                                          .quota_millis = UINT64_MAX};
    memory->options = *options;
    muster_spin_policy_init(&memory->spin_policy, &muster_spin_on_memory, &host);
    muster_status status = fd >= 0 ? muster_memory_region_open(fd, options->ranks, &memory->region)
                                   : muster_memory_region_make(options->ranks, &memory->region);
    if (status == MUSTER_OK) {
        status = sit_down(memory);
    }
    if (status != MUSTER_OK) {
        muster_group_memory_destroy(memory);
        return status;
    }
    *ret_memory = memory;
    return MUSTER_OK;
}

muster_status muster_group_memory_create(const struct muster_group_memory_options *options,
                                         struct muster_group_memory **ret_memory)
{
    return make(options, -1, ret_memory);
}

muster_status muster_group_memory_open(const struct muster_group_memory_options *options, int fd,
                                       struct muster_group_memory **ret_memory)
{
    return make(options, fd, ret_memory);
}

void muster_group_memory_destroy(struct muster_group_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    if (memory->region.base != NULL) {
        struct muster_memory_seat *seat = own_seat(memory);
        uint64_t none = 0; /* what it said when it gave up an operation stands */
        (void)atomic_compare_exchange_strong(&seat->withdrawn, &none, memory->posted + 1);
        muster_memory_ring(seat);
    }
    for (uint32_t rank = 0; rank < memory->options.ranks; rank++) {
        muster_memory_unmap_all(memory, rank);
    }
    muster_memory_region_finish(&memory->region);
    free(memory->room);
    free(memory);
}

int muster_group_memory_descriptor(const struct muster_group_memory *memory)
{
    return memory->region.fd;
}

/* Beginning ----------------------------------------------------------------------------------- */

static bool reads(const struct muster_memory_seat *seat, int64_t pid)
{
    uint64_t value = 0;
    struct iovec here = {.iov_base = &value, .iov_len = sizeof value};
    struct iovec there = {.iov_base =
                              (void *)(uintptr_t)atomic_load(&seat->probe_address), // NOLINT
                          .iov_len = sizeof value};
    return process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof value &&
           value == atomic_load(&seat->probe_value);
}

bool muster_group_memory_probe(struct muster_group_memory *memory)
{
    bool all = true;
    for (uint32_t rank = 0; rank < memory->options.ranks; rank++) {
        const struct muster_memory_seat *seat = muster_memory_region_seat(&memory->region, rank);
        int64_t holder = muster_memory_region_holder(&memory->region, rank);
        /* If no other process has the byte, it is a thread of this one, or has died. */
        memory->pids[rank] = holder != 0 ? holder : (int64_t)atomic_load(&seat->pid);
        all &= holder >= 0 && reads(seat, memory->pids[rank]);
    }
    return all;
}

void muster_group_memory_begin(struct muster_group_memory *memory, uint64_t sequence)
{
    struct muster_memory_seat *seat = own_seat(memory);
    for (uint64_t i = 0; i < 2 && i <= sequence; i++) {
        atomic_store(&seat->posts[(sequence - i) % 2].sequence, sequence - i);
    }
    atomic_store(&seat->progress, MUSTER_MEMORY_PROGRESS(sequence, 0));
    memory->settled = sequence;
    memory->posted = sequence;
}
