/*
 * Plans the moves of a schedule. INPUT and OUTPUT are cut into cells, wherever a span of a step
 * begins or ends, so that a step has whole cells.
 */
#include "collectives/schedule/moves.h"

#include <stdlib.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

#define NONE SIZE_MAX

/* So many of the last fetches may be made longer by what comes behind them: one for each of the
 * lanes that take turns. */
enum { OPEN_FETCHES = 16 };

/* The cells of one buffer. */
struct cells {
    uint64_t *begins; /* [count + 1] the last one is the end */
    size_t *owners;   /* [count] of INPUT the fetch, of OUTPUT the step after which it is stored */
    size_t count;
};

struct planning {
    const struct muster_shape *shape;
    const struct muster_schedule *schedule;
    bool finishes;
    struct cells input, output;
    size_t *order; /* [step_count] the steps by round, then by lane */
    uint64_t first_count, most_count;
    size_t room; /* of moves->fetches */
    struct muster_schedule_moves *moves;
};

/* A part of a buffer that a step reads or writes; its count is 0 if there is none. */
typedef struct muster_span (*part_function)(const struct planning *planning,
                                            const struct muster_step *step);

static struct muster_span read_of(const struct planning *planning, const struct muster_step *step,
                                  enum muster_buffer buffer)
{
    const struct muster_step_ranges ranges =
        muster_step_ranges(planning->shape, planning->schedule, step);
    return ranges.reads && step->source == buffer ? ranges.source : (struct muster_span){0};
}

static struct muster_span read_of_input(const struct planning *planning,
                                        const struct muster_step *step)
{
    return read_of(planning, step, MUSTER_INPUT);
}

static struct muster_span read_of_output(const struct planning *planning,
                                         const struct muster_step *step)
{
    return read_of(planning, step, MUSTER_OUTPUT);
}

static struct muster_span written_of_output(const struct planning *planning,
                                            const struct muster_step *step)
{
    const struct muster_step_ranges ranges =
        muster_step_ranges(planning->shape, planning->schedule, step);
    return ranges.writes && step->target == MUSTER_OUTPUT ? ranges.target : (struct muster_span){0};
}

/* Cells ---------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    uint64_t one = *(const uint64_t *)left;
    uint64_t other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

/* parts: one or two. */
static muster_status cut(const struct planning *planning, const part_function *parts, size_t count,
                         struct cells *cells)
{
    const struct muster_schedule *schedule = planning->schedule;
    size_t room = 2 * count * schedule->step_count + 1;
    cells->begins = calloc(room, sizeof *cells->begins);
    cells->owners = calloc(room, sizeof *cells->owners);
    if (cells->begins == NULL || cells->owners == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to plan its moves");
    }
    size_t cuts = 0;
    for (size_t i = 0; i < count * schedule->step_count; i++) {
        const struct muster_span span = parts[i % count](planning, &schedule->steps[i / count]);
        if (span.count > 0) {
            cells->begins[cuts++] = span.offset;
            cells->begins[cuts++] = span.offset + span.count;
        }
    }
    qsort(cells->begins, cuts, sizeof *cells->begins, compare);
    size_t kept = 0;
    for (size_t i = 0; i < cuts; i++) {
        if (kept == 0 || cells->begins[i] != cells->begins[kept - 1]) {
            cells->begins[kept++] = cells->begins[i];
        }
    }
    cells->count = kept > 0 ? kept - 1 : 0;
    for (size_t i = 0; i < cells->count; i++) {
        cells->owners[i] = NONE;
    }
    return MUSTER_OK;
}

/* The cell that begins there. */
static size_t find(const struct cells *cells, uint64_t begin)
{
    size_t low = 0;
    size_t high = cells->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cells->begins[middle] < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Steps are listed by lane; here the first rounds of all lanes come first. A counting sort. */
static muster_status order_steps(struct planning *planning)
{
    const struct muster_schedule *schedule = planning->schedule;
    uint32_t rounds = muster_schedule_total(schedule).rounds;
    AUTO_FREE size_t *next = calloc((size_t)rounds + 1, sizeof *next);
    planning->order = calloc(schedule->step_count + 1, sizeof *planning->order);
    if (next == NULL || planning->order == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to plan its moves");
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        next[schedule->steps[i].round + 1]++;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        next[i + 1] += next[i];
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        planning->order[next[schedule->steps[i].round]++] = i;
    }
    return MUSTER_OK;
}

/* Fetches -------------------------------------------------------------------------------------- */

/* How long the fetch may be. */
static uint64_t length_of(const struct planning *planning, size_t index)
{
    uint64_t length = planning->first_count;
    for (size_t i = 0; i < index && length < planning->most_count; i++) {
        length = 2 * length;
    }
    return length < planning->most_count ? length : planning->most_count;
}

/* One of the last fetches that ends where the span begins, and has room for it; or NONE. */
static size_t find_open(const struct planning *planning, struct muster_span span)
{
    const struct muster_schedule_moves *moves = planning->moves;
    for (size_t i = moves->fetch_count; i-- > 0 && moves->fetch_count - i <= OPEN_FETCHES;) {
        const struct muster_span *fetch = &moves->fetches[i];
        if (fetch->offset + fetch->count == span.offset &&
            fetch->count + span.count <= length_of(planning, i)) {
            return i;
        }
    }
    return NONE;
}

static muster_status append(struct planning *planning, struct muster_span span)
{
    struct muster_schedule_moves *moves = planning->moves;
    if (moves->fetch_count == planning->room) {
        size_t room = planning->room == 0 ? 16 : 2 * planning->room;
        struct muster_span *larger = reallocarray(moves->fetches, room, sizeof *larger);
        if (larger == NULL) {
            return muster_error_set(MUSTER_FATAL, "schedule: no memory to plan its moves");
        }
        moves->fetches = larger;
        planning->room = room;
    }
    moves->fetches[moves->fetch_count++] = span;
    return MUSTER_OK;
}

/* Fetches a cell that no step before has read. */
static muster_status fetch(struct planning *planning, size_t cell)
{
    struct cells *cells = &planning->input;
    uint64_t end = cells->begins[cell + 1];
    for (uint64_t at = cells->begins[cell]; at < end;) {
        struct muster_span span = {.offset = at, .count = end - at};
        size_t open = find_open(planning, span);
        if (open != NONE) {
            planning->moves->fetches[open].count += span.count;
            cells->owners[cell] = open;
            return MUSTER_OK;
        }
        uint64_t length = length_of(planning, planning->moves->fetch_count);
        span.count = span.count < length ? span.count : length;
        TRY(append(planning, span));
        at += span.count;
    }
    cells->owners[cell] = planning->moves->fetch_count - 1;
    return MUSTER_OK;
}

static muster_status plan_fetches(struct planning *planning)
{
    for (size_t i = 0; i < planning->schedule->step_count; i++) {
        size_t step = planning->order[i];
        const struct muster_span span = read_of_input(planning, &planning->schedule->steps[step]);
        size_t needed = 0;
        size_t cell = span.count > 0 ? find(&planning->input, span.offset) : 0;
        for (; span.count > 0 && cell < planning->input.count &&
               planning->input.begins[cell] < span.offset + span.count;
             cell++) {
            if (planning->input.owners[cell] == NONE) {
                TRY(fetch(planning, cell));
            }
            size_t owner = planning->input.owners[cell];
            needed = owner + 1 > needed ? owner + 1 : needed;
        }
        planning->moves->needs[step] = needed;
    }
    return MUSTER_OK;
}

/* Stores --------------------------------------------------------------------------------------- */

/* From the first cell of the span on; NONE behind its last. */
static size_t next_cell(const struct cells *cells, struct muster_span span, size_t cell)
{
    size_t next = cell == NONE ? find(cells, span.offset) : cell + 1;
    return span.count > 0 && next < cells->count && cells->begins[next] < span.offset + span.count
               ? next
               : NONE;
}

/* Lanes share no elements that they write, so what touches a cell last is a step of its lane. */
static void find_owners(struct planning *planning)
{
    struct cells *cells = &planning->output;
    for (size_t i = 0; i < planning->schedule->step_count; i++) {
        const struct muster_step *step = &planning->schedule->steps[planning->order[i]];
        const struct muster_span written = written_of_output(planning, step);
        const struct muster_span read = read_of_output(planning, step);
        for (size_t cell = next_cell(cells, written, NONE); cell != NONE;
             cell = next_cell(cells, written, cell)) {
            cells->owners[cell] = planning->order[i];
        }
        for (size_t cell = planning->finishes ? next_cell(cells, read, NONE) : NONE; cell != NONE;
             cell = next_cell(cells, read, cell)) {
            bool has_result = cells->owners[cell] != NONE;
            cells->owners[cell] = has_result ? planning->order[i] : NONE;
        }
    }
}

/* Neighbouring cells of a step are one store. Returns how many there are then. */
static size_t add_stores(struct planning *planning, size_t step, struct muster_span span,
                         size_t count)
{
    struct cells *cells = &planning->output;
    struct muster_span *stores = planning->moves->stores;
    for (size_t cell = next_cell(cells, span, NONE); cell != NONE;
         cell = next_cell(cells, span, cell)) {
        uint64_t begin = cells->begins[cell];
        uint64_t size = cells->begins[cell + 1] - begin;
        if (cells->owners[cell] != step) {
            continue;
        }
        cells->owners[cell] = NONE; /* a step may read and write it */
        bool open = count > planning->moves->stored_by[step] &&
                    stores[count - 1].offset + stores[count - 1].count == begin;
        if (open) {
            stores[count - 1].count += size;
        } else {
            stores[count] = (struct muster_span){.offset = begin, .count = size};
            count++;
        }
    }
    return count;
}

static void plan_stores(struct planning *planning)
{
    const struct muster_schedule *schedule = planning->schedule;
    size_t count = 0;
    find_owners(planning);
    for (size_t i = 0; i < schedule->step_count; i++) {
        planning->moves->stored_by[i] = count;
        count = add_stores(planning, i, written_of_output(planning, &schedule->steps[i]), count);
        count = add_stores(planning, i, read_of_output(planning, &schedule->steps[i]), count);
    }
    planning->moves->stored_by[schedule->step_count] = count;
}

/* All ------------------------------------------------------------------------------------------ */

static muster_status plan(struct planning *planning)
{
    struct muster_schedule_moves *moves = planning->moves;
    size_t steps = planning->schedule->step_count;
    static const part_function of_input[] = {read_of_input};
    static const part_function of_output[] = {written_of_output, read_of_output};
    TRY(cut(planning, of_input, 1, &planning->input));
    TRY(cut(planning, of_output, 2, &planning->output));
    TRY(order_steps(planning));
    moves->needs = calloc(steps + 1, sizeof *moves->needs);
    moves->stored_by = calloc(steps + 1, sizeof *moves->stored_by);
    moves->stores = calloc(planning->output.count + 1, sizeof *moves->stores);
    if (moves->needs == NULL || moves->stored_by == NULL || moves->stores == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory to plan its moves");
    }
    TRY(plan_fetches(planning));
    plan_stores(planning);
    return MUSTER_OK;
}

muster_status muster_schedule_moves_plan(const struct muster_shape *shape,
                                         const struct muster_schedule *schedule, bool finishes,
                                         uint64_t first_count, uint64_t most_count,
                                         struct muster_schedule_moves *ret_moves)
{
    struct muster_schedule_moves moves = {0};
    struct planning planning = {.shape = shape,
                                .schedule = schedule,
                                .finishes = finishes,
                                .first_count = first_count,
                                .most_count = most_count,
                                .moves = &moves};
    muster_status status = plan(&planning);
    free(planning.input.begins);
    free(planning.input.owners);
    free(planning.output.begins);
    free(planning.output.owners);
    free(planning.order);
    if (status != MUSTER_OK) {
        muster_schedule_moves_finish(&moves);
        return status;
    }
    *ret_moves = moves;
    return MUSTER_OK;
}

void muster_schedule_moves_finish(struct muster_schedule_moves *moves)
{
    free(moves->fetches);
    free(moves->needs);
    free(moves->stores);
    free(moves->stored_by);
    *moves = (struct muster_schedule_moves){0};
}
