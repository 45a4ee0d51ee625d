/*
 * Sets up the memory that the ranks of each host share, in a context of several hosts: the first
 * rank of each host creates it and passes its descriptor to the others over their links. The ranks
 * agree by collectives of the context: all hosts use their memory, or none does.
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

/* As in shared_memory_setup.c: the probe and the first step need all ranks to have opened it. */
static muster_status open_on_all(const struct muster_memory_setup *setup,
                                 const struct muster_group_memory_options *options,
                                 struct muster_context_memory *host, bool *ret_all)
{
    TRY(muster_memory_setup_open(setup, options, &host->memory));
    bool here = options->ranks == 1 ||
                (host->memory != NULL &&
                 muster_memory_setup_parts(host, MUSTER_GROUP_FLIGHT_PARTS) == MUSTER_OK);
    TRY(muster_memory_setup_all(setup, here, ret_all));
    if (!*ret_all) {
        return MUSTER_OK;
    }
    bool reads = true;
    if (host->memory != NULL) {
        reads = muster_group_memory_probe(host->memory);
        muster_group_memory_begin_calls(host->memory, setup->context->sequence + 1);
    }
    for (uint32_t i = 0; i < MUSTER_GROUP_FLIGHT_PARTS && host->memory != NULL; i++) {
        muster_group_memory_begin_part_calls(host->memory, host->parts[i]);
    }
    TRY(muster_memory_setup_all(setup, reads, &reads));
    host->reach =
        (struct muster_memory_reach){.staging_bytes = MUSTER_GROUP_STAGING_BYTES, .buffers = reads};
    return MUSTER_OK;
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
    if (largest < 2 || largest > MUSTER_GROUP_RANKS_MAX) {
        return MUSTER_OK;
    }
    context->local_order = local_order(context, first, own.local_size);
    if (context->local_order == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for the order of %u ranks",
                                own.local_size);
    }
    const struct muster_group_memory_options options = {.rank = own.local_rank,
                                                        .ranks = own.local_size,
                                                        .names = context->ranks + first,
                                                        .order = context->local_order,
                                                        .cores = muster_cores_usable(),
                                                        .stream_bytes = MUSTER_GROUP_STREAM_BYTES};
    muster_status status = open_on_all(setup, &options, &host, &all);
    if (status != MUSTER_OK || !all) {
        muster_context_memory_finish(&host);
        return status;
    }
    host.group = (struct muster_operation_group){.device = muster_devices_host(),
                                                 .state = host.memory,
                                                 .buffers = host.reach.buffers,
                                                 .fabric = context->fabric,
                                                 .ranks = context->ranks};
    muster_context_set_host(context, &host);
    return MUSTER_OK;
}
