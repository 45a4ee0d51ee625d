/*
 * Buffers of peers that are in several ranges. A rank announces where the list of its buffer's runs
 * is, and how many there are. The others copy the list before they read the buffer; it stays where
 * it is until all have read.
 */
#include <stdlib.h>

#include "worker/device/host/group_parts.h"

static uint64_t run_count_of(const struct muster_group_run *run, uint32_t rank,
                             enum muster_group_side side)
{
    const struct muster_group_allocation *buffers =
        muster_group_rank_slot_of(run, rank)->allocations[run->launch->sequence % 2];
    return atomic_load_explicit(&buffers[side].run_count, memory_order_relaxed);
}

static uint64_t address_of(const struct muster_group_run *run, uint32_t rank,
                           enum muster_group_side side)
{
    return atomic_load_explicit(
        &muster_group_announcement_of(run, rank, run->launch->sequence)->payload[side],
        memory_order_relaxed);
}

static bool overlap(uint64_t one, uint64_t other, uint64_t size_bytes)
{
    return one - other < size_bytes || other - one < size_bytes;
}

/* In place, both sides have the same list; else no range of one overlaps one of the other. */
bool muster_group_is_in_place(const struct muster_group_run *run, uint32_t rank,
                              uint64_t size_bytes)
{
    uint64_t in = address_of(run, rank, MUSTER_GROUP_INPUT);
    uint64_t out = address_of(run, rank, MUSTER_GROUP_OUTPUT);
    bool ranges = run_count_of(run, rank, MUSTER_GROUP_INPUT) != 0 ||
                  run_count_of(run, rank, MUSTER_GROUP_OUTPUT) != 0;
    return ranges ? in == out : overlap(in, out, size_bytes);
}

static muster_status reserve(struct muster_range_list *list, size_t count)
{
    if (count < list->room) {
        return MUSTER_OK;
    }
    muster_range_list_finish(list);
    list->runs = calloc(count + 1, sizeof *list->runs);
    if (list->runs == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a list of %zu ranges", count);
    }
    list->room = count + 1;
    return MUSTER_OK;
}

/* Each run begins after the one before, and together they are as long as the buffer. Their
 * addresses are for the kernel, or for a mapping, and both check them. */
static bool is_valid(const struct muster_range_list *list, uint64_t size_bytes)
{
    bool valid =
        list->runs[0].begin_bytes == 0 && list->runs[list->count].begin_bytes == size_bytes;
    for (size_t i = 0; i < list->count && valid; i++) {
        valid = list->runs[i].begin_bytes < list->runs[i + 1].begin_bytes;
    }
    return valid;
}

static muster_status fetch(struct muster_group_run *run, uint32_t rank, enum muster_group_side side,
                           uint64_t size_bytes)
{
    struct muster_range_list *list = &run->memory->peer_ranges[rank][side];
    uint64_t count = run_count_of(run, rank, side);
    if (count > MUSTER_RANGES_MAX) {
        return muster_error_set(MUSTER_REJOIN, "rank %u announces %llu ranges: %d are the most",
                                run->memory->options.names[rank], (unsigned long long)count,
                                MUSTER_RANGES_MAX);
    }
    TRY(reserve(list, count));
    list->count = count;
    TRY(muster_group_copy_from_peer(run, rank, address_of(run, rank, side), list->runs,
                                    (count + 1) * sizeof *list->runs));
    return is_valid(list, size_bytes)
               ? MUSTER_OK
               : muster_error_set(MUSTER_REJOIN,
                                  "the ranges of rank %u have gaps, or are not %llu bytes together",
                                  run->memory->options.names[rank], (unsigned long long)size_bytes);
}

muster_status muster_group_find_peer_buffer(struct muster_group_run *run, uint32_t rank,
                                            enum muster_group_side side, uint64_t size_bytes,
                                            struct muster_place *ret_place)
{
    if (run_count_of(run, rank, side) == 0) {
        *ret_place =
            (struct muster_place){.base = (char *)(uintptr_t)address_of(run, rank, side)}; // NOLINT
        return MUSTER_OK;
    }
    TRY(fetch(run, rank, side, size_bytes));
    *ret_place = (struct muster_place){.ranges = &run->memory->peer_ranges[rank][side]};
    return MUSTER_OK;
}

muster_status muster_group_read_place(struct muster_group_run *run, uint32_t rank,
                                      enum muster_group_side side, struct muster_place from,
                                      struct muster_place to, size_t size_bytes)
{
    while (size_bytes > 0) {
        uint64_t size = size_bytes;
        uint64_t address = (uintptr_t)muster_place_at(&from, &size);
        const void *mapped = muster_group_map_peer_buffer(run, rank, side, address, size);
        if (mapped == NULL) {
            return muster_group_copy_place_from_peer(run, rank, from, to, size_bytes);
        }
        muster_group_write_output(run, to, mapped, size);
        from = muster_place_advance(from, size);
        to = muster_place_advance(to, size);
        size_bytes -= size;
    }
    return MUSTER_OK;
}
