/* Performs the group steps of a schedule that has other steps, too. */
#include "worker/executor/executor_steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/schedule/group_step.h"
#include "worker/base/clock.h"
#include "worker/device/devices.h"
#include "worker/executor/executor_channels.h"
#include "worker/executor/executor_group.h"
#include "worker/executor/executor_parts.h"

enum {
    SPIN_NS = 20 * 1000,       /* in one poll of the group, before the fabric has its turn */
    CHECK_NS = 1000 * 1000,    /* the time between two checks of liveness */
    POLL_NS = 20 * 1000,       /* until the group is polled again, at first */
    POLL_MAX_NS = 1000 * 1000, /* and after a long wait */
};

/* A step whose ranges are slices of the caller's. */
struct slices {
    struct muster_range_list source, target;
};

struct muster_group_steps {
    size_t *order; /* [count] indices of the schedule's steps, in the order of performance */
    size_t count;
    uint32_t members_max;
    uint64_t *bounds; /* [members_max + 1] of the present step's shares */
    struct slices slices;
    /* Of the present launch. */
    size_t next; /* index in `order` */
    bool begun;  /* the device has that step: it is polled */
    bool failed; /* a step has ended with a failure, and this rank has left the group */
    uint32_t suspect;
    int64_t begun_ns, check_ns;
    struct muster_launch launch; /* of the present step */
};

/* Making -------------------------------------------------------------------------------------- */

static bool comes_before(const struct muster_schedule *schedule, size_t left, size_t right)
{
    const struct muster_step *one = &schedule->steps[left];
    const struct muster_step *other = &schedule->steps[right];
    return one->round != other->round ? one->round < other->round : one->lane < other->lane;
}

/* By round, then by lane; those of a lane are in order. */
static void sort(const struct muster_schedule *schedule, size_t *order, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        size_t moved = order[i];
        size_t at = i;
        for (; at > 0 && comes_before(schedule, moved, order[at - 1]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = moved;
    }
}

static size_t count_steps(const struct muster_schedule *schedule, uint32_t *members_max)
{
    size_t count = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (muster_step_is_group(step)) {
            uint32_t members = schedule->groups[step->scope].count;
            *members_max = members > *members_max ? members : *members_max;
            count++;
        }
    }
    return count;
}

muster_status muster_group_steps_create(const struct muster_schedule *schedule,
                                        struct muster_group_steps **ret_steps)
{
    uint32_t members_max = 0;
    size_t count = count_steps(schedule, &members_max);
    if (count == 0) {
        return MUSTER_OK;
    }
    struct muster_group_steps *steps = calloc(1, sizeof *steps);
    if (steps != NULL) {
        steps->order = calloc(count, sizeof *steps->order);
        steps->bounds = calloc((size_t)members_max + 1, sizeof *steps->bounds);
    }
    if (steps == NULL || steps->order == NULL || steps->bounds == NULL) {
        muster_group_steps_destroy(steps);
        return muster_error_set(MUSTER_FATAL, "no memory for %zu group steps", count);
    }
    steps->members_max = members_max;
    for (size_t i = 0; i < schedule->step_count; i++) {
        if (muster_step_is_group(&schedule->steps[i])) {
            steps->order[steps->count++] = i;
        }
    }
    sort(schedule, steps->order, steps->count);
    *ret_steps = steps;
    return MUSTER_OK;
}

void muster_group_steps_destroy(struct muster_group_steps *steps)
{
    if (steps != NULL) {
        muster_range_list_finish(&steps->slices.source);
        muster_range_list_finish(&steps->slices.target);
        free(steps->order);
        free(steps->bounds);
        free(steps);
    }
}

void muster_group_steps_begin(struct muster_operation *operation)
{
    struct muster_group_steps *steps = operation->steps;
    operation->failed_in_group = false;
    if (steps != NULL) {
        steps->next = 0;
        steps->begun = false;
        steps->failed = false;
        steps->suspect = UINT32_MAX;
    }
}

size_t muster_group_steps_in_round(const struct muster_lane_state *lane)
{
    size_t count = 0;
    for (size_t i = lane->start; lane->operation->steps != NULL && i < lane->next; i++) {
        count += muster_step_is_group(&lane->operation->schedule.steps[i]) ? 1 : 0;
    }
    return count;
}

/* One step as a launch of its group ------------------------------------------------------------ */

static enum muster_collective collective_of(const struct muster_step *step)
{
    switch (step->kind) {
    case MUSTER_STEP_GROUP_ALLREDUCE:
        return MUSTER_ALLREDUCE;
    case MUSTER_STEP_GROUP_REDUCE_SCATTER:
        return MUSTER_REDUCE_SCATTER;
    case MUSTER_STEP_GROUP_ALLGATHER:
        return MUSTER_ALLGATHERV;
    case MUSTER_STEP_GROUP_REDUCE:
        return MUSTER_REDUCE;
    case MUSTER_STEP_GROUP_BROADCAST:
        return MUSTER_BROADCAST;
    default:
        return MUSTER_BARRIER;
    }
}

/* The shape of the step's own collective, among the members of its group. */
static struct muster_shape shape_of(struct muster_operation *operation,
                                    const struct muster_step *step)
{
    const struct muster_schedule *schedule = &operation->schedule;
    const struct muster_step_group *group = &schedule->groups[step->scope];
    uint64_t *bounds = operation->steps->bounds;
    struct muster_shape shape = {.collective = collective_of(step),
                                 .ranks = group->count,
                                 .rank = muster_step_group_index(group, schedule->rank),
                                 .count = step->span.count};
    if (muster_step_has_root(step)) {
        shape.root = muster_step_group_index(group, step->peer);
    }
    bool scatters = step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER;
    if (scatters || step->kind == MUSTER_STEP_GROUP_ALLGATHER) {
        for (uint32_t i = 0; i < group->count; i++) {
            const struct muster_span share =
                muster_step_share(&operation->launch->shape, group, step, i);
            bounds[i] = share.offset;
            bounds[i + 1] = share.offset + share.count;
        }
        *(scatters ? &shape.input_bounds : &shape.output_bounds) = bounds;
    }
    return shape;
}

/* The ranges of a slice of a buffer. */
static muster_status slice(const struct muster_range_list *whole, uint64_t begin, uint64_t size,
                           struct muster_range_list *ret_slice)
{
    if (ret_slice->room < whole->count + 1) {
        muster_range_list_finish(ret_slice);
        ret_slice->runs = calloc(whole->count + 2, sizeof *ret_slice->runs);
        if (ret_slice->runs == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for %zu ranges", whole->count);
        }
        ret_slice->room = whole->count + 1;
    }
    ret_slice->count = 0;
    for (size_t i = 0; i < whole->count; i++) {
        uint64_t first = whole->runs[i].begin_bytes;
        uint64_t behind = whole->runs[i + 1].begin_bytes;
        if (behind > begin && first < begin + size) {
            uint64_t skipped = begin > first ? begin - first : 0;
            ret_slice->runs[ret_slice->count++] =
                (struct muster_range_run){.address = whole->runs[i].address + skipped,
                                          .begin_bytes = first + skipped - begin};
        }
    }
    ret_slice->runs[ret_slice->count] = (struct muster_range_run){.begin_bytes = size};
    return MUSTER_OK;
}

/* Where `size` bytes of a buffer are, from an element on: at an address, or in ranges. */
static muster_status find(const struct muster_operation *operation, uint8_t buffer, uint64_t offset,
                          uint64_t size, struct muster_range_list *room, char **ret_base,
                          const struct muster_range_list **ret_ranges)
{
    uint64_t begin = offset * operation->element_size_bytes;
    const struct muster_range_list *ranges = operation->ranges[buffer];
    *ret_ranges = NULL;
    if (ranges == NULL || size == 0) {
        char *base = operation->buffers[buffer];
        *ret_base = base == NULL || size == 0 ? base : base + begin;
        return MUSTER_OK;
    }
    TRY(slice(ranges, begin, size, room));
    *ret_base = room->runs[0].address;
    *ret_ranges = room->count > 1 ? room : NULL;
    return MUSTER_OK;
}

/* The device's group, and the number of the operation there. */
static void *group_of(const struct muster_operation *operation)
{
    return muster_uses_channels(operation) ? muster_channel_group(operation)
                                           : operation->group->state;
}

static uint64_t number_of(const struct muster_operation *operation)
{
    return muster_uses_channels(operation) ? muster_channel_number(operation)
                                           : operation->launch->sequence;
}

static muster_status prepare(struct muster_operation *operation)
{
    struct muster_group_steps *steps = operation->steps;
    const struct muster_step *step = &operation->schedule.steps[steps->order[steps->next]];
    const struct muster_launch *whole = operation->launch;
    const struct muster_step_ranges ranges =
        muster_step_ranges(&whole->shape, &operation->schedule, step);
    struct muster_launch *launch = &steps->launch;
    char *in = NULL;
    char *out = NULL;
    *launch = *whole;
    launch->shape = shape_of(operation, step);
    launch->sequence = MUSTER_PART_SEQUENCE(number_of(operation), steps->next);
    launch->call.flags &= (uint8_t)~MUSTER_CALL_FINISHES_TOGETHER;
    launch->call.flags |= step->together != 0 ? MUSTER_CALL_FINISHES_TOGETHER : 0;
    uint64_t in_bytes = ranges.source.count * operation->element_size_bytes;
    uint64_t out_bytes = ranges.target.count * operation->element_size_bytes;
    launch->sizes = (struct muster_buffer_sizes){.in_count = ranges.source.count,
                                                 .out_count = ranges.target.count,
                                                 .in_bytes = in_bytes,
                                                 .out_bytes = out_bytes};
    TRY(find(operation, step->source, ranges.source.offset, ranges.reads ? in_bytes : 0,
             &steps->slices.source, &in, &launch->in_ranges));
    TRY(find(operation, step->target, ranges.target.offset, ranges.writes ? out_bytes : 0,
             &steps->slices.target, &out, &launch->out_ranges));
    launch->in = in;
    launch->out = out;
    return MUSTER_OK;
}

/* Performing ----------------------------------------------------------------------------------- */

struct blocked {
    struct muster_operation *operation;
    struct muster_wait_clock clock;
};

/* From time to time, while the rank blocks in the group: messages move, and some may say that the
 * operation has failed. */
static muster_status check_messages(void *user, uint32_t *ret_suspect)
{
    struct blocked *blocked = user;
    struct muster_operation *operation = blocked->operation;
    const struct muster_launch *launch = operation->launch;
    const struct muster_message_key key = {
        .generation = launch->generation, .sequence = launch->sequence, .context = launch->context};
    const bool never = false;
    muster_status status = muster_fabric_wait_in(operation->fabric, &key, &blocked->clock, &never,
                                                 muster_clock_ns() + POLL_NS);
    if (atomic_load(&operation->failed)) {
        return muster_error_set(operation->failure, "%s", operation->reason);
    }
    return status == MUSTER_RETRY
               ? muster_operation_group_check(operation->group, launch, ret_suspect)
               : status;
}

static struct muster_group_launch step_of(struct muster_operation *operation,
                                          struct blocked *blocked)
{
    const struct muster_group_steps *steps = operation->steps;
    return (struct muster_group_launch){.launch = &steps->launch,
                                        .method = operation->methods[steps->order[steps->next]],
                                        .buffers = operation->group->buffers,
                                        .part = true,
                                        .check = check_messages,
                                        .user = blocked};
}

static muster_status end(struct muster_operation *operation, muster_status status)
{
    struct muster_group_steps *steps = operation->steps;
    const struct muster_operation_group *group = operation->group;
    if (steps->begun) {
        steps->begun = false;
        status = group->device->groups->end(group_of(operation), status, &steps->suspect);
    }
    steps->failed = operation->failed_in_group = status != MUSTER_OK;
    steps->next += status == MUSTER_OK ? 1 : 0;
    if (steps->next == steps->count && muster_uses_channels(operation)) {
        muster_channel_leave(operation);
    }
    return status;
}

static muster_status block(struct muster_operation *operation)
{
    struct muster_group_steps *steps = operation->steps;
    const struct muster_operation_group *group = operation->group;
    struct blocked blocked = {.operation = operation};
    const struct muster_group_launch step = step_of(operation, &blocked);
    return end(operation, group->device->groups->run(group->state, &step, &steps->suspect));
}

/* MUSTER_RETRY: it is not done. */
static muster_status poll(struct muster_operation *operation)
{
    struct muster_group_steps *steps = operation->steps;
    const struct muster_operation_group *group = operation->group;
    int64_t now_ns = muster_clock_ns();
    bool in_flight = muster_uses_channels(operation);
    if (!steps->begun) {
        const struct muster_group_launch step = step_of(operation, NULL);
        group->device->groups->begin(group_of(operation), &step, false);
        steps->begun = true;
        steps->begun_ns = now_ns;
        steps->check_ns = now_ns + CHECK_NS;
    }
    muster_status status = group->device->groups->poll(
        group_of(operation), in_flight ? operation->spin_ns : SPIN_NS, &operation->advanced);
    if (status == MUSTER_RETRY && now_ns >= steps->check_ns) {
        steps->check_ns = now_ns + CHECK_NS;
        status = muster_operation_group_check(group, operation->launch, &steps->suspect);
        status = status == MUSTER_OK ? group->device->groups->check(group_of(operation)) : status;
        status = status == MUSTER_OK ? MUSTER_RETRY : status;
    }
    return status == MUSTER_RETRY ? MUSTER_RETRY : end(operation, status);
}

static muster_status refuse(const struct muster_operation *operation)
{
    const struct muster_group_steps *steps = operation->steps;
    return muster_error_set(
        MUSTER_INVALID, "%s: no device performs it here",
        muster_step_kind_name(operation->schedule.steps[steps->order[steps->next]].kind));
}

muster_status muster_group_steps_progress(struct muster_operation *operation,
                                          struct muster_lane_state **ret_lane)
{
    struct muster_group_steps *steps = operation->steps;
    *ret_lane = NULL;
    if (steps == NULL || steps->next == steps->count) {
        return MUSTER_OK;
    }
    size_t at = steps->order[steps->next];
    struct muster_lane_state *lane = &operation->lanes[operation->schedule.steps[at].lane];
    if (lane->groups == 0 || at < lane->start || at >= lane->next) {
        return MUSTER_OK;
    }
    if (operation->group == NULL || group_of(operation) == NULL || operation->methods == NULL) {
        return refuse(operation);
    }
    if (muster_uses_channels(operation) && !muster_channel_is_next(operation)) {
        return MUSTER_OK;
    }
    if (!steps->begun) {
        TRY(prepare(operation));
    }
    bool blocks = operation->schedule.lanes == 1 && !muster_uses_channels(operation);
    muster_status status = blocks ? block(operation) : poll(operation);
    if (status == MUSTER_RETRY && steps->begun) {
        return MUSTER_OK;
    }
    *ret_lane = status == MUSTER_OK ? lane : NULL;
    return status;
}

bool muster_group_steps_waits(const struct muster_operation *operation)
{
    return operation->steps != NULL && operation->steps->begun;
}

int64_t muster_group_steps_next_poll(const struct muster_operation *operation, int64_t deadline_ns)
{
    const struct muster_group_steps *steps = operation->steps;
    if (steps == NULL || !steps->begun) {
        return deadline_ns;
    }
    int64_t now_ns = muster_clock_ns();
    int64_t pause_ns = (now_ns - steps->begun_ns) / 8;
    pause_ns = pause_ns < POLL_NS ? POLL_NS : pause_ns > POLL_MAX_NS ? POLL_MAX_NS : pause_ns;
    return now_ns + pause_ns < deadline_ns ? now_ns + pause_ns : deadline_ns;
}

muster_status muster_group_steps_fail(struct muster_operation *operation, muster_status status,
                                      uint32_t *ret_suspect)
{
    struct muster_group_steps *steps = operation->steps;
    const struct muster_operation_group *group = operation->group;
    if (steps == NULL || group == NULL || group_of(operation) == NULL) {
        return status;
    }
    muster_status failure = atomic_load(&operation->failed) ? operation->failure : status;
    if (steps->begun) {
        failure = end(operation, failure);
    } else if (!steps->failed && failure != MUSTER_INVALID) {
        group->device->groups->withdraw(group_of(operation),
                                        MUSTER_PART_SEQUENCE(number_of(operation), steps->next));
    }
    *ret_suspect = steps->suspect;
    return failure;
}
