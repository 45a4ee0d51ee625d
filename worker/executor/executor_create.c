/* Makes an operation from its schedule: the lanes, the numbers of the messages, the peers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/schedule/group_step.h"
#include "worker/executor/executor_moves.h"
#include "worker/executor/executor_packs.h"
#include "worker/executor/executor_parts.h"
#include "worker/executor/executor_steps.h"

/* Numbers the messages of each (lane, peer, direction). counts is [2 x ranks]; all are 0 before and
 * after. */
static void number_lane(struct muster_operation *operation, const struct muster_lane_state *lane,
                        uint32_t *counts)
{
    for (size_t i = lane->first; i < lane->end; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (!muster_step_is_local(step)) {
            size_t sends = step->kind == MUSTER_STEP_SEND;
            operation->messages[i].ordinal = counts[2 * (size_t)step->peer + sends]++;
        }
    }
    for (size_t i = lane->first; i < lane->end; i++) {
        const struct muster_step *step = &operation->schedule.steps[i];
        if (!muster_step_is_local(step)) {
            memset(&counts[2 * (size_t)step->peer], 0, 2 * sizeof *counts);
        }
    }
}

static void cut_lanes(struct muster_operation *operation, uint32_t *counts)
{
    const struct muster_schedule *schedule = &operation->schedule;
    size_t next = 0;
    for (uint32_t i = 0; i < schedule->lanes; i++) {
        struct muster_lane_state *lane = &operation->lanes[i];
        *lane = (struct muster_lane_state){.operation = operation, .first = next};
        while (next < schedule->step_count && schedule->steps[next].lane == i) {
            operation->messages[next].step = &schedule->steps[next];
            operation->messages[next].lane = lane;
            operation->messages[next].early = muster_schedule_receives_early(schedule, next);
            next++;
        }
        lane->end = next;
        number_lane(operation, lane, counts);
    }
    assert(next == schedule->step_count); /* the builder orders steps by lane */
}

static void add_peer(struct muster_operation *operation, uint32_t rank, uint32_t *seen)
{
    if (seen[rank] == 0 && rank != operation->schedule.rank) {
        seen[rank] = 1;
        operation->peers[operation->peer_count++] = operation->ranks[rank];
    }
}

/* The members of the groups of group steps among others, too: if the ranks disagree, those have to
 * be told, and may wait for messages by then. seen is [2 x ranks], all 0 before. */
static void list_peers(struct muster_operation *operation, uint32_t *seen)
{
    const struct muster_schedule *schedule = &operation->schedule;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (muster_step_is_message(step)) {
            assert(step->peer < schedule->ranks && step->peer != schedule->rank);
            add_peer(operation, step->peer, seen);
        } else if (muster_step_is_group(step) && !operation->in_group) {
            const struct muster_step_group *group = &schedule->groups[step->scope];
            for (uint32_t member = 0; member < group->count; member++) {
                add_peer(operation, muster_step_group_rank(group, member), seen);
            }
        }
    }
}

/* How many peers there are at most. */
static size_t most_peers(const struct muster_schedule *schedule)
{
    size_t most = schedule->step_count;
    bool counted[MUSTER_STEP_SCOPES] = {false};
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (muster_step_is_group(step) && !counted[step->scope]) {
            counted[step->scope] = true;
            most += schedule->groups[step->scope].count;
        }
    }
    return most < schedule->ranks ? most : schedule->ranks;
}

static bool is_one_group_step(const struct muster_schedule *schedule)
{
    return schedule->step_count == 1 && muster_step_is_group(&schedule->steps[0]) &&
           schedule->groups[schedule->steps[0].scope].count == schedule->ranks;
}

static size_t at_least_one(size_t count)
{
    return count == 0 ? 1 : count;
}

muster_status muster_operation_create(struct muster_fabric *fabric,
                                      struct muster_schedule *schedule, const uint32_t *ranks,
                                      struct muster_operation **ret_operation)
{
    struct muster_operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL) {
        muster_schedule_finish(schedule);
        return muster_error_set(MUSTER_FATAL, "no memory for an operation");
    }
    operation->schedule = *schedule;
    *schedule = (struct muster_schedule){.steps = NULL};
    schedule = &operation->schedule;
    uint32_t *counts = calloc(2 * (size_t)schedule->ranks, sizeof *counts);
    operation->fabric = fabric;
    operation->ranks = ranks;
    operation->messages = calloc(at_least_one(schedule->step_count), sizeof *operation->messages);
    operation->lanes = calloc(at_least_one(schedule->lanes), sizeof *operation->lanes);
    operation->peers = calloc(at_least_one(most_peers(schedule)), sizeof *operation->peers);
    if (counts == NULL || operation->messages == NULL || operation->lanes == NULL ||
        operation->peers == NULL) {
        size_t steps = schedule->step_count;
        free(counts);
        muster_operation_destroy(operation);
        return muster_error_set(MUSTER_FATAL, "no memory for an operation of %zu steps", steps);
    }
    operation->in_group = is_one_group_step(schedule);
    cut_lanes(operation, counts);
    list_peers(operation, counts);
    free(counts);
    muster_status status = muster_group_steps_create(schedule, &operation->steps);
    if (status != MUSTER_OK) {
        muster_operation_destroy(operation);
        return status;
    }
    *ret_operation = operation;
    return MUSTER_OK;
}

muster_status muster_operation_enable_packs(struct muster_operation *operation)
{
    return muster_pack_plan_create(&operation->schedule, &operation->packs);
}

void muster_operation_destroy(struct muster_operation *operation)
{
    if (operation == NULL) {
        return;
    }
    muster_schedule_finish(&operation->schedule);
    muster_pack_plan_destroy(operation->packs);
    muster_moves_destroy(operation);
    muster_group_steps_destroy(operation->steps);
    free(operation->methods);
    free(operation->messages);
    free(operation->lanes);
    free(operation->peers);
    free(operation);
}
