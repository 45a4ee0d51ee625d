/* Makes a drawing: walks the schedules for columns, and follows values for chunks. */
#include "collectives/draw/drawing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/check/contents.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* A drawing that is not complete yet; runs[] are elements of the data until the chunks are known.
 */
struct draft {
    struct muster_drawing *drawing;
    size_t capacity; /* of drawing->runs */
    /* [lanes of all ranks] when the lane's round began, and when its last finished step ended */
    uint32_t *begun, *ended;
    const struct muster_walk *walk;
};

/* Chunks --------------------------------------------------------------------------------------- */

/* Where data is reduced it is the same on all ranks; else every rank has its own data. */
static uint64_t place_of(const struct draft *draft, uint32_t rank, uint64_t origin)
{
    return muster_collective_reduces(draft->drawing->shapes[0].collective)
               ? origin
               : rank * draft->drawing->stride + origin;
}

static muster_status add_run(struct draft *draft, uint64_t first, uint64_t end,
                             struct muster_step_data *data)
{
    struct muster_drawing *drawing = draft->drawing;
    if (drawing->run_count == draft->capacity) {
        size_t capacity = draft->capacity == 0 ? 256 : 2 * draft->capacity;
        struct muster_chunk_run *runs = realloc(drawing->runs, capacity * sizeof *runs);
        if (runs == NULL) {
            return muster_error_set(MUSTER_FATAL, "drawing: no memory for %zu spans", capacity);
        }
        drawing->runs = runs;
        draft->capacity = capacity;
    }
    if (data->run_count == 0) {
        data->first_run = drawing->run_count;
    }
    drawing->runs[drawing->run_count++] = (struct muster_chunk_run){.first = first, .end = end};
    data->run_count++;
    return MUSTER_OK;
}

/* Adds the element ranges to a step's data. */
static muster_status add_step_data(struct draft *draft, const struct muster_element_ranges *ranges,
                                   const struct muster_terms *terms, struct muster_step_data *data)
{
    for (size_t i = 0; i < ranges->used; i++) {
        const struct muster_element_range *range = &ranges->items[i];
        /* Where nothing is reduced, every term is the input of one rank. */
        uint64_t first = place_of(draft, range->term - muster_terms_leaf(0), range->origin);
        uint32_t members = muster_terms_members(terms, range->term);
        TRY(add_run(draft, first, first + range->count, data));
        data->members = members > data->members ? members : data->members;
    }
    return MUSTER_OK;
}

static muster_status on_step(void *user, const struct muster_walk_step *where,
                             const struct muster_element_ranges *ranges,
                             const struct muster_terms *terms)
{
    struct draft *draft = user;
    struct muster_drawing *drawing = draft->drawing;
    size_t index = (size_t)(where->step - drawing->schedules[where->rank].steps);
    return add_step_data(draft, ranges, terms,
                         &drawing->steps[drawing->first_step[where->rank] + index].data);
}

static muster_status on_output(void *user, uint32_t rank,
                               const struct muster_element_ranges *ranges,
                               const struct muster_terms *terms)
{
    struct draft *draft = user;
    return add_step_data(draft, ranges, terms, &draft->drawing->end[rank]);
}

static muster_status add_inputs(struct draft *draft)
{
    struct muster_drawing *drawing = draft->drawing;
    for (uint32_t rank = 0; rank < drawing->ranks; rank++) {
        uint64_t count = muster_shape_input_count(&drawing->shapes[rank]);
        if (count > 0 && muster_shape_contributes(&drawing->shapes[rank])) {
            uint64_t first = place_of(draft, rank, 0);
            TRY(add_run(draft, first, first + count, &drawing->begin[rank]));
            drawing->begin[rank].members = 1;
        }
    }
    return MUSTER_OK;
}

static int compare_cuts(const void *left_cut, const void *right_cut)
{
    uint64_t left = *(const uint64_t *)left_cut;
    uint64_t right = *(const uint64_t *)right_cut;
    return (left > right) - (left < right);
}

static uint64_t find_cut(const struct muster_drawing *drawing, size_t cuts, uint64_t cut)
{
    const uint64_t *found = bsearch(&cut, drawing->cuts, cuts, sizeof cut, compare_cuts);
    return (uint64_t)(found - drawing->cuts);
}

/* Collects the ends of all runs, each once. Returns their number. */
static size_t collect_cuts(struct muster_drawing *drawing)
{
    for (size_t i = 0; i < drawing->run_count; i++) {
        drawing->cuts[2 * i] = drawing->runs[i].first;
        drawing->cuts[2 * i + 1] = drawing->runs[i].end;
    }
    qsort(drawing->cuts, 2 * drawing->run_count, sizeof *drawing->cuts, compare_cuts);
    size_t used = 0;
    for (size_t i = 0; i < 2 * drawing->run_count; i++) {
        if (used == 0 || drawing->cuts[i] != drawing->cuts[used - 1]) {
            drawing->cuts[used++] = drawing->cuts[i];
        }
    }
    return used;
}

/* Numbers the chunks, and converts the runs to these numbers. The range between two adjacent cuts
 * is a chunk, or is the unused range between the data of two ranks. numbers[] is zeroed. */
static void number_chunks(struct muster_drawing *drawing, size_t cuts, int64_t *numbers)
{
    for (size_t i = 0; i < drawing->run_count; i++) {
        drawing->runs[i].first = find_cut(drawing, cuts, drawing->runs[i].first);
        drawing->runs[i].end = find_cut(drawing, cuts, drawing->runs[i].end);
        numbers[drawing->runs[i].first]++;
        numbers[drawing->runs[i].end]--;
    }
    int64_t open = 0;
    for (size_t i = 0; i < cuts; i++) {
        open += numbers[i];
        numbers[i] = (int64_t)drawing->chunks;
        if (open > 0) {
            drawing->cuts[drawing->chunks++] = drawing->cuts[i];
        }
    }
    for (size_t i = 0; i < drawing->run_count; i++) {
        drawing->runs[i].first = (uint64_t)numbers[drawing->runs[i].first];
        drawing->runs[i].end = (uint64_t)numbers[drawing->runs[i].end];
    }
}

/* Every end of a run is a cut between chunks. */
static muster_status cut_chunks(struct muster_drawing *drawing)
{
    drawing->cuts = calloc(2 * drawing->run_count + 1, sizeof *drawing->cuts);
    AUTO_FREE int64_t *numbers = calloc(2 * drawing->run_count + 1, sizeof *numbers);
    if (drawing->cuts == NULL || numbers == NULL) {
        return muster_error_set(MUSTER_FATAL, "drawing: no memory for %zu spans",
                                drawing->run_count);
    }
    number_chunks(drawing, collect_cuts(drawing), numbers);
    return MUSTER_OK;
}

/* Columns -------------------------------------------------------------------------------------- */

/* Puts the step into this column. */
static void place_step(struct draft *draft, const struct muster_walk_step *where, uint32_t column)
{
    struct muster_drawing *drawing = draft->drawing;
    size_t index = (size_t)(where->step - drawing->schedules[where->rank].steps);
    drawing->steps[drawing->first_step[where->rank] + index].column = column;
    uint32_t *ended = &draft->ended[where->lane_number];
    *ended = column + 1 > *ended ? column + 1 : *ended;
    drawing->columns = column + 1 > drawing->columns ? column + 1 : drawing->columns;
}

static muster_status visit_local(void *user, const struct muster_walk_step *local)
{
    struct draft *draft = user;
    place_step(draft, local, draft->begun[local->lane_number]);
    return MUSTER_OK;
}

static muster_status visit_message(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive)
{
    struct draft *draft = user;
    uint32_t sender = draft->begun[send->lane_number];
    uint32_t receiver = draft->begun[receive->lane_number];
    uint32_t column = sender > receiver ? sender : receiver;
    place_step(draft, send, column);
    place_step(draft, receive, column);
    return MUSTER_OK;
}

/* A group step is in the column in which the last of its members comes to it. */
static muster_status visit_group(void *user, const struct muster_walk_step *members, uint32_t count)
{
    struct draft *draft = user;
    uint32_t column = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begun = draft->begun[members[i].lane_number];
        column = begun > column ? begun : column;
    }
    for (uint32_t i = 0; i < count; i++) {
        place_step(draft, &members[i], column);
    }
    return MUSTER_OK;
}

static muster_status visit_round_end(void *user, uint32_t rank, size_t lane_number)
{
    (void)rank;
    struct draft *draft = user;
    draft->begun[lane_number] = draft->ended[lane_number];
    return MUSTER_OK;
}

/* Making ----------------------------------------------------------------------------------------
 */

static muster_status allocate(struct draft *draft)
{
    struct muster_drawing *drawing = draft->drawing;
    size_t ranks = drawing->ranks;
    size_t steps = draft->walk->first_step[ranks];
    size_t lanes = draft->walk->first_lane[ranks];
    drawing->first_step = calloc(ranks + 1, sizeof *drawing->first_step);
    drawing->steps = calloc(steps + 1, sizeof *drawing->steps);
    drawing->begin = calloc(ranks + 1, sizeof *drawing->begin);
    drawing->end = calloc(ranks + 1, sizeof *drawing->end);
    draft->begun = calloc(lanes + 1, sizeof *draft->begun);
    draft->ended = calloc(lanes + 1, sizeof *draft->ended);
    if (drawing->first_step == NULL || drawing->steps == NULL || drawing->begin == NULL ||
        drawing->end == NULL || draft->begun == NULL || draft->ended == NULL) {
        return muster_error_set(MUSTER_FATAL, "drawing: no memory for %zu steps", steps);
    }
    return MUSTER_OK;
}

static void number_steps(struct draft *draft)
{
    struct muster_drawing *drawing = draft->drawing;
    memcpy(drawing->first_step, draft->walk->first_step,
           ((size_t)drawing->ranks + 1) * sizeof *drawing->first_step);
    for (uint32_t rank = 0; rank < drawing->ranks; rank++) {
        const struct muster_schedule *schedule = &drawing->schedules[rank];
        uint64_t input = muster_shape_input_count(&drawing->shapes[rank]);
        drawing->stride = input > drawing->stride ? input : drawing->stride;
        drawing->lanes = schedule->lanes > drawing->lanes ? schedule->lanes : drawing->lanes;
        for (size_t i = 0; i < schedule->step_count; i++) {
            size_t number = drawing->first_step[rank] + i;
            drawing->steps[number] = (struct muster_drawn_step){
                .rank = rank, .step = &schedule->steps[i], .other = draft->walk->matches[number]};
        }
    }
}

static muster_status make(struct draft *draft, bool in_place)
{
    const struct muster_walk_visitor clock = {.user = draft,
                                              .visit_local = visit_local,
                                              .visit_message = visit_message,
                                              .visit_group = visit_group,
                                              .visit_round_end = visit_round_end};
    const struct muster_values_observer observer = {
        .user = draft, .on_step = on_step, .on_output = on_output};
    TRY(allocate(draft));
    number_steps(draft);
    TRY(muster_walk_run(draft->walk, &clock));
    TRY(add_inputs(draft));
    TRY(muster_check_values(draft->drawing->shapes, draft->walk, in_place, &observer, NULL));
    return cut_chunks(draft->drawing);
}

muster_status muster_drawing_init(const struct muster_shape *shapes,
                                  const struct muster_schedule *schedules, uint32_t ranks,
                                  bool in_place, struct muster_drawing *ret_drawing)
{
    struct muster_walk walk;
    TRY(muster_walk_init(schedules, ranks, &walk));
    struct muster_drawing drawing = {.shapes = shapes, .schedules = schedules, .ranks = ranks};
    struct draft draft = {.drawing = &drawing, .walk = &walk};
    muster_status status = make(&draft, in_place);
    free(draft.begun);
    free(draft.ended);
    muster_walk_finish(&walk);
    if (status != MUSTER_OK) {
        muster_drawing_finish(&drawing);
        return status;
    }
    *ret_drawing = drawing;
    return MUSTER_OK;
}

void muster_drawing_finish(struct muster_drawing *drawing)
{
    if (drawing != NULL) {
        free(drawing->first_step);
        free(drawing->steps);
        free(drawing->begin);
        free(drawing->end);
        free(drawing->runs);
        free(drawing->cuts);
        *drawing = (struct muster_drawing){0};
    }
}
