/* Memory that ranks share: made by one of them, and passed to the others over their links. */
#include "worker/context/memory_setup.h"

#include "worker/base/status.h"
#include "worker/context/context_parts.h"

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

/* Member 0, which has the memory, passes its descriptor to the others, who open it. *memory stays
 * NULL where it cannot be mapped, or the link shares no memory. */
static muster_status pass(const struct muster_memory_setup *setup,
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

muster_status muster_memory_setup_open(const struct muster_memory_setup *setup,
                                       const struct muster_group_memory_options *options,
                                       struct muster_group_memory **ret_memory)
{
    bool alone = options->ranks == 1;
    bool created = options->rank == 0 && !alone &&
                   muster_group_memory_create(options, ret_memory) == MUSTER_OK;
    bool all = false;
    TRY(muster_memory_setup_all(setup, created || options->rank > 0 || alone, &all));
    return all && !alone ? pass(setup, options, ret_memory) : MUSTER_OK;
}

muster_status muster_memory_setup_parts(struct muster_context_memory *memory, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        TRY(muster_group_memory_create_part(memory->memory, i + 1, &memory->parts[i]));
    }
    return MUSTER_OK;
}

void muster_context_memory_finish(struct muster_context_memory *memory)
{
    for (uint32_t i = 0; i < MUSTER_GROUP_FLIGHT_PARTS; i++) {
        muster_group_memory_destroy(memory->parts[i]);
    }
    muster_group_memory_destroy(memory->memory);
    *memory = (struct muster_context_memory){.memory = NULL};
}
