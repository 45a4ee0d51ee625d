/*
 * Allreduce in shared memory, in three ways: everybody reduces all that is in the slots, which
 * takes one exchange and no barrier after it; or everybody reduces a share and takes the others'
 * results, through the slots or straight from the buffers.
 *
 * Sources: see group_collectives.c.
 */
#include "worker/device/host/group_parts.h"

#include <string.h>

#include "collectives/select/host_memory.h"

static struct muster_span share_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = run->step->shape->count},
                            muster_group_rank_count(run), rank);
}

static muster_status allreduce_in_slots(struct muster_group_run *run,
                                        const struct muster_group_exposure *exposure)
{
    TRY(muster_group_expose(run, exposure));
    TRY(muster_group_wait_for_all_announcements(run));
    return muster_group_reduce_to_output(run, exposure,
                                         (struct muster_span){.count = run->step->shape->count});
}

/* The share of that rank's result; it stands there. */
static muster_status take_result(struct muster_group_run *run, uint32_t rank)
{
    const struct muster_span share = share_of(run, rank);
    size_t offset = share.offset * run->element_size_bytes;
    size_t size_bytes = share.count * run->element_size_bytes;
    char *target = muster_group_output_at(run, share.offset);
    uint64_t out = atomic_load_explicit(
        &muster_group_announcement_of(run, rank, run->step->sequence)->payload[1],
        memory_order_relaxed);
    const void *mapped =
        muster_group_map_peer_buffer(run, rank, MUSTER_GROUP_OUTPUT, out + offset, size_bytes);
    if (mapped == NULL) {
        return muster_group_copy_from_peer(run, rank, out + offset, target, size_bytes);
    }
    muster_group_write_output(run, target, mapped, size_bytes);
    return MUSTER_OK;
}

static bool overlap(uint64_t one, uint64_t other, uint64_t size_bytes)
{
    return one - other < size_bytes || other - one < size_bytes;
}

/* Two ranks may both reduce everything: a second look at half of the inputs costs less than writing
 * the results so that the other one can take them, and waiting for it, where all of it goes past
 * the caches. But nobody may write over an input that the other one still reads. Both come to the
 * same. */
static bool is_done_twice(const struct muster_group_run *run, uint64_t size_bytes)
{
    bool apart = true;
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        const struct muster_group_announcement *announcement =
            muster_group_announcement_of(run, rank, run->step->sequence);
        apart &= !overlap(atomic_load_explicit(&announcement->payload[0], memory_order_relaxed),
                          atomic_load_explicit(&announcement->payload[1], memory_order_relaxed),
                          size_bytes);
    }
    return apart && muster_group_rank_count(run) == 2 &&
           size_bytes / 2 >= run->memory->options.stream_bytes;
}

/* All have posted. */
static muster_status allreduce_twice(struct muster_group_run *run,
                                     const struct muster_group_inputs *inputs)
{
    const struct muster_span whole = {.count = run->step->shape->count};
    TRY(muster_group_reduce(run, inputs, whole, true, run->step->out));
    return muster_group_end_reads(run);
}

/* All have posted. What the others take right away is not written past the caches. */
static muster_status allreduce_in_buffers(struct muster_group_run *run,
                                          const struct muster_group_exposure *exposure)
{
    struct muster_group_inputs inputs;
    const struct muster_span own = share_of(run, muster_group_own_rank(run));
    muster_group_find_inputs(run, exposure, NULL, &inputs);
    if (is_done_twice(run, exposure->size_bytes)) {
        return allreduce_twice(run, &inputs);
    }
    TRY(muster_group_reduce(run, &inputs, own, false, muster_group_output_at(run, own.offset)));
    TRY(muster_group_check_reads(run)); /* before others take it for the result */
    muster_group_finish_phase(run, MUSTER_GROUP_SHARE_READY);
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        uint32_t rank = muster_group_peer(run, i);
        TRY(muster_group_wait_for_phase(run, rank, MUSTER_GROUP_SHARE_READY));
        TRY(take_result(run, rank));
    }
    return muster_group_end_reads(run);
}

/* As much of an allreduce as a slot holds. A rank's slot has its input, but for its own share,
 * which nobody else reads: there goes the share's result. */
struct window {
    struct muster_span span;
    uint64_t turn;  /* says which of the two slots */
    uint64_t phase; /* the first of its two: the inputs stand there, the shares stand there */
};

static struct muster_span share_of_window(const struct muster_group_run *run,
                                          const struct window *window, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = window->span.count},
                            muster_group_rank_count(run), rank);
}

static char *window_staging_area(const struct muster_group_run *run, const struct window *window,
                                 uint32_t rank)
{
    return muster_group_layout_staging_area(&run->memory->layout, rank, window->turn);
}

static void stage_window(const struct muster_group_run *run, const struct window *window)
{
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of_window(run, window, muster_group_own_rank(run));
    const char *in = (const char *)run->step->in + window->span.offset * size;
    char *slot = window_staging_area(run, window, muster_group_own_rank(run));
    size_t before = own.offset * size;
    size_t after = before + own.count * size;
    memcpy(slot, in, before);
    memcpy(slot + after, in + after, window->span.count * size - after);
}

/* All inputs stand there. */
static muster_status reduce_window(struct muster_group_run *run, const struct window *window)
{
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of_window(run, window, muster_group_own_rank(run));
    char *result = window_staging_area(run, window, muster_group_own_rank(run)) + own.offset * size;
    struct muster_group_inputs inputs;
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        inputs.bases[rank] = rank != muster_group_own_rank(run)
                                 ? window_staging_area(run, window, rank)
                                 : (const char *)run->step->in + window->span.offset * size;
    }
    TRY(muster_group_reduce(run, &inputs, own, false, result));
    muster_group_finish_phase(run, window->phase + 1);
    muster_group_write_output(run, muster_group_output_at(run, window->span.offset + own.offset),
                              result, own.count * size);
    for (uint32_t i = 0; i + 1 < muster_group_rank_count(run); i++) {
        uint32_t rank = muster_group_peer(run, i);
        const struct muster_span share = share_of_window(run, window, rank);
        TRY(muster_group_wait_for_phase(run, rank, window->phase + 1));
        muster_group_write_output(
            run, muster_group_output_at(run, window->span.offset + share.offset),
            window_staging_area(run, window, rank) + share.offset * size, share.count * size);
    }
    return MUSTER_OK;
}

/* Window i may use the slot of window i - 2 when all have begun window i - 1. The last one uses the
 * slot that is this operation's, so that the next operation finds its own free. All have posted. */
static muster_status allreduce_in_windows(struct muster_group_run *run, uint64_t elements)
{
    const struct muster_span whole = {.count = run->step->shape->count};
    uint64_t windows = (whole.count + elements - 1) / elements;
    for (uint64_t i = 0; i < windows; i++) {
        const struct window window = {.span = muster_span_part(whole, windows, i),
                                      .turn = run->step->sequence + windows - 1 - i,
                                      .phase = 2 * i + 1};
        stage_window(run, &window);
        muster_group_finish_phase(run, window.phase);
        TRY(muster_group_wait_for_phase_of_all(run, window.phase));
        TRY(reduce_window(run, &window));
    }
    return MUSTER_OK;
}

/* More than a slot holds. What all have got from muster_alloc() is read where it is. */
static muster_status allreduce_at_large(struct muster_group_run *run,
                                        const struct muster_group_exposure *exposure,
                                        uint64_t elements)
{
    const struct muster_group_exposure buffers = {.in_buffers = true,
                                                  .size_bytes = exposure->size_bytes};
    TRY(muster_group_expose(run, &buffers));
    TRY(muster_group_wait_for_all_announcements(run));
    return run->step->method == MUSTER_MEMORY_BUFFERS ||
                   (run->step->buffers && muster_group_all_allocated(run))
               ? allreduce_in_buffers(run, &buffers)
               : allreduce_in_windows(run, elements);
}

/* If it is one window, the inputs stand there when the post does. */
static muster_status allreduce_in_shares(struct muster_group_run *run,
                                         const struct muster_group_exposure *exposure)
{
    uint64_t elements = MUSTER_GROUP_STAGING_BYTES / run->element_size_bytes;
    const struct window only = {
        .span = {.count = run->step->shape->count}, .turn = run->step->sequence, .phase = 1};
    if (only.span.count > elements || run->step->method == MUSTER_MEMORY_BUFFERS) {
        return allreduce_at_large(run, exposure, elements);
    }
    TRY(muster_group_wait_for_reuse(run));
    stage_window(run, &only);
    muster_group_announce(run, (const uint64_t[2]){0, 0});
    TRY(muster_group_wait_for_all_announcements(run));
    return reduce_window(run, &only);
}

muster_status muster_group_allreduce(struct muster_group_run *run,
                                     const struct muster_group_exposure *exposure)
{
    return run->step->method == MUSTER_MEMORY_SLOTS ? allreduce_in_slots(run, exposure)
                                                    : allreduce_in_shares(run, exposure);
}
