/*
 * Allreduce in shared memory, in one of these ways:
 *
 *   whole       Each rank reduces all inputs, out of the staging areas: one exchange, no barrier.
 *   in shares   Each rank reduces its share and reads the other shares, through the staging areas,
 *               one window (as much as they hold) after the other. That is less work for the
 *               processor than copies by the kernel, which looks up every page.
 *   in buffers  In shares, but straight out of the peers' buffers: if the method says so, or if all
 *               buffers are in memory of muster_alloc(). Not where the input is kept
 *               (collectives/select/host_memory.c says why).
 *   twice       In buffers, for two ranks: each reduces everything.
 *
 * Sources: see group_collectives.c.
 */
#include "worker/device/host/group_parts.h"

#include <string.h>

#include "collectives/select/host_memory.h"

static struct muster_span share_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_span_part((struct muster_span){.count = run->launch->shape.count},
                            muster_group_rank_count(run), rank);
}

static muster_status reduce_whole(struct muster_group_run *run)
{
    return muster_group_reduce_to_output(run,
                                         (struct muster_span){.count = run->launch->shape.count});
}

static const muster_group_stage whole[] = {muster_group_stage_expose, muster_group_stage_meet,
                                           reduce_whole, NULL};

/* The same as one stage, where waits block: the shortest call, of which each step counts. */
static muster_status run_whole(struct muster_group_run *run)
{
    TRY(muster_group_expose(run, &run->exposure));
    TRY(muster_group_wait_for_all_announcements(run));
    return reduce_whole(run);
}

static const muster_group_stage whole_at_once[] = {run_whole, NULL};

/* In buffers ---------------------------------------------------------------------------------- */

/* Reads that rank's share of the result, which is complete. */
static muster_status read_share(struct muster_group_run *run, uint32_t rank)
{
    const struct muster_span share = share_of(run, rank);
    struct muster_place out;
    TRY(muster_group_find_peer_buffer(run, rank, MUSTER_GROUP_OUTPUT, run->launch->sizes.out_bytes,
                                      &out));
    return muster_group_read_place(
        run, rank, MUSTER_GROUP_OUTPUT,
        muster_place_advance(out, share.offset * run->element_size_bytes),
        muster_group_output_at(run, share.offset), share.count * run->element_size_bytes);
}

/* Whether there are two ranks and each reduces everything. That costs less for outputs that are
 * written past the caches: each rank reads half of the inputs once more, but no rank writes a share
 * for the other one and waits for it. Not in place: a rank would overwrite input that the other one
 * still reads.
 * Both ranks get the same answer. */
static bool is_done_twice(const struct muster_group_run *run, uint64_t size_bytes)
{
    bool separate = true;
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        separate &= !muster_group_is_in_place(run, rank, size_bytes);
    }
    return separate && muster_group_rank_count(run) == 2 &&
           size_bytes / 2 >= run->memory->options.stream_bytes;
}

/* This rank's share, which is not written past the caches: the others read it next. */
static muster_status reduce_own_share(struct muster_group_run *run)
{
    struct muster_group_inputs inputs;
    const struct muster_span own = share_of(run, muster_group_own_rank(run));
    TRY(muster_group_find_inputs(run, &run->exposure, NULL, &inputs));
    TRY(muster_group_reduce(run, &inputs, own, false, muster_group_output_at(run, own.offset)));
    TRY(muster_group_check_reads(run)); /* before the others read the share */
    muster_group_finish_phase(run, MUSTER_GROUP_SHARE_READY);
    return MUSTER_OK;
}

static muster_status read_shares(struct muster_group_run *run)
{
    for (; run->peer + 1 < muster_group_rank_count(run); run->peer++) {
        uint32_t rank = muster_group_peer(run, run->peer);
        TRY(muster_group_wait_for_phase(run, rank, MUSTER_GROUP_SHARE_READY));
        TRY(read_share(run, rank));
    }
    return MUSTER_OK;
}

static const muster_group_stage in_buffers[] = {reduce_own_share, read_shares,
                                                muster_group_stage_end_reads,
                                                muster_group_stage_wait_for_reads, NULL};

static muster_status reduce_everything(struct muster_group_run *run)
{
    const struct muster_span all = {.count = run->launch->shape.count};
    struct muster_group_inputs inputs;
    TRY(muster_group_find_inputs(run, &run->exposure, NULL, &inputs));
    return muster_group_reduce(run, &inputs, all, true, muster_group_output_at(run, 0));
}

static const muster_group_stage twice[] = {reduce_everything, muster_group_stage_end_reads,
                                           muster_group_stage_wait_for_reads, NULL};

/* In windows ---------------------------------------------------------------------------------- */

/* As much of an allreduce as a staging area holds. A rank stages its input except its own
 * share, which no other rank reads; the result of that share takes this place. */
struct window {
    struct muster_span span;
    uint64_t turn;  /* even or odd: which of the two staging areas */
    uint64_t phase; /* the first of its two: inputs staged; the next: share ready */
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

/* The present one. Window i may use the staging area of window i - 2 when all have begun window
 * i - 1. The last window uses the staging area of this operation, so that the next operation finds
 * its own one free. */
static struct window window_of(const struct muster_group_run *run)
{
    const struct muster_span all = {.count = run->launch->shape.count};
    return (struct window){.span = muster_span_part(all, run->windows, run->window),
                           .turn = run->launch->sequence + run->windows - 1 - run->window,
                           .phase = 2 * run->window + 1};
}

static void stage_input(const struct muster_group_run *run, const struct window *window)
{
    size_t size = run->element_size_bytes;
    const struct muster_span own = share_of_window(run, window, muster_group_own_rank(run));
    const struct muster_place in = muster_group_input_at(run, window->span.offset);
    const struct muster_place staged = {
        .base = window_staging_area(run, window, muster_group_own_rank(run))};
    size_t before = own.offset * size;
    size_t after = before + own.count * size;
    muster_place_copy(staged, in, before);
    muster_place_copy(muster_place_advance(staged, after), muster_place_advance(in, after),
                      window->span.count * size - after);
}

/* All have announced. */
static muster_status begin_window(struct muster_group_run *run)
{
    const struct window window = window_of(run);
    stage_input(run, &window);
    muster_group_finish_phase(run, window.phase);
    return MUSTER_OK;
}

static muster_status wait_for_inputs(struct muster_group_run *run)
{
    return muster_group_wait_for_phase_of_all(run, window_of(run).phase);
}

/* All have staged their inputs. */
static muster_status reduce_window(struct muster_group_run *run)
{
    size_t size = run->element_size_bytes;
    const struct window window = window_of(run);
    const struct muster_span own = share_of_window(run, &window, muster_group_own_rank(run));
    char *result =
        window_staging_area(run, &window, muster_group_own_rank(run)) + own.offset * size;
    const struct muster_place in = muster_group_input_at(run, window.span.offset);
    struct muster_group_inputs inputs;
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        inputs.bases[rank] = window_staging_area(run, &window, rank);
        inputs.ranges[rank] = NULL;
    }
    inputs.bases[muster_group_own_rank(run)] = in.base;
    inputs.ranges[muster_group_own_rank(run)] = in.ranges;
    inputs.ranges_at_bytes = in.at_bytes;
    TRY(muster_group_reduce(run, &inputs, own, false, (struct muster_place){.base = result}));
    muster_group_finish_phase(run, window.phase + 1);
    muster_group_write_output(run, muster_group_output_at(run, window.span.offset + own.offset),
                              result, own.count * size);
    return MUSTER_OK;
}

static muster_status read_window(struct muster_group_run *run)
{
    size_t size = run->element_size_bytes;
    const struct window window = window_of(run);
    for (; run->peer + 1 < muster_group_rank_count(run); run->peer++) {
        uint32_t rank = muster_group_peer(run, run->peer);
        const struct muster_span share = share_of_window(run, &window, rank);
        TRY(muster_group_wait_for_phase(run, rank, window.phase + 1));
        muster_group_write_output(
            run, muster_group_output_at(run, window.span.offset + share.offset),
            window_staging_area(run, &window, rank) + share.offset * size, share.count * size);
    }
    return MUSTER_OK;
}

static muster_status next_window(struct muster_group_run *run);

static const muster_group_stage in_windows[] = {begin_window, wait_for_inputs, reduce_window,
                                                read_window,  next_window,     NULL};

static muster_status next_window(struct muster_group_run *run)
{
    if (++run->window < run->windows) {
        run->stage = in_windows;
    }
    return MUSTER_OK;
}

/* A rank stages the input of the only window before it announces the operation. */
static muster_status expose_window(struct muster_group_run *run)
{
    const struct window window = window_of(run);
    TRY(muster_group_wait_for_reuse(run));
    stage_input(run, &window);
    muster_group_announce(run, (const uint64_t[2]){0, 0});
    return MUSTER_OK;
}

static const muster_group_stage in_one_window[] = {expose_window, muster_group_stage_meet,
                                                   reduce_window, read_window, NULL};

/* More than a window -------------------------------------------------------------------------- */

static uint64_t window_elements(const struct muster_group_run *run)
{
    return MUSTER_GROUP_STAGING_BYTES / run->element_size_bytes;
}

static muster_status expose_buffers(struct muster_group_run *run)
{
    run->exposure.in_buffers = true;
    return muster_group_expose(run, &run->exposure);
}

/* All have announced: buffers that are all in memory of muster_alloc() are read in place. */
static muster_status choose_large(struct muster_group_run *run)
{
    bool keeps = (run->launch->call.flags & MUSTER_CALL_KEEPS_INPUT) != 0;
    if (run->step->method == MUSTER_MEMORY_BUFFERS ||
        (run->step->buffers && !keeps && muster_group_all_allocated(run))) {
        run->stage = is_done_twice(run, run->exposure.size_bytes) ? twice : in_buffers;
        return MUSTER_OK;
    }
    run->windows = (run->launch->shape.count + window_elements(run) - 1) / window_elements(run);
    run->stage = in_windows;
    return MUSTER_OK;
}

static const muster_group_stage large[] = {expose_buffers, muster_group_stage_meet, choose_large,
                                           NULL};

const muster_group_stage *muster_group_allreduce_stages(const struct muster_group_run *run)
{
    if (run->step->method == MUSTER_MEMORY_STAGED) {
        return run->polled ? whole : whole_at_once;
    }
    return run->launch->shape.count > window_elements(run) ||
                   run->step->method == MUSTER_MEMORY_BUFFERS
               ? large
               : in_one_window;
}
