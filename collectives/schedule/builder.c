/* The builder: adds steps to a schedule, and orders them by lane. */
#include "collectives/schedule/builder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/status.h"

uint32_t muster_group_rank(const struct muster_group *group, uint64_t index)
{
    uint32_t member = (uint32_t)(index % group->size);
    return group->offset + (group->ranks == NULL ? member : group->ranks[member]);
}

struct muster_group muster_group_all(const struct muster_plan *plan)
{
    struct muster_group group = {
        .ranks = plan->reduction_order, .size = plan->topology->ranks, .index = plan->rank};
    for (uint32_t i = 0; group.ranks != NULL && i < group.size; i++) {
        group.index = group.ranks[i] == plan->rank ? i : group.index;
    }
    return group;
}

/* The groups of the plan's rank. Where hosts have different sizes there are no cross groups. */
static void find_groups(const struct muster_plan *plan, struct muster_step_group *ret_groups)
{
    const struct muster_topology *topology = plan->topology;
    const struct muster_position position = muster_topology_locate(topology, plan->rank);
    bool even = muster_topology_largest_host(topology) == muster_topology_smallest_host(topology);
    ret_groups[MUSTER_STEP_OVER_ALL] =
        (struct muster_step_group){.count = topology->ranks, .stride = 1};
    ret_groups[MUSTER_STEP_OVER_HOST] = (struct muster_step_group){
        .first = plan->rank - position.local_rank, .count = position.local_size, .stride = 1};
    ret_groups[MUSTER_STEP_OVER_CROSS] =
        even ? (struct muster_step_group){.first = position.local_rank,
                                          .count = topology->hosts,
                                          .stride = position.local_size}
             : (struct muster_step_group){0};
}

void muster_builder_init(const struct muster_plan *plan, struct muster_builder *ret_builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    *ret_builder = (struct muster_builder){
        .shape = shape,
        .schedule = {.rank = plan->rank,
                     .ranks = plan->topology->ranks,
                     .input_count = muster_shape_input_count(&shape),
                     .output_count = muster_shape_output_count(&shape)},
    };
    find_groups(plan, ret_builder->schedule.groups);
}

void muster_builder_set_lane(struct muster_builder *builder, uint16_t lane)
{
    if (lane >= MUSTER_LANES_MAX - builder->first_lane) {
        builder->status = builder->status != MUSTER_OK
                              ? builder->status
                              : muster_error_set(MUSTER_FATAL, "schedule: lane %u of at most %d",
                                                 lane, MUSTER_LANES_MAX - builder->first_lane);
        return;
    }
    builder->lane = (uint16_t)(builder->first_lane + lane);
}

void muster_builder_next_round(struct muster_builder *builder)
{
    builder->open[builder->lane] = false;
}

uint64_t muster_builder_reserve(struct muster_builder *builder, uint64_t count)
{
    uint64_t offset = builder->schedule.scratch_count;
    if (__builtin_add_overflow(offset, count, &builder->schedule.scratch_count) &&
        builder->status == MUSTER_OK) {
        builder->status = muster_error_set(MUSTER_FATAL, "schedule: scratch of 2^64 elements");
    }
    return offset;
}

static bool make_room(struct muster_builder *builder)
{
    size_t used = builder->schedule.step_count;
    if (used < builder->capacity) {
        return true;
    }
    size_t capacity = used == 0 ? 16 : used * 2;
    struct muster_step *steps = NULL;
    if (capacity <= MUSTER_STEPS_MAX) {
        steps = realloc(builder->schedule.steps, capacity * sizeof *steps);
    }
    if (steps == NULL) {
        builder->status =
            muster_error_set(MUSTER_FATAL, "schedule: no memory for %zu steps", capacity);
        return false;
    }
    builder->schedule.steps = steps;
    builder->capacity = capacity;
    return true;
}

static bool within(const struct muster_schedule *schedule, unsigned buffer, uint64_t offset,
                   uint64_t count)
{
    uint64_t all = muster_buffer_count(schedule, buffer);
    return buffer <= MUSTER_SCRATCH && offset <= all && count <= all - offset;
}

/* False: the generator has an error. The checker tests the same in a finished schedule. */
static bool is_plausible(const struct muster_shape *shape, const struct muster_schedule *schedule,
                         const struct muster_step *step)
{
    if (muster_step_is_group(step)) {
        if (schedule->groups[step->scope].count == 0) {
            return false;
        }
        const struct muster_step_ranges ranges = muster_step_ranges(shape, schedule, step);
        const struct muster_span target = ranges.target;
        return (!ranges.reads ||
                within(schedule, step->source, ranges.source.offset, ranges.source.count)) &&
               (!ranges.writes || (step->target != MUSTER_INPUT &&
                                   within(schedule, step->target, target.offset, target.count)));
    }
    bool message = step->kind <= MUSTER_STEP_RECV_REDUCE;
    if (message && (step->peer >= schedule->ranks || step->peer == schedule->rank)) {
        return false;
    }
    if (step->kind != MUSTER_STEP_RECV &&
        !within(schedule, step->source, step->span.offset, step->span.count)) {
        return false;
    }
    return step->kind == MUSTER_STEP_SEND ||
           (step->target != MUSTER_INPUT &&
            within(schedule, step->target, step->at, step->span.count));
}

static void add(struct muster_builder *builder, struct muster_step step)
{
    if (builder->status != MUSTER_OK || !make_room(builder)) {
        return;
    }
    uint16_t lane = builder->lane;
    if (!builder->open[lane]) {
        builder->open[lane] = true;
        builder->rounds[lane]++;
    }
    step.lane = lane;
    step.round = builder->rounds[lane] - 1;
    if (!is_plausible(&builder->shape, &builder->schedule, &step)) {
        builder->status = muster_error_set(
            MUSTER_FATAL, "schedule: rank %" PRIu32 " lane %u round %" PRIu32 " is out of bounds",
            builder->schedule.rank, lane, step.round);
        return;
    }
    builder->schedule.steps[builder->schedule.step_count++] = step;
}

void muster_builder_send(struct muster_builder *builder, uint32_t peer, enum muster_buffer source,
                         struct muster_span span)
{
    add(builder,
        (struct muster_step){
            .kind = MUSTER_STEP_SEND, .source = (uint8_t)source, .peer = peer, .span = span});
}

void muster_builder_recv(struct muster_builder *builder, uint32_t peer, enum muster_buffer target,
                         struct muster_span span)
{
    add(builder, (struct muster_step){.kind = MUSTER_STEP_RECV,
                                      .target = (uint8_t)target,
                                      .peer = peer,
                                      .span = span,
                                      .at = span.offset});
}

void muster_builder_recv_reduce(struct muster_builder *builder, uint32_t peer,
                                enum muster_buffer source, struct muster_span span,
                                enum muster_buffer target, uint64_t at)
{
    add(builder, (struct muster_step){.kind = MUSTER_STEP_RECV_REDUCE,
                                      .source = (uint8_t)source,
                                      .target = (uint8_t)target,
                                      .peer = peer,
                                      .span = span,
                                      .at = at});
}

/* Leaves out steps that do nothing. */
static void add_local(struct muster_builder *builder, enum muster_step_kind kind,
                      enum muster_buffer source, struct muster_span span, enum muster_buffer target,
                      uint64_t at)
{
    bool same = kind == MUSTER_STEP_COPY && source == target && span.offset == at;
    if (span.count > 0 && !same) {
        add(builder, (struct muster_step){.kind = (uint8_t)kind,
                                          .source = (uint8_t)source,
                                          .target = (uint8_t)target,
                                          .span = span,
                                          .at = at});
    }
}

void muster_builder_copy(struct muster_builder *builder, enum muster_buffer source,
                         struct muster_span span, enum muster_buffer target, uint64_t at)
{
    add_local(builder, MUSTER_STEP_COPY, source, span, target, at);
}

void muster_builder_reduce(struct muster_builder *builder, enum muster_buffer source,
                           struct muster_span span, enum muster_buffer target, uint64_t at)
{
    add_local(builder, MUSTER_STEP_REDUCE, source, span, target, at);
}

void muster_builder_group(struct muster_builder *builder, const struct muster_group_call *call)
{
    add(builder, (struct muster_step){.kind = (uint8_t)call->kind,
                                      .source = (uint8_t)call->source,
                                      .target = (uint8_t)call->target,
                                      .scope = (uint8_t)call->scope,
                                      .blocks = call->blocks ? 1 : 0,
                                      .together = call->together ? 1 : 0,
                                      .peer = call->root,
                                      .span = call->span,
                                      .at = call->at});
}

/* The rounds of a lane increase as steps are added, so it is enough to put the lanes one after the
 * other. */
static muster_status order_by_lane(struct muster_builder *builder)
{
    struct muster_schedule *schedule = &builder->schedule;
    uint32_t lanes = 0;
    while (lanes < MUSTER_LANES_MAX && builder->rounds[lanes] > 0) {
        lanes++;
    }
    for (uint32_t lane = lanes; lane < MUSTER_LANES_MAX; lane++) {
        if (builder->rounds[lane] > 0) {
            return muster_error_set(MUSTER_FATAL, "schedule: lane %" PRIu32 " is empty", lanes);
        }
    }
    schedule->lanes = lanes;
    if (lanes < 2) {
        return MUSTER_OK;
    }
    struct muster_step *ordered = calloc(schedule->step_count, sizeof *ordered);
    if (ordered == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %zu steps",
                                schedule->step_count);
    }
    size_t filled = 0;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        for (size_t i = 0; i < schedule->step_count; i++) {
            if (schedule->steps[i].lane == lane) {
                ordered[filled++] = schedule->steps[i];
            }
        }
    }
    free(schedule->steps);
    schedule->steps = ordered;
    return MUSTER_OK;
}

muster_status muster_builder_finish(struct muster_builder *builder,
                                    struct muster_schedule *ret_schedule)
{
    muster_status status = builder->status;
    if (status == MUSTER_OK) {
        status = order_by_lane(builder);
    }
    if (status == MUSTER_OK) {
        *ret_schedule = builder->schedule;
    } else {
        muster_schedule_finish(&builder->schedule);
    }
    *builder = (struct muster_builder){0};
    return status;
}
