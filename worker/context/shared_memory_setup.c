/* Opens the group of a device that performs the collectives of a context: all ranks use it, or none
 * does. */
#include "worker/context/memory_setup.h"

#include "worker/base/cores.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

muster_status muster_context_open_group(struct muster_context *context,
                                        const struct muster_device *device, int64_t deadline_ns,
                                        uint32_t *ret_suspect)
{
    uint32_t unused = UINT32_MAX;
    uint32_t *suspect = ret_suspect != NULL ? ret_suspect : &unused;
    uint32_t ranks = context->topology.ranks;
    struct muster_context_memory shared = {.memory = NULL};
    bool all = false;
    const struct muster_group_options options = {.rank = context->rank,
                                                 .ranks = ranks,
                                                 .names = context->ranks,
                                                 .order = context->reduction_order,
                                                 .cores = muster_cores_usable(),
                                                 .stream_bytes = MUSTER_GROUP_STREAM_BYTES,
                                                 .deadline_ns = deadline_ns};
    const struct muster_memory_setup setup = {
        .context = context, .device = device, .deadline_ns = deadline_ns, .ret_suspect = suspect};
    *suspect = UINT32_MAX;
    if (context->order.callers != NULL) {
        return MUSTER_OK;
    }
    if (context->topology.hosts > 1) {
        return muster_context_share_host_memory(&setup);
    }
    if (ranks < 2 || ranks > device->groups->members_max) {
        return MUSTER_OK;
    }
    TRY(muster_memory_setup_open(&setup, &options, 1, &shared, &all));
    if (!all) {
        return MUSTER_OK;
    }
    device->groups->start(shared.memory, context->sequence, false);
    device->groups->start(shared.channels[0], 0, false);
    shared.group = (struct muster_operation_group){.device = device,
                                                   .state = shared.memory,
                                                   .buffers = shared.reach.buffers,
                                                   .fabric = context->fabric,
                                                   .ranks = context->ranks};
    muster_context_set_shared(context, &shared);
    return MUSTER_OK;
}

muster_status muster_context_share_memory(struct muster_context *context, int64_t deadline_ns,
                                          uint32_t *ret_suspect)
{
    return muster_context_open_group(context, muster_devices_host(), deadline_ns, ret_suspect);
}
