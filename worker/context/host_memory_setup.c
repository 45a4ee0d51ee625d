/* Opens the group of each host, in a context of several hosts: all hosts use theirs, or none does.
 */
#include "worker/context/memory_setup.h"

#include <stdlib.h>

#include "worker/base/cores.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

/* The order of reduction among the ranks of a host, by their local ranks. */
static uint32_t *local_order(const struct muster_context *context, uint32_t first, uint32_t size)
{
    uint32_t *order = calloc(size, sizeof *order);
    uint32_t filled = 0;
    for (uint32_t i = 0; order != NULL && i < context->topology.ranks; i++) {
        uint32_t rank = context->reduction_order[i];
        if (rank >= first && rank - first < size) {
            order[filled++] = rank - first;
        }
    }
    return order;
}

/* The group itself goes on with the number of the context's next call. */
static void start(const struct muster_memory_setup *setup, struct muster_context_memory *host)
{
    const struct muster_group_ops *groups = setup->device->groups;
    if (host->memory == NULL) {
        return;
    }
    groups->start(host->memory, setup->context->sequence, true);
    for (uint32_t i = 0; i < MUSTER_GROUP_CHANNELS; i++) {
        groups->start(host->channels[i], 0, true);
    }
}

muster_status muster_context_share_host_memory(const struct muster_memory_setup *setup)
{
    struct muster_context *context = setup->context;
    const struct muster_topology *topology = &context->topology;
    const struct muster_position own = muster_topology_locate(topology, context->rank);
    uint32_t first = topology->host_first[own.host];
    uint32_t largest = muster_topology_largest_host(topology);
    struct muster_context_memory host = {.memory = NULL};
    bool all = false;
    if (largest < 2 || largest > setup->device->groups->members_max) {
        return MUSTER_OK;
    }
    context->local_order = local_order(context, first, own.local_size);
    if (context->local_order == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the order of %u ranks",
                                own.local_size);
    }
    const struct muster_group_options options = {.rank = own.local_rank,
                                                 .ranks = own.local_size,
                                                 .names = context->ranks + first,
                                                 .order = context->local_order,
                                                 .cores = muster_cores_usable(),
                                                 .stream_bytes = MUSTER_GROUP_STREAM_BYTES,
                                                 .deadline_ns = setup->deadline_ns};
    TRY(muster_memory_setup_open(setup, &options, MUSTER_GROUP_CHANNELS, &host, &all));
    if (!all) {
        return MUSTER_OK;
    }
    start(setup, &host);
    host.group = (struct muster_operation_group){.device = setup->device,
                                                 .state = host.memory,
                                                 .buffers = host.reach.buffers,
                                                 .fabric = context->fabric,
                                                 .ranks = context->ranks};
    muster_context_set_host(context, &host);
    return MUSTER_OK;
}
