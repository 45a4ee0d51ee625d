/* Group steps of operations: what a rank that waits in a group does meanwhile, and how it ends. */
#include "worker/executor/executor_group.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/device/devices.h"

enum { FABRIC_POLL_NS = 20 * 1000 }; /* the time to progress the fabric in one check */

/* What a rank that waits in a group needs to poll the fabric. */
struct polling {
    const struct muster_operation_group *group;
    const struct muster_launch *launch;
};

muster_status muster_operation_group_check(const struct muster_operation_group *group,
                                           const struct muster_launch *launch,
                                           uint32_t *ret_suspect)
{
    char reason[MUSTER_REASON_SIZE];
    uint32_t lost;
    if (muster_fabric_lost_peer(group->fabric, launch->generation, &lost, reason)) {
        for (uint32_t i = 0; i < launch->shape.ranks; i++) {
            if (group->ranks[i] == lost) {
                *ret_suspect = lost;
                return muster_error_set(MUSTER_REJOIN, "%s", reason);
            }
        }
    }
    return MUSTER_OK;
}

/* Progresses the fabric, and checks whether it has lost a rank of the group. */
static muster_status poll_fabric(void *user, uint32_t *ret_suspect)
{
    const struct polling *polling = user;
    const struct muster_launch *launch = polling->launch;
    const bool never = false;
    muster_status status = muster_fabric_wait(polling->group->fabric, launch->generation, &never,
                                              muster_clock_ns() + FABRIC_POLL_NS);
    return status == MUSTER_RETRY
               ? muster_operation_group_check(polling->group, launch, ret_suspect)
               : status;
}

void muster_operation_group_abort(const struct muster_operation_group *group,
                                  const struct muster_launch *launch)
{
    char text[MUSTER_ERROR_MAX];
    (void)snprintf(text, sizeof text, "%s", muster_last_error());
    muster_launch_abort(group->fabric, launch, group->ranks, launch->shape.ranks, text);
}

muster_status muster_operation_group_run(const struct muster_operation_group *group,
                                         const struct muster_launch *launch, unsigned method,
                                         uint32_t *ret_suspect)
{
    struct polling polling = {.group = group, .launch = launch};
    const struct muster_group_launch step = {.launch = launch,
                                             .method = method,
                                             .buffers = group->buffers,
                                             .check = poll_fabric,
                                             .user = &polling};
    TRY(muster_fabric_check(group->fabric, launch->generation));
    muster_status status = group->device->groups->run(group->state, &step, ret_suspect);
    if (status == MUSTER_INVALID) {
        muster_operation_group_abort(group, launch);
    }
    return status;
}

muster_status muster_operation_group_announce(const struct muster_operation_group *group,
                                              const struct muster_launch *launch,
                                              uint32_t *ret_suspect)
{
    struct polling polling = {.group = group, .launch = launch};
    const struct muster_group_launch step = {
        .launch = launch, .buffers = group->buffers, .check = poll_fabric, .user = &polling};
    TRY(muster_fabric_check(group->fabric, launch->generation));
    return group->device->groups->announce(group->state, &step, ret_suspect);
}
