/* Executes group steps, when all members have come to them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/schedule/group_step.h"
#include "tests/support/interpreter_parts.h"

/* The group step that the rank performs next: of those that are not done, the first by round and
 * lane. SIZE_MAX: there is none, or the rank has not come to it. */
static size_t next_group_step(const struct test_run *run, const struct test_machine *machine)
{
    size_t next = SIZE_MAX;
    for (size_t i = 0; i < machine->schedule->step_count; i++) {
        const struct muster_step *step = &machine->schedule->steps[i];
        const struct muster_step *best = next == SIZE_MAX ? NULL : &machine->schedule->steps[next];
        if (muster_step_is_group(step) && !machine->done[i] &&
            (best == NULL || step->round < best->round ||
             (step->round == best->round && step->lane < best->lane))) {
            next = i;
        }
    }
    return next != SIZE_MAX && test_run_is_posted(run, machine, next) ? next : SIZE_MAX;
}

/* Where each member's share begins and ends: [m + 1] bounds, by blocks or by equal parts. */
static uint64_t share_at(const struct test_run *run, const struct muster_step *step, uint32_t first,
                         uint32_t count, uint32_t index)
{
    const struct muster_shape *shape = &run->shapes[first];
    const uint64_t *bounds =
        step->kind == MUSTER_STEP_GROUP_ALLGATHER ? shape->output_bounds : shape->input_bounds;
    if (step->blocks != 0 && bounds != NULL) {
        return bounds[first + index] - bounds[first];
    }
    uint64_t rest = step->span.count % count;
    return step->span.count / count * index + (index < rest ? index : rest);
}

/* The reduction of element i of all members: neighbours first, then pairs of pairs. */
static uint64_t reduce_element(const struct test_run *run, uint64_t *values, uint32_t count)
{
    for (uint32_t left = count; left > 1; left = (left + 1) / 2) {
        for (uint32_t i = 0; i < left / 2; i++) {
            test_run_reduce(run, &values[i], &values[(size_t)2 * i], &values[(size_t)2 * i + 1], 1);
        }
        if (left % 2 == 1) {
            values[left / 2] = values[left - 1];
        }
    }
    return values[0];
}

/* Fills `whole` with the n elements that the group step results in. False: the run is wrong. */
static bool join_group(const struct test_run *run, const struct muster_step_group *group,
                       const size_t *steps, uint64_t *whole, uint64_t *values)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct test_machine *machine = &run->machines[group->first + i * group->stride];
        const struct muster_step *step = &machine->schedule->steps[steps[i]];
        uint64_t begin = share_at(run, step, group->first, group->count, i);
        uint64_t end = share_at(run, step, group->first, group->count, i + 1);
        bool gathers = step->kind == MUSTER_STEP_GROUP_ALLGATHER;
        bool reads =
            step->kind != MUSTER_STEP_GROUP_BROADCAST || step->peer == machine->schedule->rank;
        uint64_t count = gathers ? end - begin : step->span.count;
        if (!reads || step->kind == MUSTER_STEP_GROUP_BARRIER) {
            continue;
        }
        const uint64_t *source =
            test_run_place(run, machine, step->source, step->span.offset, count);
        if (source == NULL) {
            return false;
        }
        for (uint64_t k = 0; k < count; k++) {
            if (gathers) {
                whole[begin + k] = source[k];
            } else if (step->kind == MUSTER_STEP_GROUP_BROADCAST) {
                whole[k] = source[k];
            } else {
                values[k * group->count + i] = source[k];
            }
        }
    }
    const struct muster_step *step = &run->machines[group->first].schedule->steps[steps[0]];
    bool reduces = step->kind != MUSTER_STEP_GROUP_ALLGATHER &&
                   step->kind != MUSTER_STEP_GROUP_BROADCAST &&
                   step->kind != MUSTER_STEP_GROUP_BARRIER;
    for (uint64_t k = 0; reduces && k < step->span.count; k++) {
        whole[k] = reduce_element(run, &values[k * group->count], group->count);
    }
    return true;
}

static void leave_group(const struct test_run *run, const struct muster_step_group *group,
                        uint32_t index, size_t at, const uint64_t *whole)
{
    const struct test_machine *machine = &run->machines[group->first + index * group->stride];
    const struct muster_step *step = &machine->schedule->steps[at];
    uint64_t begin = 0;
    uint64_t end = step->span.count;
    machine->done[at] = true;
    if (step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER) {
        begin = share_at(run, step, group->first, group->count, index);
        end = share_at(run, step, group->first, group->count, index + 1);
    }
    if (step->kind == MUSTER_STEP_GROUP_BARRIER ||
        (step->kind == MUSTER_STEP_GROUP_REDUCE && step->peer != machine->schedule->rank)) {
        return;
    }
    uint64_t *target = test_run_place(run, machine, step->target, step->at, end - begin);
    if (target != NULL) {
        memcpy(target, whole + begin, (end - begin) * sizeof *target);
    }
}

/* Performs the rank's group step if all members have come to it. */
bool test_run_group_step(const struct test_run *run, uint32_t rank, size_t index)
{
    const struct muster_step *own = &run->machines[rank].schedule->steps[index];
    const struct muster_step_group *group = &run->machines[rank].schedule->groups[own->scope % 3];
    if (group->count == 0 || own->scope >= MUSTER_STEP_SCOPES ||
        group->first + (uint64_t)(group->count - 1) * group->stride >= run->ranks) {
        test_run_wrong(run, "rank %" PRIu32 ": a group of other ranks", rank);
        return false;
    }
    size_t *steps = test_run_room(group->count);
    bool ready = next_group_step(run, &run->machines[rank]) == index;
    for (uint32_t i = 0; i < group->count && ready; i++) {
        uint32_t member = group->first + i * group->stride;
        const struct test_machine *machine = &run->machines[member];
        steps[i] = member == run->absent ? SIZE_MAX : next_group_step(run, machine);
        ready = steps[i] != SIZE_MAX;
        if (ready) {
            const struct muster_step *step = &machine->schedule->steps[steps[i]];
            const struct muster_step_group *other = &machine->schedule->groups[step->scope % 3];
            ready = other->first == group->first && other->count == group->count;
            if (ready && (step->kind != own->kind || step->span.count != own->span.count ||
                          step->blocks != own->blocks ||
                          (muster_step_has_root(step) && step->peer != own->peer))) {
                test_run_wrong(run, "rank %" PRIu32 ": another group step", rank);
                ready = false;
            }
        }
    }
    if (ready) {
        uint64_t *whole = test_run_room(own->span.count + 1);
        uint64_t *values = test_run_room((own->span.count + 1) * group->count);
        if (join_group(run, group, steps, whole, values)) {
            for (uint32_t i = 0; i < group->count; i++) {
                leave_group(run, group, i, steps[i], whole);
            }
        }
        free(whole);
        free(values);
    }
    free(steps);
    return ready && run->why[0] == '\0';
}
