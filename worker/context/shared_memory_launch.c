#include "worker/context/shared_memory_launch.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/status.h"

enum { FABRIC_TURN_NS = 20 * 1000 }; /* for what has arrived meanwhile */

struct watched {
    const struct muster_binding *binding;
    const uint32_t *ranks;
    uint32_t size;
};

/* Lets the fabric do what is due, and hears from it who is lost. */
static muster_status look(void *user, uint32_t *ret_suspect)
{
    const struct watched *watched = user;
    const struct muster_binding *binding = watched->binding;
    const bool never = false;
    muster_status status = muster_fabric_wait(binding->fabric, binding->generation, &never,
                                              muster_clock_ns() + FABRIC_TURN_NS);
    if (status != MUSTER_RETRY) {
        return status;
    }
    char reason[MUSTER_REASON_SIZE];
    uint32_t lost;
    if (muster_fabric_lost_peer(binding->fabric, binding->generation, &lost, reason)) {
        for (uint32_t i = 0; i < watched->size; i++) {
            if (watched->ranks[i] == lost) {
                *ret_suspect = lost;
                return muster_error_set(MUSTER_REJOIN, "%s", reason);
            }
        }
    }
    return MUSTER_OK;
}

muster_status muster_context_memory_run(const struct muster_context_memory *shared,
                                        const struct muster_binding *binding,
                                        const struct muster_shape *shape, unsigned method,
                                        uint32_t *ret_suspect)
{
    struct watched watched = {.binding = binding, .ranks = shared->ranks, .size = shape->ranks};
    const struct muster_group_step work = {
        .sequence = binding->sequence,
        .call = &binding->call,
        .shape = shape,
        .reduction = binding->reduction,
        .method = method,
        .buffers = shared->reach.buffers,
        .in = binding->in,
        .out = binding->out,
        .deadline_ns = binding->deadline_ns,
        .check = look,
        .user = &watched,
    };
    TRY(muster_fabric_check(binding->fabric, binding->generation));
    if (method == 0) {
        return muster_group_memory_announce(shared->memory, &work, ret_suspect);
    }
    muster_status status = muster_group_memory_run(shared->memory, &work, ret_suspect);
    if (status == MUSTER_INVALID) {
        /* Those who do another collective, by messages, do not look into the memory any more. */
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        muster_binding_abort(binding, watched.ranks, watched.size, text);
    }
    return status;
}
