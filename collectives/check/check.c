/* The checker: the form of each schedule, and the order in which the other parts run. */
#include "collectives/check/check.h"

#include <inttypes.h>
#include <stdio.h>

#include "collectives/call/topology.h"
#include "collectives/check/check_parts.h"
#include "collectives/check/contents.h"
#include "collectives/schedule/builder.h"
#include "collectives/schedule/group_step.h"
#include "worker/base/status.h"

static muster_status wrong(const struct muster_schedule *schedule, const struct muster_step *step,
                           const char *what)
{
    return muster_error_set(MUSTER_INVALID, "rank %" PRIu32 " lane %u round %" PRIu32 ": %s",
                            schedule->rank, step->lane, step->round, what);
}

/* The fields of the schedule itself, and that all ranks' shapes are of one call. */
static muster_status check_head(const struct muster_shape *shape, const struct muster_shape *first,
                                const struct muster_schedule *schedule, uint32_t rank,
                                uint32_t ranks)
{
    bool agrees = shape->collective == first->collective && shape->root == first->root &&
                  shape->rank == rank && shape->ranks == ranks;
    if (!agrees || schedule->rank != rank || schedule->ranks != ranks ||
        schedule->input_count != muster_shape_input_count(shape) ||
        schedule->output_count != muster_shape_output_count(shape)) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %" PRIu32 ": the schedule is for another rank or call", rank);
    }
    if (schedule->lanes > MUSTER_LANES_MAX || schedule->scratch_count > MUSTER_ELEMENTS_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %" PRIu32 ": lanes or scratch are out of range", rank);
    }
    return MUSTER_OK;
}

static bool in_buffer(const struct muster_schedule *schedule, unsigned buffer, uint64_t offset,
                      uint64_t count)
{
    uint64_t all = muster_buffer_count(schedule, buffer);
    return buffer <= MUSTER_SCRATCH && offset <= all && count <= all - offset;
}

/* Whether the blocks of the members are as many elements as the step says. */
static bool has_blocks(const struct muster_shape *shape, const struct muster_step_group *group,
                       const struct muster_step *step)
{
    bool scatters = step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER;
    bool gathers = step->kind == MUSTER_STEP_GROUP_ALLGATHER;
    bool has = scatters ? shape->collective == MUSTER_REDUCE_SCATTER
                        : gathers && (shape->collective == MUSTER_ALLGATHER ||
                                      shape->collective == MUSTER_ALLGATHERV);
    if (!has || group->stride != 1) {
        return false;
    }
    struct muster_span last = muster_step_share(shape, group, step, group->count - 1);
    return last.offset + last.count == step->span.count;
}

/* A group step by itself: its group, its root, its shares, and its ranges. */
static muster_status check_group_step(const struct muster_shape *shape,
                                      const struct muster_schedule *schedule,
                                      const struct muster_step *step)
{
    if (step->scope >= MUSTER_STEP_SCOPES) {
        return wrong(schedule, step, "the scope of a group step is unknown");
    }
    const struct muster_step_group *group = &schedule->groups[step->scope];
    if (group->count == 0 || group->count > schedule->ranks ||
        muster_step_group_index(group, schedule->rank) == group->count ||
        (uint64_t)group->stride * (group->count - 1) >= schedule->ranks - group->first) {
        return wrong(schedule, step, "its group is not one of ranks, with this rank");
    }
    if (muster_step_has_root(step) && muster_step_group_index(group, step->peer) == group->count) {
        return wrong(schedule, step, "the root is not in the group");
    }
    if (step->together > 1) {
        return wrong(schedule, step, "it is neither together nor not");
    }
    if (step->blocks > 1 || (step->blocks == 1 && !has_blocks(shape, group, step))) {
        return wrong(schedule, step, "its shares are not blocks of the call");
    }
    const struct muster_step_ranges ranges = muster_step_ranges(shape, schedule, step);
    if (ranges.reads &&
        !in_buffer(schedule, step->source, ranges.source.offset, ranges.source.count)) {
        return wrong(schedule, step, "the source is out of bounds");
    }
    if (ranges.writes && step->target == MUSTER_INPUT) {
        return wrong(schedule, step, "it writes the input");
    }
    if (ranges.writes &&
        !in_buffer(schedule, step->target, ranges.target.offset, ranges.target.count)) {
        return wrong(schedule, step, "the target is out of bounds");
    }
    return MUSTER_OK;
}

/* Checks one step by itself: its kind, its peer, and that its spans are within their buffers. */
static muster_status check_step(const struct muster_shape *shape,
                                const struct muster_schedule *schedule,
                                const struct muster_step *step)
{
    if (muster_step_is_group(step)) {
        return check_group_step(shape, schedule, step);
    }
    if (step->kind < MUSTER_STEP_SEND || step->kind > MUSTER_STEP_REDUCE) {
        return wrong(schedule, step, "the kind of step is unknown");
    }
    bool message = step->kind <= MUSTER_STEP_RECV_REDUCE;
    if (message && step->peer >= schedule->ranks) {
        return wrong(schedule, step, "the peer does not exist");
    }
    if (message && step->peer == schedule->rank) {
        return wrong(schedule, step, "the peer is the rank itself");
    }
    if (step->kind != MUSTER_STEP_RECV &&
        !in_buffer(schedule, step->source, step->span.offset, step->span.count)) {
        return wrong(schedule, step, "the source is out of bounds");
    }
    if (step->kind == MUSTER_STEP_SEND) {
        return MUSTER_OK;
    }
    if (step->target == MUSTER_INPUT) {
        return wrong(schedule, step, "it writes the input");
    }
    if (!in_buffer(schedule, step->target, step->at, step->span.count)) {
        return wrong(schedule, step, "the target is out of bounds");
    }
    if (step->kind == MUSTER_STEP_RECV && step->span.offset != step->at) {
        return wrong(schedule, step, "a recv with two different offsets");
    }
    return MUSTER_OK;
}

/* Lanes follow each other, and none is missing; rounds count from 0 without gaps. */
static muster_status check_order(const struct muster_schedule *schedule)
{
    uint32_t lanes = 0;
    uint32_t rounds = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (lanes > 0 && step->lane == lanes - 1 &&
            (step->round == rounds - 1 || step->round == rounds)) {
            rounds = step->round + 1;
        } else if (step->lane == lanes && step->round == 0) {
            lanes++;
            rounds = 1;
        } else {
            return wrong(schedule, step, "lanes or rounds run backward or skip one");
        }
    }
    if (lanes != schedule->lanes) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %" PRIu32 ": %" PRIu32 " lanes declared, %" PRIu32 " found",
                                schedule->rank, schedule->lanes, lanes);
    }
    return MUSTER_OK;
}

/* Each schedule by itself. */
static muster_status check_form(const struct muster_shape *shapes,
                                const struct muster_schedule *schedules, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const struct muster_schedule *schedule = &schedules[rank];
        TRY(muster_shape_check(&shapes[rank]));
        TRY(check_head(&shapes[rank], &shapes[0], schedule, rank, ranks));
        TRY(check_order(schedule));
        for (size_t i = 0; i < schedule->step_count; i++) {
            TRY(check_step(&shapes[rank], schedule, &schedule->steps[i]));
        }
    }
    return MUSTER_OK;
}

static muster_status check_races(const struct muster_shape *shapes, const struct muster_walk *walk,
                                 bool in_place)
{
    for (uint32_t rank = 0; rank < walk->ranks; rank++) {
        TRY(muster_check_races(&shapes[rank], &walk->schedules[rank], in_place));
    }
    return MUSTER_OK;
}

/* Out of place and in place. Values are walked a second time only if in place they could differ. */
static muster_status check_both(const struct muster_shape *shapes, const struct muster_walk *walk,
                                const struct muster_values_observer *observer)
{
    bool in_place_differs = false;
    TRY(check_races(shapes, walk, false));
    TRY(muster_check_values(shapes, walk, false, observer, &in_place_differs));
    TRY(check_races(shapes, walk, true));
    return in_place_differs ? muster_check_values(shapes, walk, true, observer, NULL) : MUSTER_OK;
}

static muster_status check_walk(const struct muster_shape *shapes, const struct muster_walk *walk,
                                bool in_place, unsigned promises)
{
    const struct muster_values_observer kept = muster_input_kept_observer(shapes);
    bool keeps = (promises & MUSTER_CHECK_INPUT_KEPT) != 0;
    const struct muster_values_observer *observer = keeps ? &kept : NULL;
    if (!muster_collective_in_place_counts(shapes[0].collective)) {
        return check_both(shapes, walk, observer);
    }
    TRY(check_races(shapes, walk, in_place));
    TRY(muster_check_values(shapes, walk, in_place, in_place ? observer : NULL, NULL));
    return keeps && in_place ? muster_check_late_output(walk) : MUSTER_OK;
}

static muster_status prove(const struct muster_shape *shapes,
                           const struct muster_schedule *schedules, uint32_t ranks, bool in_place,
                           unsigned promises)
{
    if (ranks == 0 || ranks > MUSTER_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID, "%" PRIu32 " ranks, must be 1..%d", ranks,
                                MUSTER_RANKS_MAX);
    }
    TRY(check_form(shapes, schedules, ranks));
    struct muster_walk walk;
    TRY(muster_walk_init(schedules, ranks, &walk));
    muster_status status = check_walk(shapes, &walk, in_place, promises);
    bool together =
        shapes[0].collective == MUSTER_BARRIER || (promises & MUSTER_CHECK_FINISH_TOGETHER) != 0;
    if (status == MUSTER_OK && together) {
        status = muster_check_barrier(&walk);
    }
    muster_walk_finish(&walk);
    return status;
}

muster_status muster_check(const struct muster_shape *shapes,
                           const struct muster_schedule *schedules, uint32_t ranks, bool in_place,
                           struct muster_check_result *ret_result)
{
    return muster_check_promises(shapes, schedules, ranks, in_place, 0, ret_result);
}

muster_status muster_check_promises(const struct muster_shape *shapes,
                                    const struct muster_schedule *schedules, uint32_t ranks,
                                    bool in_place, unsigned promises,
                                    struct muster_check_result *ret_result)
{
    muster_status status = prove(shapes, schedules, ranks, in_place, promises);
    if (status != MUSTER_OK && status != MUSTER_INVALID) {
        return status;
    }
    struct muster_check_result result = {.proven = status == MUSTER_OK};
    if (!result.proven) {
        (void)snprintf(result.why, sizeof result.why, "%s", muster_last_error());
        *ret_result = result;
        return MUSTER_OK;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct muster_schedule_totals totals = muster_schedule_total(&schedules[rank]);
        if (totals.rounds > result.rounds) {
            result.rounds = totals.rounds;
        }
        if (totals.elements_sent > result.elements_sent_max) {
            result.elements_sent_max = totals.elements_sent;
        }
        if (totals.messages_sent > result.messages_sent_max) {
            result.messages_sent_max = totals.messages_sent;
        }
    }
    *ret_result = result;
    return MUSTER_OK;
}
