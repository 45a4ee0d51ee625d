/* Creates, opens and ends a rank's part of the shared memory of its group. */
#include "worker/device/host/group_parts.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker/base/random.h"

/* Creating ------------------------------------------------------------------------------------ */

static struct muster_group_rank_slot *own_slot(const struct muster_group_memory *memory)
{
    return muster_group_layout_rank_slot(&memory->layout, memory->options.rank);
}

static muster_status reserve_scratch(struct muster_group_memory *memory)
{
    size_t scratch_bytes = (size_t)MUSTER_GROUP_TREE_LEVELS * 2 * MUSTER_GROUP_SEGMENT_BYTES;
    void *scratch = NULL;
    if (posix_memalign(&scratch, MUSTER_GROUP_LINE_BYTES, scratch_bytes) != 0) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    memory->scratch = scratch; /* pages come with the first use */
    return MUSTER_OK;
}

/* Locks this rank's slot and fills in what the others need to know of the process. */
static muster_status take_slot(struct muster_group_memory *memory)
{
    TRY(reserve_scratch(memory));
    if (!muster_group_layout_lock_rank(&memory->layout, memory->options.rank)) {
        return muster_error_set(MUSTER_INVALID, "another process has the slot of rank %u",
                                memory->options.names[memory->options.rank]);
    }
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
    muster_random_bytes(&memory->probe, sizeof memory->probe);
    struct muster_group_rank_slot *slot = own_slot(memory);
    atomic_store(&slot->withdrawn, 0); /* of a process that had the slot before */
    atomic_store(&slot->pid, (uint64_t)getpid());
    atomic_store(&slot->probe_address, (uint64_t)(uintptr_t)&memory->probe);
    atomic_store(&slot->probe_value, memory->probe);
    return MUSTER_OK;
}

static void init(struct muster_group_memory *memory, const struct muster_group_options *options)
{
    const struct muster_spin_host host = {.members = options->ranks,
                                          .index = options->rank,
                                          .cores = options->cores,
                                          .quota_millis = UINT64_MAX};
    memory->options = *options;
    muster_spin_policy_init(&memory->spin_policy, &muster_spin_on_memory, &host);
}

muster_status muster_group_memory_invite(uint32_t ranks, int *ret_fd)
{
    return muster_group_layout_create(ranks, ret_fd);
}

muster_status muster_group_memory_open(const struct muster_group_options *options, int fd,
                                       struct muster_group_memory **ret_memory)
{
    struct muster_group_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        close(fd);
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    init(memory, options);
    muster_status status = muster_group_layout_open(fd, options->ranks, &memory->layout);
    if (status == MUSTER_OK) {
        status = take_slot(memory);
    }
    if (status != MUSTER_OK) {
        muster_group_memory_destroy(memory);
        return status;
    }
    *ret_memory = memory;
    return MUSTER_OK;
}

muster_status muster_group_memory_create_part(const struct muster_group_memory *first,
                                              uint32_t number,
                                              struct muster_group_memory **ret_part)
{
    struct muster_group_memory *part = calloc(1, sizeof *part);
    if (part == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    init(part, &first->options);
    part->first = first;
    part->layout = muster_group_layout_part(&first->layout, number);
    atomic_store(&own_slot(part)->withdrawn, 0); /* of a process that had the slot before */
    muster_status status = reserve_scratch(part);
    if (status != MUSTER_OK) {
        muster_group_memory_destroy(part);
        return status;
    }
    *ret_part = part;
    return MUSTER_OK;
}

void muster_group_memory_destroy(struct muster_group_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    if (memory->layout.base != NULL) {
        struct muster_group_rank_slot *slot = own_slot(memory);
        uint64_t none =
            0; /* an operation that was given up stays the first one without this rank */
        (void)atomic_compare_exchange_strong(&slot->withdrawn, &none, memory->announced + 1);
        muster_group_wake_sleepers(slot);
    }
    for (uint32_t rank = 0; rank < memory->options.ranks; rank++) {
        muster_group_unmap_peer(memory, rank);
        muster_range_list_finish(&memory->peer_ranges[rank][MUSTER_GROUP_INPUT]);
        muster_range_list_finish(&memory->peer_ranges[rank][MUSTER_GROUP_OUTPUT]);
    }
    muster_group_layout_finish(&memory->layout);
    free(memory->scratch);
    free(memory);
}

/* Before the first operation ------------------------------------------------------------------ */

static bool can_read(const struct muster_group_rank_slot *slot, int64_t pid)
{
    uint64_t value = 0;
    struct iovec here = {.iov_base = &value, .iov_len = sizeof value};
    struct iovec there = {.iov_base =
                              (void *)(uintptr_t)atomic_load(&slot->probe_address), // NOLINT
                          .iov_len = sizeof value};
    return process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof value &&
           value == atomic_load(&slot->probe_value);
}

bool muster_group_memory_probe(struct muster_group_memory *memory)
{
    bool all = true;
    for (uint32_t rank = 0; rank < memory->options.ranks; rank++) {
        const struct muster_group_rank_slot *slot =
            muster_group_layout_rank_slot(&memory->layout, rank);
        int64_t holder = muster_group_layout_rank_holder(&memory->layout, rank);
        /* If no other process holds the byte, the rank is a thread of this one, or has died. */
        memory->pids[rank] = holder != 0 ? holder : (int64_t)atomic_load(&slot->pid);
        all &= holder >= 0 && can_read(slot, memory->pids[rank]);
    }
    return all;
}

void muster_group_memory_begin(struct muster_group_memory *memory, uint64_t sequence)
{
    if (memory->first != NULL) {
        memcpy(memory->pids, memory->first->pids, sizeof memory->pids);
    }
    struct muster_group_rank_slot *slot = own_slot(memory);
    for (uint64_t i = 0; i < 2 && i <= sequence; i++) {
        atomic_store(&slot->announcements[(sequence - i) % 2].sequence, sequence - i);
    }
    atomic_store(&slot->progress, MUSTER_GROUP_PROGRESS(sequence, 0));
    memory->all_announced = sequence;
    memory->announced = sequence;
}

void muster_group_memory_begin_calls(struct muster_group_memory *memory, uint64_t call)
{
    muster_group_memory_begin(memory, MUSTER_PART_SEQUENCE(call, MUSTER_PARTS_MAX - 1));
    atomic_store(&own_slot(memory)->left, call);
}

void muster_group_memory_leave(struct muster_group_memory *memory, uint64_t call)
{
    struct muster_group_rank_slot *slot = own_slot(memory);
    atomic_store_explicit(&slot->left, call, memory_order_release);
    muster_group_wake_sleepers(slot);
}

void muster_group_memory_abort(struct muster_group_memory *memory)
{
    atomic_store(&memory->aborted, true);
}
