/*
 * Allreduce in shared memory, in three ways: everybody reduces all that is in the slots, which
 * takes one exchange and no barrier after it; or everybody reduces a share and takes the others'
 * results, through the slots or straight from the buffers.
 *
 * Sources: see group_collectives.c.
 */
#include "worker/device/host/group_memory_parts.h"

#include <string.h>

#include "collectives/select/host_memory.h"

static struct muster_span share_of(const struct muster_group_memory_run *run, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = run->work->shape->count},
                            muster_memory_rank_count(run), rank);
}

static muster_status allreduce_in_slots(struct muster_group_memory_run *run,
                                        const struct muster_memory_exposure *exposure)
{
    TRY(muster_memory_expose(run, exposure));
    TRY(muster_memory_meet_all(run));
    return muster_memory_reduce_here(run, exposure,
                                     (struct muster_span){.count = run->work->shape->count});
}

/* The share of that rank's result; it stands there. */
static muster_status take_result(struct muster_group_memory_run *run, uint32_t rank)
{
    const struct muster_span share = share_of(run, rank);
    size_t offset = share.offset * run->element_size_bytes;
    size_t size_bytes = share.count * run->element_size_bytes;
    char *target = muster_memory_out_at(run, share.offset);
    uint64_t out = atomic_load_explicit(
        &muster_memory_post_of(run, rank, run->work->sequence)->small[1], memory_order_relaxed);
    const void *mapped =
        muster_memory_find_piece(run, rank, MUSTER_MEMORY_OUT, out + offset, size_bytes);
    if (mapped == NULL) {
        return muster_memory_fetch(run, rank, out + offset, target, size_bytes);
    }
    muster_memory_copy_out(run, target, mapped, size_bytes);
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
static bool is_done_twice(const struct muster_group_memory_run *run, uint64_t size_bytes)
{
    bool apart = true;
    for (uint32_t rank = 0; rank < muster_memory_rank_count(run); rank++) {
        const struct muster_memory_post *post =
            muster_memory_post_of(run, rank, run->work->sequence);
        apart &= !overlap(atomic_load_explicit(&post->small[0], memory_order_relaxed),
                          atomic_load_explicit(&post->small[1], memory_order_relaxed), size_bytes);
    }
    return apart && muster_memory_rank_count(run) == 2 &&
           size_bytes / 2 >= run->memory->options.stream_bytes;
}

/* All have posted. */
static muster_status allreduce_twice(struct muster_group_memory_run *run,
                                     const struct muster_memory_inputs *inputs)
{
    const struct muster_span whole = {.count = run->work->shape->count};
    TRY(muster_memory_reduce(run, inputs, whole, true, run->work->out));
    return muster_memory_leave_buffers(run);
}

/* All have posted. What the others take right away is not written past the caches. */
static muster_status allreduce_in_buffers(struct muster_group_memory_run *run,
                                          const struct muster_memory_exposure *exposure)
{
    struct muster_memory_inputs inputs;
    const struct muster_span own = share_of(run, muster_memory_own_rank(run));
    muster_memory_find_inputs(run, exposure, NULL, &inputs);
    if (is_done_twice(run, exposure->size_bytes)) {
        return allreduce_twice(run, &inputs);
    }
    TRY(muster_memory_reduce(run, &inputs, own, false, muster_memory_out_at(run, own.offset)));
    TRY(muster_memory_check_buffers(run)); /* before others take it for the result */
    muster_memory_finish_step(run, MUSTER_MEMORY_STEP_SHARE);
    for (uint32_t i = 0; i + 1 < muster_memory_rank_count(run); i++) {
        uint32_t rank = muster_memory_other(run, i);
        TRY(muster_memory_await_step(run, rank, MUSTER_MEMORY_STEP_SHARE));
        TRY(take_result(run, rank));
    }
    return muster_memory_leave_buffers(run);
}

/* As much of an allreduce as a slot holds. A rank's slot has its input, but for its own share,
 * which nobody else reads: there goes the share's result. */
struct window {
    struct muster_span span;
    uint64_t turn; /* says which of the two slots */
    uint64_t step; /* the first of its two: the inputs stand there, the shares stand there */
};

static struct muster_span share_of_window(const struct muster_group_memory_run *run,
                                          const struct window *window, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = window->span.count},
                            muster_memory_rank_count(run), rank);
}

static char *window_slot(const struct muster_group_memory_run *run, const struct window *window,
                         uint32_t rank)
{
    return muster_memory_region_slot(&run->memory->region, rank, window->turn);
}

static void lay_down(const struct muster_group_memory_run *run, const struct window *window)
{
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of_window(run, window, muster_memory_own_rank(run));
    const char *in = (const char *)run->work->in + window->span.offset * size;
    char *slot = window_slot(run, window, muster_memory_own_rank(run));
    size_t before = own.offset * size;
    size_t after = before + own.count * size;
    memcpy(slot, in, before);
    memcpy(slot + after, in + after, window->span.count * size - after);
}

/* All inputs stand there. */
static muster_status reduce_window(struct muster_group_memory_run *run, const struct window *window)
{
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of_window(run, window, muster_memory_own_rank(run));
    char *result = window_slot(run, window, muster_memory_own_rank(run)) + own.offset * size;
    struct muster_memory_inputs inputs;
    for (uint32_t rank = 0; rank < muster_memory_rank_count(run); rank++) {
        inputs.bases[rank] = rank != muster_memory_own_rank(run)
                                 ? window_slot(run, window, rank)
                                 : (const char *)run->work->in + window->span.offset * size;
    }
    TRY(muster_memory_reduce(run, &inputs, own, false, result));
    muster_memory_finish_step(run, window->step + 1);
    muster_memory_copy_out(run, muster_memory_out_at(run, window->span.offset + own.offset), result,
                           own.count * size);
    for (uint32_t i = 0; i + 1 < muster_memory_rank_count(run); i++) {
        uint32_t rank = muster_memory_other(run, i);
        const struct muster_span share = share_of_window(run, window, rank);
        TRY(muster_memory_await_step(run, rank, window->step + 1));
        muster_memory_copy_out(run, muster_memory_out_at(run, window->span.offset + share.offset),
                               window_slot(run, window, rank) + share.offset * size,
                               share.count * size);
    }
    return MUSTER_OK;
}

/* Window i may use the slot of window i - 2 when all have begun window i - 1. The last one uses the
 * slot that is this operation's, so that the next operation finds its own free. All have posted. */
static muster_status allreduce_in_windows(struct muster_group_memory_run *run, uint64_t elements)
{
    const struct muster_span whole = {.count = run->work->shape->count};
    uint64_t windows = (whole.count + elements - 1) / elements;
    for (uint64_t i = 0; i < windows; i++) {
        const struct window window = {.span = muster_span_part(whole, windows, i),
                                      .turn = run->work->sequence + windows - 1 - i,
                                      .step = 2 * i + 1};
        lay_down(run, &window);
        muster_memory_finish_step(run, window.step);
        TRY(muster_memory_await_step_of_all(run, window.step));
        TRY(reduce_window(run, &window));
    }
    return MUSTER_OK;
}

/* More than a slot holds. What all have got from muster_alloc() is read where it is. */
static muster_status allreduce_at_large(struct muster_group_memory_run *run,
                                        const struct muster_memory_exposure *exposure,
                                        uint64_t elements)
{
    const struct muster_memory_exposure buffers = {.in_buffers = true,
                                                   .size_bytes = exposure->size_bytes};
    TRY(muster_memory_expose(run, &buffers));
    TRY(muster_memory_meet_all(run));
    return run->work->method == MUSTER_MEMORY_BUFFERS ||
                   (run->work->buffers && muster_memory_all_in_pieces(run))
               ? allreduce_in_buffers(run, &buffers)
               : allreduce_in_windows(run, elements);
}

/* If it is one window, the inputs stand there when the post does. */
static muster_status allreduce_in_shares(struct muster_group_memory_run *run,
                                         const struct muster_memory_exposure *exposure)
{
    uint64_t elements = MUSTER_MEMORY_SLOT_BYTES / run->element_size_bytes;
    const struct window only = {
        .span = {.count = run->work->shape->count}, .turn = run->work->sequence, .step = 1};
    if (only.span.count > elements || run->work->method == MUSTER_MEMORY_BUFFERS) {
        return allreduce_at_large(run, exposure, elements);
    }
    TRY(muster_memory_settle(run));
    lay_down(run, &only);
    muster_memory_say(run, (const uint64_t[2]){0, 0});
    TRY(muster_memory_meet_all(run));
    return reduce_window(run, &only);
}

muster_status muster_memory_allreduce(struct muster_group_memory_run *run,
                                      const struct muster_memory_exposure *exposure)
{
    return run->work->method == MUSTER_MEMORY_SLOTS ? allreduce_in_slots(run, exposure)
                                                    : allreduce_in_shares(run, exposure);
}
