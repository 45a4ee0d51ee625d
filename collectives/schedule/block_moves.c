/* Rewrites schedules for buffers whose blocks lie in another order. */
#include "collectives/schedule/block_moves.h"

#include <stdlib.h>

#include "worker/base/status.h"

muster_status muster_block_moves_init(uint32_t blocks, struct muster_block_moves *ret_moves)
{
    struct muster_block_moves moves = {
        .blocks = blocks,
        .from = calloc((size_t)blocks + 1, sizeof *moves.from),
        .to = calloc((size_t)blocks + 1, sizeof *moves.to),
    };
    if (moves.from == NULL || moves.to == NULL) {
        muster_block_moves_finish(&moves);
        return muster_error_set(MUSTER_FATAL, "no memory for the order of %u blocks", blocks);
    }
    *ret_moves = moves;
    return MUSTER_OK;
}

void muster_block_moves_finish(struct muster_block_moves *moves)
{
    free(moves->from);
    free(moves->to);
    *moves = (struct muster_block_moves){0};
}

/* Pieces --------------------------------------------------------------------------------------- */

/* The block that the element is in: the last one that begins at it or before it and is not empty.
 */
static uint32_t find_block(const struct muster_block_moves *moves, uint64_t element)
{
    uint32_t low = 0;
    uint32_t high = moves->blocks;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (moves->from[middle] <= element) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

struct muster_moved_piece muster_block_moves_piece(const struct muster_block_moves *moves,
                                                   struct muster_span span)
{
    struct muster_moved_piece piece = {.at = span.offset, .count = span.count};
    if (moves->blocks == 0 || span.count == 0) {
        return piece;
    }
    uint32_t block = find_block(moves, span.offset);
    uint64_t end = moves->from[block + 1];
    uint64_t end_at = moves->to[block] + (end - moves->from[block]);
    piece.at = moves->to[block] + (span.offset - moves->from[block]);
    /* Blocks that follow each other at the caller's, too. Empty ones lie anywhere. */
    for (block++; block < moves->blocks && end < span.offset + span.count; block++) {
        uint64_t size = moves->from[block + 1] - moves->from[block];
        if (size > 0 && moves->to[block] != end_at) {
            break;
        }
        end += size;
        end_at += size;
    }
    uint64_t run = end - span.offset;
    piece.count = run < span.count ? run : span.count;
    return piece;
}

/* The elements that a step reads of its source, and writes of its target. */
static struct muster_span source_span(const struct muster_step *step)
{
    return step->span;
}

static struct muster_span target_span(const struct muster_step *step)
{
    return (struct muster_span){.offset = step->at, .count = step->span.count};
}

static bool reads(const struct muster_step *step)
{
    return step->kind != MUSTER_STEP_RECV;
}

static bool writes(const struct muster_step *step)
{
    return step->kind != MUSTER_STEP_SEND;
}

static bool is_local(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_COPY || step->kind == MUSTER_STEP_REDUCE;
}

static bool is_one_piece(const struct muster_block_moves *moves, struct muster_span span)
{
    return muster_block_moves_piece(moves, span).count == span.count;
}

bool muster_block_moves_fit(const struct muster_block_moves *moves,
                            const struct muster_schedule *schedule, enum muster_buffer buffer)
{
    for (size_t i = 0; i < schedule->step_count && moves->blocks > 0; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (is_local(step)) {
            continue;
        }
        if ((reads(step) && step->source == buffer && !is_one_piece(moves, source_span(step))) ||
            (writes(step) && step->target == buffer && !is_one_piece(moves, target_span(step)))) {
            return false;
        }
    }
    return true;
}

/* Rewriting ------------------------------------------------------------------------------------ */

/* Both buffers of a call; a step's place in SCRATCH stays. */
struct both {
    const struct muster_block_moves *input, *output;
};

static struct muster_moved_piece move(const struct both *both, unsigned buffer,
                                      struct muster_span span)
{
    static const struct muster_block_moves none;
    const struct muster_block_moves *moves = buffer == MUSTER_INPUT    ? both->input
                                             : buffer == MUSTER_OUTPUT ? both->output
                                                                       : &none;
    return muster_block_moves_piece(moves, span);
}

/* The first piece of a step, which is all of it where it is a message. */
static struct muster_step first_piece(const struct both *both, const struct muster_step *step)
{
    struct muster_step piece = *step;
    if (reads(step)) {
        struct muster_moved_piece source = move(both, step->source, source_span(step));
        piece.span.offset = source.at;
        piece.span.count = source.count;
    }
    if (writes(step)) {
        struct muster_moved_piece target = move(both, step->target, target_span(step));
        piece.at = target.at;
        piece.span.count = target.count < piece.span.count ? target.count : piece.span.count;
    }
    if (step->kind == MUSTER_STEP_RECV) {
        piece.span.offset = piece.at;
    }
    return piece;
}

/* Writes the pieces of all steps, or counts them only. */
static size_t cut(const struct both *both, const struct muster_schedule *schedule,
                  struct muster_step *ret_steps)
{
    size_t count = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct muster_step rest = schedule->steps[i];
        bool more = true;
        while (more) {
            const struct muster_step piece = first_piece(both, &rest);
            if (ret_steps != NULL) {
                ret_steps[count] = piece;
            }
            count++;
            rest.span.offset += piece.span.count;
            rest.at += piece.span.count;
            rest.span.count -= piece.span.count;
            more = rest.span.count > 0;
        }
    }
    return count;
}

muster_status muster_block_moves_apply(const struct muster_block_moves *input,
                                       const struct muster_block_moves *output,
                                       struct muster_schedule *schedule)
{
    const struct both both = {.input = input, .output = output};
    if ((input->blocks == 0 && output->blocks == 0) || schedule->step_count == 0) {
        return MUSTER_OK;
    }
    size_t count = cut(&both, schedule, NULL);
    struct muster_step *steps = calloc(count, sizeof *steps);
    if (steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a schedule of %zu steps", count);
    }
    (void)cut(&both, schedule, steps);
    free(schedule->steps);
    schedule->steps = steps;
    schedule->step_count = count;
    return MUSTER_OK;
}
