#include "worker/context_memory.h"

#include <stdio.h>

#include "worker/base/clock.h"
#include "worker/base/status.h"

enum { FABRIC_TURN_NS = 20 * 1000 }; /* for what has arrived meanwhile */

/* Coming together ----------------------------------------------------------------------------- */

/* Tells the descriptors of contexts apart from others. */
static uint64_t tag_of(const struct muster_context_meeting *meeting)
{
    return UINT64_C(0x636f6e7465787400) << 8 ^ meeting->number;
}

/* What rank 0 has to say. */
static muster_status tell_all(const struct muster_context_meeting *meeting, bool *said)
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

static muster_status do_all(const struct muster_context_meeting *meeting, bool here,
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
                                           .deadline_ns = meeting->deadline_ns};
    TRY(muster_context_run(meeting->context, &request, meeting->ret_suspect));
    *ret_everywhere = all == 1;
    return MUSTER_OK;
}

/* What keeps the two from each other ends the meeting; that they share no memory does not. */
static muster_status settle_link(const struct muster_context_meeting *meeting, uint32_t peer,
                                 muster_status status)
{
    if (status == MUSTER_RETRY) {
        *meeting->ret_suspect = peer;
        return muster_error_set(MUSTER_REJOIN, "the deadline passed while it waited for rank %u",
                                peer);
    }
    return status;
}

static muster_status hand_over(const struct muster_context_meeting *meeting, uint32_t peer, int fd)
{
    bool shares = false;
    TRY(muster_fabric_shares_memory(meeting->fabric, meeting->generation, peer,
                                    meeting->deadline_ns, &shares));
    return shares ? muster_fabric_give_descriptor(meeting->fabric, meeting->generation, peer,
                                                  tag_of(meeting), fd, meeting->deadline_ns)
                  : MUSTER_OK;
}

static muster_status take_over(const struct muster_context_meeting *meeting,
                               const struct muster_memory_options *options,
                               struct muster_memory **memory)
{
    int fd;
    bool shares = false;
    uint32_t first = options->names[0];
    TRY(muster_fabric_shares_memory(meeting->fabric, meeting->generation, first,
                                    meeting->deadline_ns, &shares));
    if (!shares) {
        return MUSTER_OK;
    }
    TRY(muster_fabric_take_descriptor(meeting->fabric, meeting->generation, first, tag_of(meeting),
                                      meeting->deadline_ns, &fd));
    if (muster_memory_open(options, fd, memory) != MUSTER_OK) {
        *memory = NULL;
    }
    return MUSTER_OK;
}

/* *memory stays NULL: it could not be made, or does not reach here. */
static muster_status go_there(const struct muster_context_meeting *meeting,
                              const struct muster_memory_options *options,
                              struct muster_memory **memory)
{
    bool made = options->rank == 0 && muster_memory_create(options, memory) == MUSTER_OK;
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
                        hand_over(meeting, peer, muster_memory_descriptor(*memory))));
    }
    return MUSTER_OK;
}

static muster_status settle_in(const struct muster_context_meeting *meeting,
                               const struct muster_memory_options *options,
                               struct muster_memory **memory, struct muster_memory_reach *ret_reach)
{
    bool all = false;
    TRY(go_there(meeting, options, memory));
    TRY(do_all(meeting, *memory != NULL, &all));
    if (!all) {
        muster_memory_destroy(*memory);
        *memory = NULL;
        return MUSTER_OK;
    }
    bool reads = muster_memory_probe(*memory);
    muster_memory_begin(*memory, muster_context_sequence(meeting->context) + 1);
    TRY(do_all(meeting, reads, &reads));
    *ret_reach =
        (struct muster_memory_reach){.slot_bytes = MUSTER_MEMORY_SLOT_BYTES, .buffers = reads};
    return MUSTER_OK;
}

muster_status muster_context_memory_meet(const struct muster_context_meeting *meeting,
                                         const struct muster_memory_options *options,
                                         struct muster_context_memory *ret_shared)
{
    struct muster_context_memory shared = {.ranks = options->names};
    muster_status status = settle_in(meeting, options, &shared.memory, &shared.reach);
    if (status != MUSTER_OK) {
        muster_memory_destroy(shared.memory);
        return status;
    }
    *ret_shared = shared;
    return MUSTER_OK;
}

/* Operations ---------------------------------------------------------------------------------- */

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
    const struct muster_memory_work work = {
        .sequence = binding->sequence,
        .call = &binding->call,
        .shape = shape,
        .reduction = binding->reduction,
        .method = method,
        .buffers = shared->reach.buffers,
        .in = binding->in,
        .out = binding->out,
        .deadline_ns = binding->deadline_ns,
        .look = look,
        .user = &watched,
    };
    TRY(muster_fabric_check(binding->fabric, binding->generation));
    if (method == 0) {
        return muster_memory_announce(shared->memory, &work, ret_suspect);
    }
    muster_status status = muster_memory_run(shared->memory, &work, ret_suspect);
    if (status == MUSTER_INVALID) {
        /* Those who do another collective, by messages, do not look into the memory any more. */
        char text[MUSTER_ERROR_MAX];
        (void)snprintf(text, sizeof text, "%s", muster_last_error());
        muster_binding_abort(binding, watched.ranks, watched.size, text);
    }
    return status;
}
