/*
 * Input kept: moves what is not yet a result from OUTPUT to SCRATCH.
 *
 *   cells    OUTPUT, cut wherever a span of a step begins or ends: a step has whole cells
 *   blocks   neighbouring cells that some step needs together in SCRATCH: joined
 *   slots    places in SCRATCH; a block has one from its first round to its last
 *
 * Lanes never wait for each other, so a cell belongs to one lane, and slots are not shared between
 * lanes.
 */
#include "collectives/schedule/keep_input.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

#define NONE SIZE_MAX

/* A block of at most so many elements leaves a round between a slot's last use and its own first
 * one, so that its receive may be posted early (muster_schedule_receives_early()). For larger ones
 * memory matters more than the latency that this saves. */
enum { EARLY_ELEMENTS_MAX = 1 << 18 };

struct cell {
    uint64_t begin;
    size_t writes; /* steps that write it */
    size_t last;   /* the step that writes it last */
    size_t up;     /* towards the first cell of its block; that one has itself here */
    /* Of the block, in its first cell: */
    size_t end;  /* the cell behind its last */
    bool stays;  /* in SCRATCH until the last round of the lane */
    bool placed; /* it has a slot */
    uint32_t until_round;
    size_t slot;
};

/* A place in SCRATCH. */
struct slot {
    uint64_t count, base;
    uint16_t lane;
    uint32_t until_round; /* its present block's */
};

struct keeping {
    const struct muster_shape *shape; /* of the call */
    struct muster_schedule *schedule;
    struct cell *cells; /* [cell_count + 1]; the last one only marks the end */
    size_t cell_count;
    struct slot *slots; /* [cell_count] */
    size_t slot_count;
};

/* A part of OUTPUT that a step reads or writes. */
struct side {
    bool is_target;
    uint64_t offset, count;
};

/* The parts of OUTPUT that the step touches: at most two. */
static size_t sides_of(const struct keeping *keeping, const struct muster_step *step,
                       struct side sides[2])
{
    /* Every step is asked several times, and few of them are group steps. */
    const struct muster_step_ranges ranges =
        muster_step_is_group(step) ? muster_step_ranges(keeping->shape, keeping->schedule, step)
                                   : (struct muster_step_ranges){
                                         .reads = step->kind != MUSTER_STEP_RECV,
                                         .writes = step->kind != MUSTER_STEP_SEND,
                                         .source = step->span,
                                         .target = {.offset = step->at, .count = step->span.count}};
    size_t count = 0;
    if (ranges.reads && step->source == MUSTER_OUTPUT && ranges.source.count > 0) {
        sides[count] = (struct side){.offset = ranges.source.offset, .count = ranges.source.count};
        count++;
    }
    if (ranges.writes && step->target == MUSTER_OUTPUT && ranges.target.count > 0) {
        sides[count] = (struct side){
            .is_target = true, .offset = ranges.target.offset, .count = ranges.target.count};
        count++;
    }
    return count;
}

/* Cells --------------------------------------------------------------------------------------- */

static int compare_cuts(const void *left, const void *right)
{
    uint64_t one = *(const uint64_t *)left;
    uint64_t other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

static muster_status cut_cells(struct keeping *keeping)
{
    const struct muster_schedule *schedule = keeping->schedule;
    AUTO_FREE uint64_t *cuts = calloc(4 * schedule->step_count + 1, sizeof *cuts);
    if (cuts == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to keep the input");
    }
    size_t count = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct side sides[2];
        for (size_t j = sides_of(keeping, &schedule->steps[i], sides); j-- > 0;) {
            cuts[count++] = sides[j].offset;
            cuts[count++] = sides[j].offset + sides[j].count;
        }
    }
    qsort(cuts, count, sizeof *cuts, compare_cuts);
    keeping->cells = calloc(count + 1, sizeof *keeping->cells);
    if (keeping->cells == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to keep the input");
    }
    size_t cells = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || cuts[i] != cuts[i - 1]) {
            keeping->cells[cells] =
                (struct cell){.begin = cuts[i], .last = NONE, .up = cells, .end = cells + 1};
            cells++;
        }
    }
    keeping->cell_count = cells > 0 ? cells - 1 : 0;
    return MUSTER_OK;
}

/* The cell that begins there. */
static size_t find_cell(const struct keeping *keeping, uint64_t begin)
{
    size_t low = 0;
    size_t high = keeping->cell_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (keeping->cells[middle].begin < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first cell of the block. */
static size_t find_block(const struct keeping *keeping, size_t cell)
{
    struct cell *cells = keeping->cells;
    while (cells[cell].up != cell) {
        cells[cell].up = cells[cells[cell].up].up;
        cell = cells[cell].up;
    }
    return cell;
}

static void count_writes(struct keeping *keeping)
{
    for (size_t i = 0; i < keeping->schedule->step_count; i++) {
        struct side sides[2];
        for (size_t j = sides_of(keeping, &keeping->schedule->steps[i], sides); j-- > 0;) {
            size_t cell = find_cell(keeping, sides[j].offset);
            uint64_t end = sides[j].offset + sides[j].count;
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a step with a span has cells */
            for (; sides[j].is_target && keeping->cells[cell].begin < end; cell++) {
                keeping->cells[cell].writes++;
                keeping->cells[cell].last = i;
            }
        }
    }
}

/* Blocks -------------------------------------------------------------------------------------- */

/* Whether the step finds the cell in SCRATCH, or puts it there. */
static bool is_in_scratch(const struct keeping *keeping, size_t cell, size_t step, bool is_target)
{
    const struct cell *it = &keeping->cells[cell];
    return keeping->cells[find_block(keeping, cell)].stays ||
           (it->writes > 1 && (is_target ? step < it->last : step <= it->last));
}

/* Joins the cells [first, end) to one block. True: something has changed. */
static bool join(struct keeping *keeping, size_t first, size_t end, bool stays)
{
    struct cell *cells = keeping->cells;
    size_t block = find_block(keeping, first);
    bool changed = stays && !cells[block].stays;
    bool any_stays = stays || cells[block].stays;
    for (size_t cell = cells[block].end; cell < end; cell = cells[block].end) {
        any_stays |= cells[cell].stays;
        cells[cell].up = block;
        cells[block].end = cells[cell].end;
        changed = true;
    }
    cells[block].stays = any_stays;
    return changed;
}

/* Cells of one side of a step must be together. REDUCE reads where it writes, so its last write
 * cannot go elsewhere. */
static bool join_side(struct keeping *keeping, size_t step, const struct side *side)
{
    size_t first = find_cell(keeping, side->offset);
    size_t end = first;
    size_t inside = 0;
    bool stays = false;
    for (; keeping->cells[end].begin < side->offset + side->count; end++) {
        bool writes = is_in_scratch(keeping, end, step, side->is_target);
        inside += writes;
        stays |= side->is_target && keeping->schedule->steps[step].kind == MUSTER_STEP_REDUCE &&
                 writes != is_in_scratch(keeping, end, step, false);
    }
    stays |= inside > 0 && inside < end - first;
    return (inside > 0 || stays) && join(keeping, first, end, stays);
}

/* Until nothing changes: a block that stays in SCRATCH may divide the spans of other steps. */
static void find_blocks(struct keeping *keeping)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < keeping->schedule->step_count; i++) {
            struct side sides[2];
            for (size_t j = sides_of(keeping, &keeping->schedule->steps[i], sides); j-- > 0;) {
                changed |= join_side(keeping, i, &sides[j]);
            }
        }
    }
}

/* Slots --------------------------------------------------------------------------------------- */

static uint64_t block_count(const struct keeping *keeping, size_t block)
{
    return keeping->cells[keeping->cells[block].end].begin - keeping->cells[block].begin;
}

/* The first cell of the block in which the side is in SCRATCH; NONE: it is in OUTPUT. */
static size_t block_of_side(const struct keeping *keeping, size_t step, const struct side *side)
{
    size_t cell = find_cell(keeping, side->offset);
    return is_in_scratch(keeping, cell, step, side->is_target) ? find_block(keeping, cell) : NONE;
}

static void find_last_rounds(struct keeping *keeping)
{
    const struct muster_schedule *schedule = keeping->schedule;
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct side sides[2];
        for (size_t j = sides_of(keeping, &schedule->steps[i], sides); j-- > 0;) {
            size_t block = block_of_side(keeping, i, &sides[j]);
            if (block != NONE) {
                struct cell *first = &keeping->cells[block];
                first->until_round = first->stays ? UINT32_MAX : schedule->steps[i].round;
            }
        }
    }
}

/* The slot is free, and fits better than the other one: the smallest that is large enough, else the
 * largest. */
static bool fits_better(const struct keeping *keeping, const struct slot *slot, size_t other,
                        uint64_t count)
{
    if (other == NONE) {
        return true;
    }
    uint64_t present = keeping->slots[other].count;
    return present >= count ? slot->count >= count && slot->count < present : slot->count > present;
}

static void place_block(struct keeping *keeping, size_t block, const struct muster_step *step)
{
    uint64_t count = block_count(keeping, block);
    uint64_t pause = count <= EARLY_ELEMENTS_MAX ? 1 : 0;
    size_t best = NONE;
    for (size_t i = 0; i < keeping->slot_count; i++) {
        const struct slot *slot = &keeping->slots[i];
        if (slot->lane == step->lane && slot->until_round + pause < step->round &&
            fits_better(keeping, slot, best, count)) {
            best = i;
        }
    }
    if (best == NONE) {
        best = keeping->slot_count++;
        keeping->slots[best] = (struct slot){.lane = step->lane};
    }
    struct slot *slot = &keeping->slots[best];
    slot->count = count > slot->count ? count : slot->count;
    slot->until_round = keeping->cells[block].until_round;
    keeping->cells[block].slot = best;
    keeping->cells[block].placed = true;
}

/* Blocks in the order of their first rounds. */
static muster_status place_blocks(struct keeping *keeping)
{
    struct muster_schedule *schedule = keeping->schedule;
    keeping->slots = calloc(keeping->cell_count + 1, sizeof *keeping->slots);
    if (keeping->slots == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to keep the input");
    }
    find_last_rounds(keeping);
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct side sides[2];
        for (size_t j = sides_of(keeping, &schedule->steps[i], sides); j-- > 0;) {
            size_t block = block_of_side(keeping, i, &sides[j]);
            if (block != NONE && !keeping->cells[block].placed) {
                place_block(keeping, block, &schedule->steps[i]);
            }
        }
    }
    uint64_t base = schedule->scratch_count;
    for (size_t i = 0; i < keeping->slot_count; i++) {
        keeping->slots[i].base = base;
        if (__builtin_add_overflow(base, keeping->slots[i].count, &base)) {
            return muster_error_set(MUSTER_FATAL, "schedule: scratch of 2^64 elements");
        }
    }
    return MUSTER_OK;
}

/* Steps --------------------------------------------------------------------------------------- */

static uint64_t place_in_slot(const struct keeping *keeping, size_t block, uint64_t offset)
{
    const struct cell *first = &keeping->cells[block];
    return keeping->slots[first->slot].base + (offset - first->begin);
}

static struct muster_step move_step(const struct keeping *keeping, size_t index)
{
    struct muster_step moved = keeping->schedule->steps[index];
    struct side sides[2];
    for (size_t j = sides_of(keeping, &keeping->schedule->steps[index], sides); j-- > 0;) {
        size_t block = block_of_side(keeping, index, &sides[j]);
        if (block == NONE) {
            continue;
        }
        uint64_t offset = place_in_slot(keeping, block, sides[j].offset);
        if (sides[j].is_target) {
            moved.target = MUSTER_SCRATCH;
            moved.at = offset;
            moved.span.offset = moved.kind == MUSTER_STEP_RECV ? offset : moved.span.offset;
        } else {
            moved.source = MUSTER_SCRATCH;
            moved.span.offset = offset;
        }
    }
    return moved;
}

/* Appends the copies of the lane whose last step is given. */
static size_t copy_blocks(const struct keeping *keeping, const struct muster_step *last,
                          struct muster_step *steps)
{
    size_t count = 0;
    for (size_t block = 0; block < keeping->cell_count; block = keeping->cells[block].end) {
        const struct cell *first = &keeping->cells[block];
        if (first->stays && keeping->slots[first->slot].lane == last->lane) {
            steps[count] =
                (struct muster_step){.kind = MUSTER_STEP_COPY,
                                     .source = MUSTER_SCRATCH,
                                     .target = MUSTER_OUTPUT,
                                     .lane = last->lane,
                                     .round = last->round + 1,
                                     .span = {.offset = place_in_slot(keeping, block, first->begin),
                                              .count = block_count(keeping, block)},
                                     .at = first->begin};
            count++;
        }
    }
    return count;
}

static muster_status move_steps(struct keeping *keeping)
{
    struct muster_schedule *schedule = keeping->schedule;
    size_t most = schedule->step_count + keeping->cell_count;
    struct muster_step *steps = calloc(most + 1, sizeof *steps);
    if (steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %zu steps", most);
    }
    size_t count = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        steps[count++] = move_step(keeping, i);
        if (i + 1 == schedule->step_count || step[1].lane != step->lane) {
            count += copy_blocks(keeping, step, &steps[count]);
        }
    }
    free(schedule->steps);
    schedule->steps = steps;
    schedule->step_count = count;
    for (size_t i = 0; i < keeping->slot_count; i++) {
        schedule->scratch_count += keeping->slots[i].count;
    }
    return MUSTER_OK;
}

static muster_status keep(struct keeping *keeping, bool all_last)
{
    TRY(cut_cells(keeping));
    count_writes(keeping);
    bool needed = false;
    for (size_t i = 0; i < keeping->cell_count; i++) {
        keeping->cells[i].stays = all_last && keeping->cells[i].writes > 0;
        needed |= keeping->cells[i].stays || keeping->cells[i].writes > 1;
    }
    if (!needed) {
        return MUSTER_OK;
    }
    find_blocks(keeping);
    TRY(place_blocks(keeping));
    return move_steps(keeping);
}

muster_status muster_schedule_keep_input(const struct muster_shape *shape,
                                         struct muster_schedule *schedule, bool all_last)
{
    struct keeping keeping = {.shape = shape, .schedule = schedule};
    muster_status status = keep(&keeping, all_last);
    free(keeping.cells);
    free(keeping.slots);
    return status;
}
