/* Turns of operations in flight in the memory of a group. */
#include "worker/executor/executor_turns.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/device/devices.h"
#include "worker/executor/executor_channels.h"
#include "worker/executor/executor_group.h"
#include "worker/executor/executor_moves.h"
#include "worker/executor/executor_parts.h"
#include "worker/executor/executor_steps.h"

enum { CHECK_NS = 1000 * 1000 }; /* the time between two checks of liveness */

static bool takes_turns(const struct muster_operation *operation)
{
    return operation->group != NULL && operation->group->turns != NULL;
}

enum muster_turn muster_operation_turn(const struct muster_operation *operation, bool *ret_advanced)
{
    bool in_channel = muster_uses_channels(operation);
    *ret_advanced = (takes_turns(operation) || in_channel) && operation->advanced;
    if (in_channel && muster_group_steps_waits(operation)) {
        return MUSTER_TURN_TAKEN;
    }
    if (muster_moves_wait(operation)) {
        *ret_advanced = *ret_advanced || muster_moves_advance(operation);
        return MUSTER_TURN_TAKEN;
    }
    return takes_turns(operation) ? operation->turn : MUSTER_TURN_MESSAGES;
}

muster_status muster_operation_turn_start(struct muster_operation *operation,
                                          const struct muster_launch *launch, bool *awake)
{
    if (!takes_turns(operation)) {
        operation->launch = launch;
        operation->awake = awake;
        if (muster_uses_channels(operation)) {
            muster_channel_enter(operation);
        }
        return muster_operation_start(operation, launch, awake);
    }
    operation->launch = launch;
    operation->awake = awake;
    operation->turn = MUSTER_TURN_WAITS;
    operation->advanced = false;
    operation->turn_suspect = UINT32_MAX;
    if (operation->in_group && launch->moves != NULL) {
        muster_operation_prepare(operation, launch);
        return muster_moves_begin_in_group(operation);
    }
    return MUSTER_OK;
}

/* The operation has its turn. */
static muster_status take(struct muster_operation *operation)
{
    const struct muster_operation_group *group = operation->group;
    const struct muster_group_launch step = {
        .launch = operation->launch, .method = operation->method, .buffers = group->buffers};
    TRY(muster_fabric_check(group->fabric, operation->launch->generation));
    group->device->groups->begin(group->state, &step, !operation->in_group);
    operation->turn = MUSTER_TURN_TAKEN;
    group->turns->check_ns = muster_clock_ns() + CHECK_NS;
    return MUSTER_OK;
}

/* From time to time, while the operation waits. */
static muster_status check(struct muster_operation *operation)
{
    const struct muster_operation_group *group = operation->group;
    int64_t now_ns = muster_clock_ns();
    if (operation->advanced || now_ns < group->turns->check_ns) {
        return MUSTER_OK;
    }
    group->turns->check_ns = now_ns + CHECK_NS;
    TRY(muster_operation_group_check(group, operation->launch, &operation->turn_suspect));
    return group->device->groups->check(group->state);
}

/* The part of the operation in the memory is over. */
static muster_status pass_on(struct muster_operation *operation, muster_status status)
{
    const struct muster_operation_group *group = operation->group;
    operation->turn = MUSTER_TURN_OVER;
    group->turns->next = operation->launch->sequence + 1;
    return group->device->groups->end(group->state, status, &operation->turn_suspect);
}

/* Until the turn is over. */
static muster_status progress_in_turn(struct muster_operation *operation, int64_t spin_ns)
{
    const struct muster_operation_group *group = operation->group;
    const struct muster_group_turns *turns = group->turns;
    uint64_t sequence = operation->launch->sequence;
    operation->advanced = false;
    if (operation->turn == MUSTER_TURN_WAITS) {
        if (turns->ended_from != 0 && sequence >= turns->ended_from) {
            return muster_error_set(turns->status, "%s", turns->text);
        }
        bool fetched = true;
        if (operation->in_group) {
            TRY(muster_moves_fetch_in_group(operation, &fetched));
        }
        if (sequence != turns->next || !fetched) {
            return MUSTER_OK;
        }
        TRY(take(operation));
    }
    muster_status status = group->device->groups->poll(group->state, spin_ns, &operation->advanced);
    if (status == MUSTER_RETRY) {
        status = check(operation);
        return status == MUSTER_OK ? MUSTER_OK : pass_on(operation, status);
    }
    operation->advanced = true;
    return pass_on(operation, status);
}

muster_status muster_operation_turn_progress(struct muster_operation *operation, int64_t spin_ns,
                                             bool *ret_ended)
{
    if (!takes_turns(operation) || operation->turn == MUSTER_TURN_MESSAGES) {
        operation->advanced = false;
        operation->spin_ns = spin_ns;
        return muster_operation_progress(operation, ret_ended);
    }
    *ret_ended = true;
    if (operation->turn != MUSTER_TURN_OVER) {
        TRY(progress_in_turn(operation, spin_ns));
    }
    if (operation->turn == MUSTER_TURN_OVER && operation->in_group) {
        muster_moves_end_in_group(operation);
        TRY(muster_moves_progress(operation));
    }
    *ret_ended = operation->turn == MUSTER_TURN_OVER && muster_moves_are_complete(operation);
    if (operation->turn == MUSTER_TURN_OVER && !operation->in_group) {
        operation->turn = MUSTER_TURN_MESSAGES;
        TRY(muster_operation_start(operation, operation->launch, operation->awake));
        return muster_operation_progress(operation, ret_ended);
    }
    return MUSTER_OK;
}

/* The numbers of later operations may no longer be those of the other ranks. */
static void end_later(const struct muster_operation *operation, muster_status status)
{
    const struct muster_operation_group *group = operation->group;
    struct muster_group_turns *turns = group->turns;
    uint64_t sequence = operation->launch->sequence;
    if (turns->ended_from == 0) {
        turns->status = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
        (void)snprintf(turns->text, sizeof turns->text, "an operation before it failed: %.400s",
                       muster_last_error());
    }
    if (turns->ended_from == 0 || sequence < turns->ended_from) {
        turns->ended_from = sequence;
        group->device->groups->withdraw(group->state, sequence);
    }
}

/* The end of the operation's part in the memory. */
static muster_status end_turn(struct muster_operation *operation, muster_status status)
{
    const struct muster_operation_group *group = operation->group;
    if (operation->in_group && status != MUSTER_OK) {
        muster_moves_give_up(operation);
    }
    if (operation->turn == MUSTER_TURN_WAITS && status == MUSTER_RETRY) {
        return group->turns->next == operation->launch->sequence
                   ? muster_error_set(MUSTER_RETRY,
                                      "the deadline passed while it waited for its input")
                   : muster_error_set(MUSTER_RETRY,
                                      "the deadline passed while it waited for operation #%llu in "
                                      "flight, which comes before it",
                                      (unsigned long long)group->turns->next);
    }
    if (operation->turn == MUSTER_TURN_TAKEN) {
        return pass_on(operation, status);
    }
    if (status == MUSTER_INVALID) {
        muster_operation_group_abort(group, operation->launch);
    }
    return status;
}

static muster_status finish_in_channel(struct muster_operation *operation, muster_status status,
                                       uint32_t *ret_suspect)
{
    status = muster_operation_finish(operation, status, ret_suspect);
    if (status != MUSTER_OK && status != MUSTER_INVALID) {
        muster_channel_withdraw(operation);
    }
    muster_channel_leave(operation);
    return status;
}

muster_status muster_operation_turn_finish(struct muster_operation *operation, muster_status status,
                                           uint32_t *ret_suspect)
{
    if (muster_uses_channels(operation)) {
        return finish_in_channel(operation, status, ret_suspect);
    }
    if (!takes_turns(operation)) {
        return muster_operation_finish(operation, status, ret_suspect);
    }
    if (operation->turn == MUSTER_TURN_MESSAGES) {
        status = muster_operation_finish(operation, status, ret_suspect);
    } else {
        status = end_turn(operation, status);
        *ret_suspect = operation->turn_suspect;
    }
    if (status != MUSTER_OK && status != MUSTER_INVALID) {
        end_later(operation, status);
    }
    return status;
}
