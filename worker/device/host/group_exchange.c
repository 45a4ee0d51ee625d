/*
 * What the collectives in shared memory are made of: announcements, phases, and access to the data.
 *
 * For each operation every rank announces, in its rank slot, its call and where its input is. The
 * others wait for the announcement, compare the call with their own, and then read what they need.
 * An announcement and a staging area are used again two operations later. By then all ranks have
 * finished with them: no rank announces an operation before all have announced the previous one,
 * and a rank that announces one has finished the previous one. So no barrier ends an operation.
 */
#include "worker/device/host/group_parts.h"

#include <string.h>

#include "collectives/reduce/stream.h"

/* Calls --------------------------------------------------------------------------------------- */

static void pack(const struct muster_call *call, uint64_t words[5])
{
    words[0] = call->count;
    memcpy(&words[1], &call->prescale, sizeof words[1]);
    memcpy(&words[2], &call->postscale, sizeof words[2]);
    words[3] = call->algorithm | (uint64_t)call->root << 32;
    words[4] = call->collective | (uint64_t)call->type << 8 | (uint64_t)call->op << 16 |
               (uint64_t)call->flags << 24 | (uint64_t)call->counting << 32;
    if ((call->memory & MUSTER_CALL_BY_DEVICE) != 0) { /* else it makes no difference */
        words[4] |= (uint64_t)call->memory << 40;
    }
}

static struct muster_call unpack(const uint64_t words[5])
{
    struct muster_call call = {
        .collective = (uint8_t)words[4],
        .type = (uint8_t)(words[4] >> 8),
        .op = (uint8_t)(words[4] >> 16),
        .flags = (uint8_t)(words[4] >> 24),
        .counting = (uint8_t)(words[4] >> 32),
        .memory = (uint8_t)(words[4] >> 40),
        .algorithm = (uint32_t)words[3],
        .root = (uint32_t)(words[3] >> 32),
        .count = words[0],
    };
    memcpy(&call.prescale, &words[1], sizeof words[1]);
    memcpy(&call.postscale, &words[2], sizeof words[2]);
    return call;
}

static muster_status differs(const struct muster_group_run *run, uint32_t rank,
                             const uint64_t words[5])
{
    char text[256] = "nothing"; /* a difference in bits that no call of this library has */
    const struct muster_call there = unpack(words);
    (void)muster_call_matches(&run->launch->call, &there, text, sizeof text);
    return muster_error_set(MUSTER_INVALID, "rank %u calls differently: %s",
                            run->memory->options.names[rank], text);
}

/* Compares an announcement, which is there, with this rank's own call. */
static muster_status compare(const struct muster_group_run *run, uint32_t rank)
{
    const struct muster_group_announcement *announcement =
        muster_group_announcement_of(run, rank, run->launch->sequence);
    uint64_t sequence = atomic_load_explicit(&announcement->sequence, memory_order_relaxed);
    uint64_t here[5];
    uint64_t there[5];
    uint64_t difference = 0;
    if (sequence != run->launch->sequence) {
        return muster_error_set(MUSTER_REJOIN, "rank %u is at operation #%llu already",
                                run->memory->options.names[rank], (unsigned long long)sequence);
    }
    pack(&run->launch->call, here);
    for (int i = 0; i < 5; i++) {
        there[i] = atomic_load_explicit(&announcement->call[i], memory_order_relaxed);
        difference |= here[i] ^ there[i];
    }
    return difference == 0 ? MUSTER_OK : differs(run, rank, there);
}

/* Announcements ------------------------------------------------------------------------------- */

/* Of the first step of a call: all ranks have left the call before, so that nothing of it is read
 * any more. Ranks that did not agree on that one may have done different numbers of steps. Phases
 * count from 0 again: where the call's number is a part of them, it may wrap around. */
static muster_status wait_for_call(struct muster_group_run *run)
{
    uint64_t before = muster_group_call_of(run) - 1;
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        uint32_t rank = muster_group_peer(run, i);
        TRY(muster_group_wait(run, rank, &muster_group_rank_slot_of(run, rank)->left, before));
    }
    atomic_store_explicit(&muster_group_rank_slot_of(run, muster_group_own_rank(run))->progress, 0,
                          memory_order_relaxed);
    return MUSTER_OK;
}

muster_status muster_group_wait_for_reuse(struct muster_group_run *run)
{
    uint64_t before = run->launch->sequence - 1;
    if (run->step->part && run->launch->sequence % MUSTER_PARTS_MAX == 0) {
        return wait_for_call(run);
    }
    for (uint32_t i = 0;
         run->memory->all_announced < before && i + 1 < muster_group_rank_count(run); i++) {
        uint32_t rank = muster_group_peer(run, i);
        TRY(muster_group_wait(run, rank, &muster_group_announcement_of(run, rank, before)->sequence,
                              before));
    }
    run->memory->all_announced =
        before > run->memory->all_announced ? before : run->memory->all_announced;
    return MUSTER_OK;
}

void muster_group_announce(const struct muster_group_run *run, const uint64_t payload[2])
{
    struct muster_group_announcement *mine =
        muster_group_announcement_of(run, muster_group_own_rank(run), run->launch->sequence);
    uint64_t words[5];
    pack(&run->launch->call, words);
    for (int i = 0; i < 5; i++) {
        atomic_store_explicit(&mine->call[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&mine->payload[0], payload[0], memory_order_relaxed);
    atomic_store_explicit(&mine->payload[1], payload[1], memory_order_relaxed);
    run->memory->announced = run->launch->sequence;
    atomic_store_explicit(&mine->sequence, run->launch->sequence, memory_order_release);
    muster_group_wake_sleepers(muster_group_rank_slot_of(run, muster_group_own_rank(run)));
}

muster_status muster_group_wait_for_announcement(struct muster_group_run *run, uint32_t rank)
{
    const struct muster_group_announcement *theirs =
        muster_group_announcement_of(run, rank, run->launch->sequence);
    TRY(muster_group_wait(run, rank, &theirs->sequence, run->launch->sequence));
    return compare(run, rank);
}

muster_status muster_group_wait_for_all_announcements(struct muster_group_run *run)
{
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        TRY(muster_group_wait_for_announcement(run, muster_group_peer(run, i)));
    }
    run->memory->all_announced = run->launch->sequence;
    return MUSTER_OK;
}

/* Phases -------------------------------------------------------------------------------------- */

void muster_group_finish_phase(const struct muster_group_run *run, uint64_t phase)
{
    struct muster_group_rank_slot *slot =
        muster_group_rank_slot_of(run, muster_group_own_rank(run));
    atomic_store_explicit(&slot->progress, MUSTER_GROUP_PROGRESS(run->launch->sequence, phase),
                          memory_order_release);
    muster_group_wake_sleepers(slot);
}

muster_status muster_group_wait_for_phase(struct muster_group_run *run, uint32_t rank,
                                          uint64_t phase)
{
    return muster_group_wait(run, rank, &muster_group_rank_slot_of(run, rank)->progress,
                             MUSTER_GROUP_PROGRESS(run->launch->sequence, phase));
}

muster_status muster_group_wait_for_phase_of_all(struct muster_group_run *run, uint64_t phase)
{
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        TRY(muster_group_wait_for_phase(run, muster_group_peer(run, i), phase));
    }
    return MUSTER_OK;
}

muster_status muster_group_check_reads(struct muster_group_run *run)
{
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        uint32_t rank = muster_group_peer(run, i);
        uint64_t withdrawn = atomic_load(&muster_group_rank_slot_of(run, rank)->withdrawn);
        if (withdrawn != 0 && withdrawn <= run->launch->sequence) {
            return muster_group_check_liveness(run, rank);
        }
    }
    return MUSTER_OK;
}

/* Data ---------------------------------------------------------------------------------------- */

static bool fits_announcement(uint64_t size_bytes)
{
    return size_bytes <= MUSTER_GROUP_PAYLOAD_BYTES;
}

static uint64_t address_to_announce(const void *buffer, const struct muster_range_list *ranges)
{
    return (uint64_t)(uintptr_t)(ranges != NULL ? ranges->runs : buffer);
}

muster_status muster_group_expose(struct muster_group_run *run,
                                  const struct muster_group_exposure *exposure)
{
    uint64_t payload[2] = {0, 0};
    TRY(muster_group_wait_for_reuse(run));
    if (exposure->in_buffers) {
        muster_group_announce_allocations(run, exposure->size_bytes, run->launch->sizes.out_bytes);
        payload[0] = address_to_announce(run->launch->in, run->launch->in_ranges);
        payload[1] = address_to_announce(run->launch->out, run->launch->out_ranges);
    } else {
        void *staged = fits_announcement(exposure->size_bytes)
                           ? (void *)payload
                           : muster_group_staging_area_of(run, muster_group_own_rank(run));
        muster_place_copy((struct muster_place){.base = staged}, muster_group_input_at(run, 0),
                          exposure->size_bytes);
    }
    muster_group_announce(run, payload);
    return MUSTER_OK;
}

/* In that rank's buffer. */
static muster_status find_input_in_buffer(struct muster_group_run *run,
                                          const struct muster_group_exposure *exposure,
                                          uint32_t rank, struct muster_group_inputs *inputs)
{
    struct muster_place place;
    TRY(muster_group_find_peer_buffer(run, rank, MUSTER_GROUP_INPUT, exposure->size_bytes, &place));
    inputs->ranges[rank] = place.ranges;
    inputs->ranges_at_bytes = 0;
    if (place.ranges == NULL) {
        inputs->addresses[rank] = (uint64_t)(uintptr_t)place.base;
        inputs->bases[rank] = muster_group_map_peer_buffer(
            run, rank, MUSTER_GROUP_INPUT, inputs->addresses[rank], exposure->size_bytes);
    }
    return MUSTER_OK;
}

/* The input that a peer has put into its announcement, of which ret_payload gets a copy, or into
 * its staging area. */
static const void *announced_input(const struct muster_group_run *run,
                                   const struct muster_group_exposure *exposure, uint32_t rank,
                                   uint64_t ret_payload[2])
{
    const struct muster_group_announcement *announcement =
        muster_group_announcement_of(run, rank, run->launch->sequence);
    if (!fits_announcement(exposure->size_bytes)) {
        return muster_group_staging_area_of(run, rank);
    }
    for (int i = 0; i < 2; i++) {
        ret_payload[i] = atomic_load_explicit(&announcement->payload[i], memory_order_relaxed);
    }
    return ret_payload;
}

muster_status muster_group_find_input(struct muster_group_run *run,
                                      const struct muster_group_exposure *exposure, uint32_t rank,
                                      struct muster_group_payloads *payloads,
                                      struct muster_group_inputs *inputs)
{
    inputs->bases[rank] = NULL;
    inputs->ranges[rank] = NULL;
    if (rank == muster_group_own_rank(run)) {
        inputs->bases[rank] = run->launch->in;
        inputs->ranges[rank] = run->launch->in_ranges;
        inputs->ranges_at_bytes = 0;
    } else if (exposure->in_buffers) {
        return find_input_in_buffer(run, exposure, rank, inputs);
    } else {
        inputs->bases[rank] = announced_input(run, exposure, rank, payloads->words[rank]);
    }
    return MUSTER_OK;
}

muster_status muster_group_find_inputs(struct muster_group_run *run,
                                       const struct muster_group_exposure *exposure,
                                       struct muster_group_payloads *payloads,
                                       struct muster_group_inputs *inputs)
{
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        TRY(muster_group_find_input(run, exposure, rank, payloads, inputs));
    }
    return MUSTER_OK;
}

void muster_group_write_output(const struct muster_group_run *run, struct muster_place target,
                               const void *source, size_t size_bytes)
{
    while (size_bytes > 0) {
        uint64_t size = size_bytes;
        char *to = muster_place_at(&target, &size);
        if (run->streams) {
            muster_stream_copy(to, source, size);
        } else {
            memcpy(to, source, size);
        }
        target = muster_place_advance(target, size);
        source = (const char *)source + size;
        size_bytes -= size;
    }
}

/* From an input in ranges to the output. */
static muster_status read_ranges(struct muster_group_run *run,
                                 const struct muster_group_inputs *inputs, uint32_t rank,
                                 struct muster_span bytes, struct muster_place target)
{
    const struct muster_place from = {.ranges = inputs->ranges[rank],
                                      .at_bytes = inputs->ranges_at_bytes + bytes.offset};
    if (rank == muster_group_own_rank(run)) {
        muster_place_copy(target, from, bytes.count);
        return MUSTER_OK;
    }
    return muster_group_read_place(run, rank, MUSTER_GROUP_INPUT, from, target, bytes.count);
}

muster_status muster_group_read_input(struct muster_group_run *run,
                                      const struct muster_group_inputs *inputs, uint32_t rank,
                                      struct muster_span span, struct muster_place target)
{
    size_t offset = span.offset * run->element_size_bytes;
    size_t size_bytes = span.count * run->element_size_bytes;
    if (size_bytes == 0) {
        return MUSTER_OK;
    }
    if (inputs->ranges[rank] != NULL) {
        return read_ranges(run, inputs, rank,
                           (struct muster_span){.offset = offset, .count = size_bytes}, target);
    }
    if (inputs->bases[rank] == NULL) {
        const struct muster_place from = {
            .base = (char *)(uintptr_t)(inputs->addresses[rank] + offset)}; // NOLINT
        return muster_group_copy_place_from_peer(run, rank, from, target, size_bytes);
    }
    const char *source = (const char *)inputs->bases[rank] + offset;
    if (source != target.base) {
        muster_group_write_output(run, target, source, size_bytes);
    }
    return MUSTER_OK;
}

/* Whether two ranks have one buffer each, staged or announced, and little enough for one segment:
 * the shortest reduction, of which each step counts. */
static bool is_short_pair(const struct muster_group_run *run, uint64_t size_bytes)
{
    return muster_group_rank_count(run) == 2 && !run->exposure.in_buffers && !run->streams &&
           run->launch->in_ranges == NULL && run->launch->out_ranges == NULL &&
           size_bytes <= MUSTER_GROUP_SEGMENT_BYTES;
}

/* In the order of the canonical tree, which is that of options.order. */
static void reduce_pair(const struct muster_group_run *run, struct muster_span span)
{
    const struct muster_launch *launch = run->launch;
    uint32_t own = muster_group_own_rank(run);
    size_t offset = span.offset * run->element_size_bytes;
    uint64_t payload[2];
    const char *ours = (const char *)launch->in + offset;
    const char *theirs =
        (const char *)announced_input(run, &run->exposure, 1 - own, payload) + offset;
    bool first = run->memory->options.order[0] == own;
    muster_reduction_combine(&launch->reduction, launch->out, first ? ours : theirs,
                             first ? theirs : ours, span.count);
}

muster_status muster_group_reduce_to_output(struct muster_group_run *run, struct muster_span span)
{
    struct muster_group_payloads payloads;
    struct muster_group_inputs inputs;
    if (is_short_pair(run, span.count * run->element_size_bytes)) {
        reduce_pair(run, span);
        return MUSTER_OK;
    }
    TRY(muster_group_find_inputs(run, &run->exposure, &payloads, &inputs));
    return muster_group_reduce(run, &inputs, span, run->streams, muster_group_output_at(run, 0));
}

/* Stages -------------------------------------------------------------------------------------- */

muster_status muster_group_stage_expose(struct muster_group_run *run)
{
    return muster_group_expose(run, &run->exposure);
}

muster_status muster_group_stage_meet(struct muster_group_run *run)
{
    return muster_group_wait_for_all_announcements(run);
}

muster_status muster_group_stage_end_reads(struct muster_group_run *run)
{
    if (run->exposure.in_buffers) {
        TRY(muster_group_check_reads(run));
        muster_group_finish_phase(run, MUSTER_GROUP_READS_DONE);
    }
    return MUSTER_OK;
}

muster_status muster_group_stage_wait_for_reads(struct muster_group_run *run)
{
    return run->exposure.in_buffers
               ? muster_group_wait_for_phase_of_all(run, MUSTER_GROUP_READS_DONE)
               : MUSTER_OK;
}

muster_status muster_group_stage_finish_together(struct muster_group_run *run)
{
    return (run->launch->call.flags & MUSTER_CALL_FINISHES_TOGETHER) != 0
               ? muster_group_wait_for_all_announcements(run)
               : MUSTER_OK;
}
