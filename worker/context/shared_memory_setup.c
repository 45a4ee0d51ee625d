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

/* Identifies the descriptor of this context among others on the link. */
static uint64_t tag_of(const struct muster_memory_setup *setup)
{
    return UINT64_C(0x636f6e7465787400) << 8 ^ setup->context->number;
}

/* From rank 0 to all. */
static muster_status broadcast(const struct muster_memory_setup *setup, bool *value)
{
    uint8_t byte = *value;
    const struct muster_request request = {.collective = MUSTER_BROADCAST,
                                           .in = &byte,
                                           .out = &byte,
                                           .count = 1,
                                           .type = MUSTER_UINT8,
                                           .algorithm = "binomial",
                                           .deadline_ns = setup->deadline_ns};
    TRY(muster_context_run(setup->context, &request, setup->ret_suspect));
    *value = byte == 1;
    return MUSTER_OK;
}

muster_status muster_memory_setup_all(const struct muster_memory_setup *setup, bool here,
                                      bool *ret_everywhere)
{
    uint8_t mine = here;
    uint8_t all = 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &mine,
                                           .out = &all,
                                           .count = 1,
                                           .type = MUSTER_UINT8,
                                           .op = MUSTER_MIN,
                                           .algorithm = "recursive_doubling",
                                           .deadline_ns = setup->deadline_ns};
    TRY(muster_context_run(setup->context, &request, setup->ret_suspect));
    *ret_everywhere = all == 1;
    return MUSTER_OK;
}

/* The status of passing a descriptor to or from the peer: a peer that cannot be reached ends the
 * setup; one that shares no memory does not. */
static muster_status check_link(const struct muster_memory_setup *setup, uint32_t peer,
                                muster_status status)
{
    if (status == MUSTER_RETRY) {
        *setup->ret_suspect = peer;
        return muster_error_set(MUSTER_REJOIN, "the deadline passed while it waited for rank %u",
                                peer);
    }
    return status;
}

static muster_status send_descriptor(const struct muster_memory_setup *setup, uint32_t peer, int fd)
{
    bool shares = false;
    TRY(muster_fabric_shares_memory(setup->context->fabric, setup->context->generation, peer,
                                    setup->deadline_ns, &shares));
    return shares
               ? muster_fabric_send_descriptor(setup->context->fabric, setup->context->generation,
                                               peer, tag_of(setup), fd, setup->deadline_ns)
               : MUSTER_OK;
}

static muster_status receive_descriptor(const struct muster_memory_setup *setup,
                                        const struct muster_group_memory_options *options,
                                        struct muster_group_memory **memory)
{
    int fd;
    bool shares = false;
    uint32_t first = options->names[0];
    TRY(muster_fabric_shares_memory(setup->context->fabric, setup->context->generation, first,
                                    setup->deadline_ns, &shares));
    if (!shares) {
        return MUSTER_OK;
    }
    TRY(muster_fabric_receive_descriptor(setup->context->fabric, setup->context->generation, first,
                                         tag_of(setup), setup->deadline_ns, &fd));
    if (muster_group_memory_open(options, fd, memory) != MUSTER_OK) {
        *memory = NULL;
    }
    return MUSTER_OK;
}

muster_status muster_memory_setup_pass(const struct muster_memory_setup *setup,
                                       const struct muster_group_memory_options *options,
                                       struct muster_group_memory **memory)
{
    if (options->rank != 0) {
        return check_link(setup, options->names[0], receive_descriptor(setup, options, memory));
    }
    for (uint32_t i = 1; i < options->ranks; i++) {
        uint32_t peer = options->names[i];
        int fd = muster_group_memory_descriptor(*memory);
        TRY(check_link(setup, peer, send_descriptor(setup, peer, fd)));
    }
    return MUSTER_OK;
}

/* *memory stays NULL where it could not be created, or cannot be mapped. */
static muster_status open_memory(const struct muster_memory_setup *setup,
                                 const struct muster_group_memory_options *options,
                                 struct muster_group_memory **memory)
{
    bool created = options->rank == 0 && muster_group_memory_create(options, memory) == MUSTER_OK;
    TRY(broadcast(setup, &created));
    if (!created) {
        return MUSTER_OK;
    }
    return muster_memory_setup_pass(setup, options, memory);
}

static void destroy(struct muster_context_memory *shared)
{
    muster_group_memory_destroy(shared->second);
    muster_group_memory_destroy(shared->memory);
    *shared = (struct muster_context_memory){.memory = NULL};
}

/* The probe, which tries to read the other processes' memory, needs all ranks to have opened the
 * memory; so does the first operation in it. */
static muster_status open_on_all(const struct muster_memory_setup *setup,
                                 const struct muster_group_memory_options *options,
                                 struct muster_context_memory *shared)
{
    bool all = false;
    TRY(open_memory(setup, options, &shared->memory));
    bool here = shared->memory != NULL &&
                muster_group_memory_create_second(shared->memory, &shared->second) == MUSTER_OK;
    TRY(muster_memory_setup_all(setup, here, &all));
    if (!all) {
        destroy(shared);
        return MUSTER_OK;
    }
    bool reads = muster_group_memory_probe(shared->memory);
    muster_group_memory_begin(shared->memory, setup->context->sequence + 1);
    muster_group_memory_begin_second(shared->memory, shared->second);
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
        destroy(&shared);
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
