/* Runs an operation in the memory that the ranks of a context share. */
#include "worker/context/shared_memory_launch.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/status.h"

enum { FABRIC_POLL_NS = 20 * 1000 }; /* the time to progress the fabric in one check */

/* What a rank that waits in the memory needs to poll the fabric. */
struct polling {
    const struct muster_context_memory *shared;
    const struct muster_launch *launch;
};

/* Progresses the fabric, and checks whether it has lost a rank of the context. */
static muster_status poll_fabric(void *user, uint32_t *ret_suspect)
{
    const struct polling *polling = user;
    struct muster_fabric *fabric = polling->shared->fabric;
    const struct muster_launch *launch = polling->launch;
    const bool never = false;
    muster_status status =
        muster_fabric_wait(fabric, launch->generation, &never, muster_clock_ns() + FABRIC_POLL_NS);
    if (status != MUSTER_RETRY) {
        return status;
    }
    char reason[MUSTER_REASON_SIZE];
    uint32_t lost;
    if (muster_fabric_lost_peer(fabric, launch->generation, &lost, reason)) {
        for (uint32_t i = 0; i < launch->shape.ranks; i++) {
            if (polling->shared->ranks[i] == lost) {
                *ret_suspect = lost;
                return muster_error_set(MUSTER_REJOIN, "%s", reason);
            }
        }
    }
    return MUSTER_OK;
}

muster_status muster_context_memory_run(const struct muster_context_memory *shared,
                                        const struct muster_launch *launch, unsigned method,
                                        uint32_t *ret_suspect)
{
    struct polling polling = {.shared = shared, .launch = launch};
    const struct muster_group_step step = {.launch = launch,
                                           .method = method,
                                           .buffers = shared->reach.buffers,
                                           .check = poll_fabric,
                                           .user = &polling};
    TRY(muster_fabric_check(shared->fabric, launch->generation));
    if (method == 0) {
        return muster_group_memory_announce(shared->memory, &step, ret_suspect);
    }
    muster_status status = muster_group_memory_run(shared->memory, &step, ret_suspect);
    if (status == MUSTER_INVALID) {
        /* Ranks that run another collective by messages no longer poll the memory. */
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        muster_launch_abort(shared->fabric, launch, shared->ranks, launch->shape.ranks, text);
    }
    return status;
}
