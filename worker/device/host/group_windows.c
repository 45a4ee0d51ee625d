/*
 * Collectives whose data is larger than a staging area, where ranks do not read each other's
 * buffers: the input goes through the staging areas in windows, pieces that fit one. Allreduce has
 * windows of its own (group_allreduce.c).
 *
 *   allgather        window w has piece w of every rank's block
 *   reduce_scatter   window w has piece w of every block, one after the other
 *   reduce           window w has piece w of the input; the root reads
 *   broadcast        window w has piece w of the root's data; all others read
 *
 * Windows use the two staging areas in turn. A rank that has staged window w is in phase 2w + 1;
 * one that has read it, in phase 2w + 2. The area of window w is free when window w - 2 has been
 * read. Where all ranks read from all, that is so when a rank has read window w - 1, which all
 * stage only after that. Else a rank that stages waits for those that read.
 */
#include "worker/device/host/group_parts.h"

#include <string.h>

static bool is_root(const struct muster_group_run *run)
{
    return run->launch->shape.root == muster_group_own_rank(run);
}

static bool is_rooted(const struct muster_group_run *run)
{
    return muster_collective_has_root(run->launch->shape.collective);
}

static bool stages(const struct muster_group_run *run)
{
    enum muster_collective collective = run->launch->shape.collective;
    return collective == MUSTER_BROADCAST ? is_root(run)
                                          : collective != MUSTER_REDUCE || !is_root(run);
}

static bool reads(const struct muster_group_run *run)
{
    enum muster_collective collective = run->launch->shape.collective;
    return collective == MUSTER_BROADCAST ? !is_root(run)
                                          : collective != MUSTER_REDUCE || is_root(run);
}

/* What is cut into pieces: of an allgather and a reduce_scatter the block of that rank. */
static struct muster_span block_of(const struct muster_group_run *run, uint32_t rank)
{
    const struct muster_shape *shape = &run->launch->shape;
    switch (shape->collective) {
    case MUSTER_REDUCE_SCATTER:
        return muster_shape_input_block(shape, rank);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return muster_shape_output_block(shape, rank);
    default:
        return (struct muster_span){.count = shape->count};
    }
}

static struct muster_span piece_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_span_part(block_of(run, rank), run->windows, run->window);
}

/* Pieces of a reduce_scatter may each be one element larger than the average. */
static uint64_t count_windows(const struct muster_group_run *run)
{
    uint32_t ranks = muster_group_rank_count(run);
    bool scatters = run->launch->shape.collective == MUSTER_REDUCE_SCATTER;
    uint64_t room = MUSTER_GROUP_STAGING_BYTES / run->element_size_bytes - (scatters ? ranks : 0);
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint64_t count = block_of(run, rank).count;
        most = scatters ? most + count : count > most ? count : most;
    }
    return most == 0 ? 1 : (most + room - 1) / room;
}

/* The last window uses the area of this operation, so that the next one finds its own one free. */
static char *area_of(const struct muster_group_run *run, uint32_t rank)
{
    return muster_group_layout_staging_area(&run->memory->layout, rank,
                                            run->launch->sequence + run->windows - 1 - run->window);
}

static uint64_t staged_phase(uint64_t window)
{
    return 2 * window + 1;
}

static uint64_t read_phase(uint64_t window)
{
    return 2 * window + 2;
}

/* Where only some ranks read: until these have read the window. */
static muster_status wait_for_readers(struct muster_group_run *run, uint64_t window)
{
    if (run->launch->shape.collective == MUSTER_REDUCE) {
        return muster_group_wait_for_phase(run, run->launch->shape.root, read_phase(window));
    }
    return muster_group_wait_for_phase_of_all(run, read_phase(window));
}

static void copy_into_area(const struct muster_group_run *run)
{
    size_t size = run->element_size_bytes;
    struct muster_place area = {.base = area_of(run, muster_group_own_rank(run))};
    uint32_t own = muster_group_own_rank(run);
    if (run->launch->shape.collective == MUSTER_REDUCE_SCATTER) {
        for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
            const struct muster_span piece = piece_of(run, rank);
            muster_place_copy(area, muster_group_input_at(run, piece.offset), piece.count * size);
            area = muster_place_advance(area, piece.count * size);
        }
        return;
    }
    const struct muster_span piece = piece_of(run, own);
    muster_place_copy(area, muster_group_input_at(run, piece.offset - block_of(run, own).offset),
                      piece.count * size);
}

static muster_status stage_window(struct muster_group_run *run)
{
    if (!stages(run)) {
        return MUSTER_OK;
    }
    if (is_rooted(run) && run->window >= 2) {
        TRY(wait_for_readers(run, run->window - 2));
    }
    copy_into_area(run);
    muster_group_finish_phase(run, staged_phase(run->window));
    return MUSTER_OK;
}

/* Of an allgather and a broadcast. */
static muster_status read_piece(struct muster_group_run *run, uint32_t rank)
{
    const struct muster_span piece = piece_of(run, rank);
    TRY(muster_group_wait_for_phase(run, rank, staged_phase(run->window)));
    muster_group_write_output(run, muster_group_output_at(run, piece.offset), area_of(run, rank),
                              piece.count * run->element_size_bytes);
    return MUSTER_OK;
}

/* This rank's own data, which may be where the output is. */
static void keep_own(const struct muster_group_run *run, uint32_t rank)
{
    const struct muster_span piece = piece_of(run, rank);
    const struct muster_place in =
        muster_group_input_at(run, piece.offset - block_of(run, rank).offset);
    const struct muster_place out = muster_group_output_at(run, piece.offset);
    bool same = in.ranges == NULL && out.ranges == NULL && in.base == out.base;
    bool in_place =
        run->launch->shape.collective == MUSTER_BROADCAST && run->launch->in == run->launch->out;
    if (!same && !in_place) {
        muster_place_copy(out, in, piece.count * run->element_size_bytes);
    }
}

static muster_status read_pieces(struct muster_group_run *run)
{
    for (; run->peer + 1 < muster_group_rank_count(run); run->peer++) {
        TRY(read_piece(run, muster_group_peer(run, run->peer)));
    }
    keep_own(run, muster_group_own_rank(run));
    return MUSTER_OK;
}

/* Of a reduce_scatter: this rank's piece, behind those of the ranks before it in every area. */
static muster_status reduce_piece(struct muster_group_run *run)
{
    uint32_t own = muster_group_own_rank(run);
    const struct muster_span block = block_of(run, own);
    const struct muster_span piece = piece_of(run, own);
    struct muster_span span = {.count = piece.count};
    struct muster_group_inputs inputs;
    TRY(muster_group_wait_for_phase_of_all(run, staged_phase(run->window)));
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        span.offset += rank < own ? piece_of(run, rank).count : 0;
        inputs.bases[rank] = area_of(run, rank);
        inputs.ranges[rank] = NULL;
    }
    return muster_group_reduce(run, &inputs, span, run->streams,
                               muster_group_output_at(run, piece.offset - block.offset));
}

/* At the root of a reduce, whose own input is where it is. */
static muster_status reduce_at_root(struct muster_group_run *run)
{
    uint32_t own = muster_group_own_rank(run);
    const struct muster_span piece = piece_of(run, own);
    const struct muster_place in = muster_group_input_at(run, piece.offset);
    struct muster_group_inputs inputs;
    TRY(muster_group_wait_for_phase_of_all(run, staged_phase(run->window)));
    for (uint32_t rank = 0; rank < muster_group_rank_count(run); rank++) {
        inputs.bases[rank] = area_of(run, rank);
        inputs.ranges[rank] = NULL;
    }
    inputs.bases[own] = in.base;
    inputs.ranges[own] = in.ranges;
    inputs.ranges_at_bytes = in.at_bytes;
    return muster_group_reduce(run, &inputs, (struct muster_span){.count = piece.count},
                               run->streams, muster_group_output_at(run, piece.offset));
}

static muster_status read_window(struct muster_group_run *run)
{
    enum muster_collective collective = run->launch->shape.collective;
    if (collective == MUSTER_BROADCAST && is_root(run)) {
        keep_own(run, muster_group_own_rank(run));
    }
    if (!reads(run)) {
        return MUSTER_OK;
    }
    TRY(collective == MUSTER_REDUCE_SCATTER ? reduce_piece(run)
        : collective == MUSTER_REDUCE       ? reduce_at_root(run)
        : collective == MUSTER_BROADCAST    ? read_piece(run, run->launch->shape.root)
                                            : read_pieces(run));
    if (is_rooted(run)) {
        muster_group_finish_phase(run, read_phase(run->window));
    }
    return MUSTER_OK;
}

static muster_status next_window(struct muster_group_run *run);

static const muster_group_stage one_window[] = {stage_window, read_window, next_window, NULL};

/* At the end the area that is not this operation's own has to be free for the next one. */
static muster_status next_window(struct muster_group_run *run)
{
    if (run->window + 1 < run->windows) {
        run->window++;
        run->stage = one_window;
        return MUSTER_OK;
    }
    return is_rooted(run) && stages(run) && run->windows > 1
               ? wait_for_readers(run, run->windows - 2)
               : MUSTER_OK;
}

static muster_status announce(struct muster_group_run *run)
{
    TRY(muster_group_wait_for_reuse(run));
    muster_group_announce(run, (const uint64_t[2]){0, 0});
    run->windows = count_windows(run);
    return MUSTER_OK;
}

/* All have announced: the areas of the operation before are free, and all calls are the same. */
const muster_group_stage muster_group_stages_in_windows[] = {
    announce, muster_group_stage_meet, stage_window, read_window, next_window, NULL};
