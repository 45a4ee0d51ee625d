/*
 * How the members of a context come to memory that they share: rank 0 makes it and hands it to the
 * others over their links. By collectives of the context itself, so above them.
 */
#include "worker/base/cores.h"
#include "worker/base/status.h"
#include "worker/context/context_parts.h"

struct meeting {
    struct muster_context *context;
    int64_t deadline_ns;
    uint32_t *ret_suspect;
};

/* Tells the descriptors of contexts apart from others. */
static uint64_t tag_of(const struct meeting *meeting)
{
    return UINT64_C(0x636f6e7465787400) << 8 ^ meeting->context->number;
}

/* What rank 0 has to say. */
static muster_status tell_all(const struct meeting *meeting, bool *said)
{
    uint8_t word = *said;
    const struct muster_request request = {.collective = MUSTER_BROADCAST,
                                           .in = &word,
                                           .out = &word,
                                           .count = 1,
                                           .type = MUSTER_UINT8,
                                           .algorithm = "binomial",
                                           .deadline_ns = meeting->deadline_ns};
    TRY(muster_context_run(meeting->context, &request, meeting->ret_suspect));
    *said = word == 1;
    return MUSTER_OK;
}

static muster_status do_all(const struct meeting *meeting, bool here, bool *ret_everywhere)
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
                                           .deadline_ns = meeting->deadline_ns};
    TRY(muster_context_run(meeting->context, &request, meeting->ret_suspect));
    *ret_everywhere = all == 1;
    return MUSTER_OK;
}

/* What keeps the two from each other ends the meeting; that they share no memory does not. */
static muster_status settle_link(const struct meeting *meeting, uint32_t peer, muster_status status)
{
    if (status == MUSTER_RETRY) {
        *meeting->ret_suspect = peer;
        return muster_error_set(MUSTER_REJOIN, "the deadline passed while it waited for rank %u",
                                peer);
    }
    return status;
}

static muster_status hand_over(const struct meeting *meeting, uint32_t peer, int fd)
{
    bool shares = false;
    TRY(muster_fabric_shares_memory(meeting->context->fabric, meeting->context->generation, peer,
                                    meeting->deadline_ns, &shares));
    return shares ? muster_fabric_give_descriptor(meeting->context->fabric,
                                                  meeting->context->generation, peer,
                                                  tag_of(meeting), fd, meeting->deadline_ns)
                  : MUSTER_OK;
}

static muster_status take_over(const struct meeting *meeting,
                               const struct muster_group_memory_options *options,
                               struct muster_group_memory **memory)
{
    int fd;
    bool shares = false;
    uint32_t first = options->names[0];
    TRY(muster_fabric_shares_memory(meeting->context->fabric, meeting->context->generation, first,
                                    meeting->deadline_ns, &shares));
    if (!shares) {
        return MUSTER_OK;
    }
    TRY(muster_fabric_take_descriptor(meeting->context->fabric, meeting->context->generation, first,
                                      tag_of(meeting), meeting->deadline_ns, &fd));
    if (muster_group_memory_open(options, fd, memory) != MUSTER_OK) {
        *memory = NULL;
    }
    return MUSTER_OK;
}

/* *memory stays NULL: it could not be made, or does not reach here. */
static muster_status go_there(const struct meeting *meeting,
                              const struct muster_group_memory_options *options,
                              struct muster_group_memory **memory)
{
    bool made = options->rank == 0 && muster_group_memory_create(options, memory) == MUSTER_OK;
    TRY(tell_all(meeting, &made));
    if (!made) {
        return MUSTER_OK;
    }
    if (options->rank != 0) {
        return settle_link(meeting, options->names[0], take_over(meeting, options, memory));
    }
    for (uint32_t i = 1; i < options->ranks; i++) {
        uint32_t peer = options->names[i];
        TRY(settle_link(meeting, peer,
                        hand_over(meeting, peer, muster_group_memory_descriptor(*memory))));
    }
    return MUSTER_OK;
}

static muster_status settle_in(const struct meeting *meeting,
                               const struct muster_group_memory_options *options,
                               struct muster_group_memory **memory,
                               struct muster_memory_reach *ret_reach)
{
    bool all = false;
    TRY(go_there(meeting, options, memory));
    TRY(do_all(meeting, *memory != NULL, &all));
    if (!all) {
        muster_group_memory_destroy(*memory);
        *memory = NULL;
        return MUSTER_OK;
    }
    bool reads = muster_group_memory_probe(*memory);
    muster_group_memory_begin(*memory, meeting->context->sequence + 1);
    TRY(do_all(meeting, reads, &reads));
    *ret_reach =
        (struct muster_memory_reach){.slot_bytes = MUSTER_GROUP_STAGING_BYTES, .buffers = reads};
    return MUSTER_OK;
}

/* All get it, or none: then ret_shared->memory is NULL. */
static muster_status meet(const struct meeting *meeting,
                          const struct muster_group_memory_options *options,
                          struct muster_context_memory *ret_shared)
{
    struct muster_context_memory shared = {.ranks = options->names};
    muster_status status = settle_in(meeting, options, &shared.memory, &shared.reach);
    if (status != MUSTER_OK) {
        muster_group_memory_destroy(shared.memory);
        return status;
    }
    *ret_shared = shared;
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
                                                        .order = context->contributors,
                                                        .cores = muster_cores_usable(),
                                                        .stream_bytes = MUSTER_GROUP_STREAM_BYTES};
    const struct meeting meeting = {
        .context = context, .deadline_ns = deadline_ns, .ret_suspect = suspect};
    *suspect = UINT32_MAX;
    if (context->topology.hosts != 1 || ranks < 2 || ranks > MUSTER_GROUP_RANKS_MAX) {
        return MUSTER_OK;
    }
    TRY(meet(&meeting, &options, &shared));
    muster_context_set_shared(context, &shared);
    return MUSTER_OK;
}
