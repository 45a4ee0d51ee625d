/*
 * Sets up the memory that the ranks of a context share: rank 0 creates it and passes its descriptor
 * to the others over their links. The ranks agree by collectives of the context itself: all of them
 * use the memory, or none does.
 */
#include "worker/context/memory_setup.h"

#include "worker/base/cores.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

/* The probe, which tries to read the other processes' memory, needs all ranks to have opened the
 * memory; so does the first operation in it. */
static muster_status open_on_all(const struct muster_memory_setup *setup,
                                 const struct muster_group_memory_options *options,
                                 struct muster_context_memory *shared)
{
    bool all = false;
    TRY(muster_memory_setup_open(setup, options, &shared->memory));
    bool here = shared->memory != NULL && muster_memory_setup_parts(shared, 1) == MUSTER_OK;
    TRY(muster_memory_setup_all(setup, here, &all));
    if (!all) {
        muster_context_memory_finish(shared);
        return MUSTER_OK;
    }
    bool reads = muster_group_memory_probe(shared->memory);
    muster_group_memory_begin(shared->memory, setup->context->sequence + 1);
    muster_group_memory_begin_part(shared->memory, shared->parts[0]);
    TRY(muster_memory_setup_all(setup, reads, &reads));
    shared->reach =
        (struct muster_memory_reach){.staging_bytes = MUSTER_GROUP_STAGING_BYTES, .buffers = reads};
    return MUSTER_OK;
}

muster_status muster_context_share_memory(struct muster_context *context, int64_t deadline_ns,
                                          uint32_t *ret_suspect)
{
    uint32_t unused = UINT32_MAX;
    uint32_t *suspect = ret_suspect != NULL ? ret_suspect : &unused;
    uint32_t ranks = context->topology.ranks;
    struct muster_context_memory shared = {.memory = NULL};
    const struct muster_group_memory_options options = {.rank = context->rank,
                                                        .ranks = ranks,
                                                        .names = context->ranks,
                                                        .order = context->reduction_order,
                                                        .cores = muster_cores_usable(),
                                                        .stream_bytes = MUSTER_GROUP_STREAM_BYTES};
    const struct muster_memory_setup setup = {
        .context = context, .deadline_ns = deadline_ns, .ret_suspect = suspect};
    *suspect = UINT32_MAX;
    if (context->order.callers != NULL) {
        return MUSTER_OK;
    }
    if (context->topology.hosts > 1) {
        return muster_context_share_host_memory(&setup);
    }
    if (ranks < 2 || ranks > MUSTER_GROUP_RANKS_MAX) {
        return MUSTER_OK;
    }
    muster_status status = open_on_all(&setup, &options, &shared);
    if (status != MUSTER_OK) {
        muster_context_memory_finish(&shared);
        return status;
    }
    shared.group = (struct muster_operation_group){.device = muster_devices_host(),
                                                   .state = shared.memory,
                                                   .buffers = shared.reach.buffers,
                                                   .fabric = context->fabric,
                                                   .ranks = context->ranks};
    muster_context_set_shared(context, &shared);
    return MUSTER_OK;
}
