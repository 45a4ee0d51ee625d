/* Opens groups of a device: one member invites the others, over links of the context. */
#include "worker/context/memory_setup.h"

#include <unistd.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"
#include "worker/device/devices.h"

/* Identifies the descriptor of this context among others on the link. */
static uint64_t tag_of(const struct muster_memory_setup *setup)
{
    return UINT64_C(0x636f6e7465787400) << 8 ^ setup->context->number;
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

/* *fd stays -1 where the link shares no memory. */
static muster_status receive_descriptor(const struct muster_memory_setup *setup, uint32_t first,
                                        int *fd)
{
    bool shares = false;
    TRY(muster_fabric_shares_memory(setup->context->fabric, setup->context->generation, first,
                                    setup->deadline_ns, &shares));
    return shares ? muster_fabric_receive_descriptor(setup->context->fabric,
                                                     setup->context->generation, first,
                                                     tag_of(setup), setup->deadline_ns, fd)
                  : MUSTER_OK;
}

/* Member 0 passes its descriptor to the others. */
static muster_status pass_descriptor(const struct muster_memory_setup *setup,
                                     const struct muster_group_options *options, int *fd)
{
    if (options->rank != 0) {
        return check_link(setup, options->names[0],
                          receive_descriptor(setup, options->names[0], fd));
    }
    for (uint32_t i = 1; i < options->ranks; i++) {
        uint32_t peer = options->names[i];
        TRY(check_link(setup, peer, send_descriptor(setup, peer, *fd)));
    }
    return MUSTER_OK;
}

/* A broadcast among the members, whose number in the context all of its ranks use, also those that
 * are alone. */
static muster_status pass_bytes(const struct muster_memory_setup *setup,
                                const struct muster_group_options *options,
                                struct muster_group_invitation *invitation)
{
    struct muster_context *context = setup->context;
    const struct muster_request request = {.collective = MUSTER_BROADCAST,
                                           .out = invitation->bytes,
                                           .count = sizeof invitation->bytes,
                                           .type = MUSTER_UINT8,
                                           .deadline_ns = setup->deadline_ns};
    struct muster_request_key key; /* it has no bounds */
    struct muster_launch launch;
    struct muster_topology topology;
    struct muster_schedule schedule;
    struct muster_operation *operation = NULL;
    size_t algorithm;
    uint64_t sequence = ++context->sequence;
    if (options->ranks == 1) {
        return MUSTER_OK;
    }
    TRY(muster_algorithm_find(MUSTER_BROADCAST, "binomial", &algorithm));
    TRY(muster_request_key(&request, options->ranks, &key));
    TRY(muster_request_check(&key, options->rank, options->ranks, &launch));
    TRY(muster_topology_init_even(options->ranks, 1, &topology));
    const struct muster_plan plan = {.collective = MUSTER_BROADCAST,
                                     .topology = &topology,
                                     .rank = options->rank,
                                     .count = request.count};
    muster_status status = muster_schedule_generate(algorithm, &plan, &schedule);
    muster_topology_finish(&topology);
    TRY(status);
    TRY(muster_operation_create(context->fabric, &schedule, options->names, &operation));
    launch.generation = context->generation;
    launch.context = context->number;
    launch.sequence = sequence;
    launch.deadline_ns = setup->deadline_ns;
    launch.call.algorithm = (uint32_t)algorithm;
    launch.in = request.out;
    launch.out = request.out;
    status = muster_operation_run(operation, &launch, setup->ret_suspect);
    muster_operation_destroy(operation);
    return status;
}

/* What the members need to join; the descriptor is the caller's, also after a failure. */
static muster_status pass(const struct muster_memory_setup *setup,
                          const struct muster_group_options *options,
                          struct muster_group_invitation *invitation)
{
    if (setup->device->groups->needs_descriptor) {
        return options->ranks > 1 ? pass_descriptor(setup, options, &invitation->fd) : MUSTER_OK;
    }
    (void)muster_turns_acquire(&setup->context->turns, MUSTER_NEVER);
    muster_status status = pass_bytes(setup, options, invitation);
    muster_turns_release(&setup->context->turns);
    return status;
}

/* False: it could not. The device has the descriptor. */
static bool open_here(const struct muster_memory_setup *setup,
                      const struct muster_group_options *options,
                      struct muster_group_invitation *invitation, uint32_t channels,
                      struct muster_context_memory *memory)
{
    const struct muster_group_ops *groups = setup->device->groups;
    const struct muster_group_invitation taken = *invitation;
    if (groups->needs_descriptor && taken.fd < 0) {
        return false;
    }
    invitation->fd = -1;
    memory->group.device = setup->device;
    bool here = groups->open(options, &taken, &memory->memory) == MUSTER_OK;
    for (uint32_t i = 0; here && i < channels; i++) {
        here = groups->open_channel(memory->memory, i + 1, &memory->channels[i]) == MUSTER_OK;
    }
    return here;
}

/* The highest prices of all ranks. */
static muster_status agree_on_prices(const struct muster_memory_setup *setup,
                                     struct muster_group_prices *prices)
{
    enum { FIGURES = 2 * MUSTER_COLLECTIVE_END };
    double mine[FIGURES];
    double most[FIGURES] = {0};
    for (unsigned i = 0; i < MUSTER_COLLECTIVE_END; i++) {
        mine[i] = prices->fixed_us[i];
        mine[MUSTER_COLLECTIVE_END + i] = -prices->GBps[i];
    }
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = mine,
                                           .out = most,
                                           .count = FIGURES,
                                           .type = MUSTER_FLOAT64,
                                           .op = MUSTER_MAX,
                                           .algorithm = "recursive_doubling",
                                           .deadline_ns = setup->deadline_ns};
    TRY(muster_context_run(setup->context, &request, setup->ret_suspect));
    for (unsigned i = 0; i < MUSTER_COLLECTIVE_END; i++) {
        prices->fixed_us[i] = most[i];
        prices->GBps[i] = -most[MUSTER_COLLECTIVE_END + i];
    }
    return MUSTER_OK;
}

static muster_status price(const struct muster_memory_setup *setup,
                           struct muster_context_memory *memory)
{
    const struct muster_group_ops *groups = setup->device->groups;
    groups->price(memory->memory, &memory->reach);
    TRY(muster_memory_setup_all(setup, memory->reach.buffers, &memory->reach.buffers));
    return groups->priced ? agree_on_prices(setup, &memory->reach.prices) : MUSTER_OK;
}

muster_status muster_memory_setup_open(const struct muster_memory_setup *setup,
                                       const struct muster_group_options *options,
                                       uint32_t channels, struct muster_context_memory *memory,
                                       bool *ret_all)
{
    const struct muster_group_ops *groups = setup->device->groups;
    struct muster_group_invitation invitation = {.fd = -1};
    bool alone = options->ranks == 1;
    bool invites = options->rank == 0 && !alone;
    bool invited = !invites || groups->invite(options, &invitation) == MUSTER_OK;
    muster_status status = muster_memory_setup_all(setup, invited, ret_all);
    if (status == MUSTER_OK && *ret_all) {
        status = pass(setup, options, &invitation);
        bool here = status == MUSTER_OK &&
                    (alone || open_here(setup, options, &invitation, channels, memory));
        status = status == MUSTER_OK ? muster_memory_setup_all(setup, here, ret_all) : status;
    }
    if (invitation.fd >= 0) {
        (void)close(invitation.fd);
    }
    if (status == MUSTER_OK && *ret_all) {
        status = price(setup, memory);
    }
    if (status != MUSTER_OK || !*ret_all) {
        muster_context_memory_finish(memory, true);
    }
    return status;
}
