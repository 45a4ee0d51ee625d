/* Follows what every element stands for, step by step, and checks the results. */
#include "collectives/check/contents.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/check/check_parts.h"
#include "collectives/schedule/group_step.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

struct state {
    const struct muster_shape *shapes; /* [ranks] */
    const struct muster_walk *walk;
    bool in_place;
    bool in_place_differs; /* a step read INPUT that would be overwritten in place */
    const struct muster_values_observer *observer; /* or NULL */
    struct muster_terms terms;
    uint32_t canonical; /* what every sum must be; MUSTER_TERM_NONE: any order is allowed */
    struct muster_rank_cells *memories; /* [ranks] */
    struct muster_element_ranges mine, theirs, sum;
};

/* The first cells of a step's source and target. */
static struct muster_step_cells places_of(const struct state *state,
                                          const struct muster_walk_step *where)
{
    const struct muster_schedule *schedule = &state->walk->schedules[where->rank];
    return state->memories[where->rank].places[where->step - schedule->steps];
}

static struct muster_step_ranges ranges_of(const struct state *state,
                                           const struct muster_walk_step *where)
{
    return muster_step_ranges(&state->shapes[where->rank], &state->walk->schedules[where->rank],
                              where->step);
}

/* Out of place, where INPUT has no cells of its own. */
static muster_status read_input(struct state *state, const struct muster_walk_step *where,
                                struct muster_element_ranges *ret_part)
{
    const struct muster_span span = ranges_of(state, where).source;
    bool filled = muster_shape_contributes(&state->shapes[where->rank]);
    const struct muster_element_range range = {.count = span.count,
                                               .origin = span.offset,
                                               .term = filled ? muster_terms_leaf(where->rank)
                                                              : MUSTER_TERM_NONE};
    if (!muster_cells_are_unwritten_or(&state->memories[where->rank].cells,
                                       places_of(state, where).source, &range)) {
        state->in_place_differs = true;
    }
    muster_element_ranges_clear(ret_part);
    return muster_element_ranges_append(ret_part, range.count, range.origin, range.term);
}

static muster_status check_written(unsigned buffer, uint64_t offset,
                                   const struct muster_element_ranges *part)
{
    for (size_t i = 0; i < part->used; i++) {
        if (part->items[i].term == MUSTER_TERM_NONE) {
            return muster_error_set(MUSTER_INVALID, "reads %s[%" PRIu64 "], which no step wrote",
                                    muster_buffer_name(buffer), offset + part->items[i].begin);
        }
    }
    return MUSTER_OK;
}

/* What a step's source holds. */
static muster_status read_source(struct state *state, const struct muster_walk_step *where,
                                 struct muster_element_ranges *ret_part)
{
    const struct muster_step *step = where->step;
    if (step->source == MUSTER_INPUT && !state->in_place) {
        TRY(read_input(state, where, ret_part));
    } else {
        TRY(muster_cells_read(&state->memories[where->rank].cells, places_of(state, where).source,
                              ranges_of(state, where).source.count, ret_part));
    }
    return check_written(step->source, step->span.offset, ret_part);
}

static muster_status read_target(struct state *state, const struct muster_walk_step *where,
                                 struct muster_element_ranges *ret_part)
{
    const struct muster_step *step = where->step;
    TRY(muster_cells_read(&state->memories[where->rank].cells, places_of(state, where).target,
                          step->span.count, ret_part));
    return check_written(step->target, step->at, ret_part);
}

static muster_status write_target(struct state *state, const struct muster_walk_step *where,
                                  const struct muster_element_ranges *part)
{
    return muster_cells_write(&state->memories[where->rank].cells, places_of(state, where).target,
                              part);
}

static muster_status show_step(const struct state *state, const struct muster_walk_step *where,
                               const struct muster_element_ranges *ranges)
{
    const struct muster_values_observer *observer = state->observer;
    return observer == NULL ? MUSTER_OK
                            : observer->on_step(observer->user, where, ranges, &state->terms);
}

static muster_status at_step(const struct state *state, muster_status status,
                             const struct muster_walk_step *where)
{
    return status != MUSTER_INVALID
               ? status
               : muster_error_prefix(status, "rank %" PRIu32 " lane %u round %" PRIu32 "%s",
                                     where->rank, where->step->lane, where->step->round,
                                     state->in_place ? " (in place)" : "");
}

static muster_status do_local(struct state *state, const struct muster_walk_step *local)
{
    const struct muster_step *step = local->step;
    TRY(read_source(state, local, &state->theirs));
    if (step->kind == MUSTER_STEP_COPY) {
        TRY(show_step(state, local, &state->theirs));
        return write_target(state, local, &state->theirs);
    }
    TRY(read_target(state, local, &state->mine));
    TRY(muster_element_ranges_add(&state->mine, &state->theirs, &state->terms, &state->sum));
    TRY(show_step(state, local, &state->sum));
    return write_target(state, local, &state->sum);
}

static muster_status visit_local(void *user, const struct muster_walk_step *local)
{
    struct state *state = user;
    return at_step(state, do_local(state, local), local);
}

static muster_status do_receive(struct state *state, const struct muster_walk_step *receive)
{
    if (receive->step->kind == MUSTER_STEP_RECV) {
        TRY(show_step(state, receive, &state->theirs));
        return write_target(state, receive, &state->theirs);
    }
    TRY(read_source(state, receive, &state->mine));
    TRY(muster_element_ranges_add(&state->mine, &state->theirs, &state->terms, &state->sum));
    TRY(show_step(state, receive, &state->sum));
    return write_target(state, receive, &state->sum);
}

static muster_status visit_message(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive)
{
    struct state *state = user;
    TRY(at_step(state, read_source(state, send, &state->theirs), send));
    TRY(show_step(state, send, &state->theirs));
    return at_step(state, do_receive(state, receive), receive);
}

/* Group steps --------------------------------------------------------------------------------- */

/* What the members of a group step hold: before it what each reads, afterwards in parts[0] what it
 * results in as a whole. */
struct group_values {
    const struct muster_walk_step *members;
    uint32_t count;
    const struct muster_step_group *group;
    const struct muster_shape *shape;
    struct muster_element_ranges *parts; /* [count] */
};

static void swap(struct muster_element_ranges *one, struct muster_element_ranges *other)
{
    struct muster_element_ranges kept = *one;
    *one = *other;
    *other = kept;
}

/* The member at this place of the tree. */
static uint32_t member_at(const struct group_values *values, uint32_t place)
{
    const uint32_t *order = values->shape->reduction_order;
    bool all = values->count == values->shape->ranks;
    return order != NULL && all ? order[place] : place;
}

static muster_status read_members(struct state *state, struct group_values *values)
{
    bool reduces = values->members[0].step->kind != MUSTER_STEP_GROUP_ALLGATHER &&
                   values->members[0].step->kind != MUSTER_STEP_GROUP_BROADCAST;
    for (uint32_t i = 0; i < values->count; i++) {
        const struct muster_walk_step *member =
            &values->members[reduces ? member_at(values, i) : i];
        if (ranges_of(state, member).reads) {
            TRY(at_step(state, read_source(state, member, &values->parts[i]), member));
        }
    }
    return MUSTER_OK;
}

/* Along the tree of terms.h: neighbours first, then pairs of pairs. */
static muster_status reduce_members(struct state *state, struct group_values *values)
{
    struct muster_element_ranges *parts = values->parts;
    for (uint32_t left = values->count; left > 1; left = (left + 1) / 2) {
        for (uint32_t i = 0; i < left / 2; i++) {
            TRY(muster_element_ranges_add(&parts[(size_t)2 * i], &parts[(size_t)2 * i + 1],
                                          &state->terms, &state->sum));
            swap(&parts[i], &state->sum);
        }
        if (left % 2 == 1) {
            swap(&parts[left / 2], &parts[left - 1]);
        }
    }
    return MUSTER_OK;
}

static muster_status append(struct muster_element_ranges *ranges,
                            const struct muster_element_ranges *from, struct muster_span span)
{
    uint64_t end = span.offset + span.count;
    for (size_t i = 0; i < from->used; i++) {
        const struct muster_element_range *range = &from->items[i];
        uint64_t begins = range->begin > span.offset ? range->begin : span.offset;
        uint64_t ends = range->begin + range->count < end ? range->begin + range->count : end;
        if (begins < ends) {
            TRY(muster_element_ranges_append(ranges, ends - begins,
                                             range->origin + (begins - range->begin), range->term));
        }
    }
    return MUSTER_OK;
}

/* Shares follow each other in the order of members. */
static muster_status gather_members(struct state *state, struct group_values *values)
{
    muster_element_ranges_clear(&state->sum);
    for (uint32_t i = 0; i < values->count; i++) {
        const struct muster_span all = {.count = UINT64_MAX};
        TRY(append(&state->sum, &values->parts[i], all));
    }
    swap(&values->parts[0], &state->sum);
    return MUSTER_OK;
}

static muster_status join_members(struct state *state, struct group_values *values)
{
    const struct muster_step *step = values->members[0].step;
    switch (step->kind) {
    case MUSTER_STEP_GROUP_BARRIER:
        return MUSTER_OK;
    case MUSTER_STEP_GROUP_ALLGATHER:
        return gather_members(state, values);
    case MUSTER_STEP_GROUP_BROADCAST:
        swap(&values->parts[0], &values->parts[muster_step_group_index(values->group, step->peer)]);
        return MUSTER_OK;
    default:
        return reduce_members(state, values);
    }
}

static muster_status write_member(struct state *state, const struct group_values *values,
                                  uint32_t index)
{
    const struct muster_walk_step *member = &values->members[index];
    if (!ranges_of(state, member).writes) {
        return MUSTER_OK;
    }
    struct muster_span share = {.count = member->step->span.count};
    if (member->step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER) {
        share = muster_step_share(values->shape, values->group, member->step, index);
    }
    muster_element_ranges_clear(&state->theirs);
    TRY(append(&state->theirs, &values->parts[0], share));
    TRY(show_step(state, member, &state->theirs));
    return write_target(state, member, &state->theirs);
}

static muster_status do_group(struct state *state, struct group_values *values)
{
    TRY(read_members(state, values));
    TRY(at_step(state, join_members(state, values), &values->members[0]));
    for (uint32_t i = 0; i < values->count; i++) {
        TRY(at_step(state, write_member(state, values, i), &values->members[i]));
    }
    return MUSTER_OK;
}

static muster_status visit_group(void *user, const struct muster_walk_step *members, uint32_t count)
{
    struct state *state = user;
    struct group_values values = {
        .members = members,
        .count = count,
        .group = &state->walk->schedules[members[0].rank].groups[members[0].step->scope],
        .shape = &state->shapes[members[0].rank],
        .parts = calloc(count, sizeof *values.parts)};
    muster_status status =
        values.parts != NULL
            ? do_group(state, &values)
            : muster_error_set(MUSTER_FATAL, "check: no memory for %" PRIu32 " members", count);
    for (uint32_t i = 0; i < count && values.parts != NULL; i++) {
        muster_element_ranges_finish(&values.parts[i]);
    }
    free(values.parts);
    return status;
}

static muster_status visit_round_end(void *user, uint32_t rank, size_t lane_number)
{
    (void)user;
    (void)rank;
    (void)lane_number;
    return MUSTER_OK;
}

/* Before the first step only INPUT holds values, in a broadcast only the root's. */
static muster_status fill(struct state *state, uint32_t rank)
{
    const struct muster_schedule *schedule = &state->walk->schedules[rank];
    struct muster_rank_cells *memory = &state->memories[rank];
    TRY(muster_rank_cells_init(&state->shapes[rank], schedule, memory));
    if (!state->in_place || !muster_shape_contributes(&state->shapes[rank])) {
        return MUSTER_OK;
    }
    muster_element_ranges_clear(&state->mine);
    TRY(muster_element_ranges_append(&state->mine, schedule->input_count, 0,
                                     muster_terms_leaf(rank)));
    return muster_cells_write(&memory->cells, memory->input, &state->mine);
}

/* True if the elements are the expected ones. Sums are compared with those of other ranks
 * elsewhere. A range may consist of several expected ones that continue each other. */
static bool is_expected(const struct state *state, uint32_t rank,
                        const struct muster_element_range *range)
{
    for (uint64_t done = 0; done < range->count;) {
        struct muster_expected expected =
            muster_shape_expected(state->shapes, rank, range->begin + done);
        bool right = expected.reduced ? muster_terms_is_full(&state->terms, range->term)
                                      : range->term == muster_terms_leaf(expected.rank);
        if (!right || range->origin + done != expected.origin) {
            return false;
        }
        done += expected.count;
    }
    return true;
}

/* False: a sum that does not follow the reduction order. */
static bool is_canonical(const struct state *state, uint32_t rank,
                         const struct muster_element_range *range)
{
    return state->canonical == MUSTER_TERM_NONE || state->canonical == range->term ||
           !muster_shape_expected(state->shapes, rank, range->begin).reduced;
}

static muster_status wrong_result(const struct state *state, uint32_t rank, uint64_t element,
                                  const char *what)
{
    return muster_error_set(MUSTER_INVALID, "rank %" PRIu32 "%s: output[%" PRIu64 "] %s", rank,
                            state->in_place ? " (in place)" : "", element, what);
}

/* Checks one rank's OUTPUT, and leaves it in ret_output. */
static muster_status check_result(const struct state *state, uint32_t rank,
                                  struct muster_element_ranges *ret_output)
{
    const struct muster_schedule *schedule = &state->walk->schedules[rank];
    TRY(muster_cells_read(&state->memories[rank].cells, state->memories[rank].output,
                          schedule->output_count, ret_output));
    for (size_t i = 0; i < ret_output->used; i++) {
        if (!is_expected(state, rank, &ret_output->items[i])) {
            return wrong_result(state, rank, ret_output->items[i].begin,
                                "is not what the collective requires");
        }
        if (!is_canonical(state, rank, &ret_output->items[i])) {
            return wrong_result(state, rank, ret_output->items[i].begin,
                                "is not reduced in the reduction order");
        }
    }
    if (state->observer != NULL) {
        return state->observer->on_output(state->observer->user, rank, ret_output, &state->terms);
    }
    return MUSTER_OK;
}

/* Equal contents have equal lists of ranges. */
static muster_status check_same(const struct state *state, uint32_t rank,
                                const struct muster_element_ranges *first,
                                const struct muster_element_ranges *other)
{
    for (size_t i = 0; i < first->used; i++) {
        if (i >= other->used || first->items[i].count != other->items[i].count ||
            first->items[i].term != other->items[i].term) {
            return wrong_result(state, rank, first->items[i].begin,
                                "is reduced in another order than on rank 0");
        }
    }
    return MUSTER_OK;
}

static muster_status check_results(struct state *state)
{
    TRY(check_result(state, 0, &state->mine));
    for (uint32_t rank = 1; rank < state->walk->ranks; rank++) {
        TRY(check_result(state, rank, &state->theirs));
        if (state->shapes[rank].collective == MUSTER_ALLREDUCE) {
            TRY(check_same(state, rank, &state->mine, &state->theirs));
        }
    }
    return MUSTER_OK;
}

static muster_status run(struct state *state)
{
    if (state->shapes[0].reduction_order != NULL) {
        TRY(muster_terms_canonical(&state->terms, state->shapes[0].reduction_order,
                                   &state->canonical));
    }
    for (uint32_t rank = 0; rank < state->walk->ranks; rank++) {
        TRY(fill(state, rank));
    }
    const struct muster_walk_visitor visitor = {.user = state,
                                                .visit_local = visit_local,
                                                .visit_message = visit_message,
                                                .visit_group = visit_group,
                                                .visit_round_end = visit_round_end};
    TRY(muster_walk_run(state->walk, &visitor));
    return check_results(state);
}

static void finish(struct state *state)
{
    for (uint32_t rank = 0; state->memories != NULL && rank < state->walk->ranks; rank++) {
        muster_rank_cells_finish(&state->memories[rank]);
    }
    free(state->memories);
    muster_terms_finish(&state->terms);
    muster_element_ranges_finish(&state->mine);
    muster_element_ranges_finish(&state->theirs);
    muster_element_ranges_finish(&state->sum);
}

muster_status muster_check_values(const struct muster_shape *shapes, const struct muster_walk *walk,
                                  bool in_place, const struct muster_values_observer *observer,
                                  bool *ret_in_place_differs)
{
    struct state state = {
        .shapes = shapes, .walk = walk, .in_place = in_place, .observer = observer};
    TRY(muster_terms_init(walk->ranks, &state.terms));
    state.memories = calloc(walk->ranks, sizeof *state.memories);
    muster_status status = MUSTER_OK;
    if (state.memories == NULL) {
        status =
            muster_error_set(MUSTER_FATAL, "check: no memory for %" PRIu32 " ranks", walk->ranks);
    } else {
        status = run(&state);
    }
    if (status == MUSTER_OK && ret_in_place_differs != NULL) {
        *ret_in_place_differs = state.in_place_differs;
    }
    finish(&state);
    return status;
}
