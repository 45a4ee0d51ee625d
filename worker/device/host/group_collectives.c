/*
 * The collectives in shared memory, except allreduce (group_allreduce.c).
 *
 * Each exposes this rank's input, waits for the announcements of the ranks it reads from, and reads
 * or reduces. If ranks read each other's own buffers, all wait at the end until all have read.
 *
 * Source: R. Graham, G. Shipman: MPI support for multi-core architectures: optimized shared memory
 * collectives (EuroPVM/MPI 2008), for memory and flags of each rank; T. Ma, G. Bosilca, A.
 * Bouteiller, J. Dongarra: Kernel assisted collective intra-node MPI communication among
 * multi-core and many-core CPUs (ICPP 2011), for reading straight from the others' buffers.
 */
#include "worker/device/host/group_parts.h"

#include <string.h>

#include "collectives/select/host_memory.h"

static muster_status reduce_scatter(struct muster_group_run *run,
                                    const struct muster_group_exposure *exposure)
{
    TRY(muster_group_expose(run, exposure));
    TRY(muster_group_wait_for_all_announcements(run));
    TRY(muster_group_reduce_to_output(
        run, exposure, muster_shape_input_block(&run->launch->shape, muster_group_own_rank(run))));
    return exposure->in_buffers ? muster_group_end_reads(run) : MUSTER_OK;
}

static muster_status reduce(struct muster_group_run *run,
                            const struct muster_group_exposure *exposure)
{
    bool root = run->launch->shape.root == muster_group_own_rank(run);
    TRY(muster_group_expose(run, exposure));
    if (root || exposure->in_buffers) {
        TRY(muster_group_wait_for_all_announcements(run));
    }
    if (root) {
        TRY(muster_group_reduce_to_output(run, exposure,
                                          (struct muster_span){.count = run->launch->shape.count}));
    }
    return exposure->in_buffers ? muster_group_end_reads(run) : MUSTER_OK;
}

static muster_status broadcast(struct muster_group_run *run,
                               const struct muster_group_exposure *exposure)
{
    struct muster_group_payloads payloads;
    struct muster_group_inputs inputs;
    uint32_t root = run->launch->shape.root;
    bool is_root = root == muster_group_own_rank(run);
    const struct muster_group_exposure nothing = {.in_buffers = exposure->in_buffers};
    TRY(muster_group_expose(run, is_root ? exposure : &nothing));
    if (exposure->in_buffers) {
        TRY(muster_group_wait_for_all_announcements(run));
    } else if (!is_root) {
        TRY(muster_group_wait_for_announcement(run, root));
    }
    if (!is_root) {
        TRY(muster_group_find_input(run, exposure, root, &payloads, &inputs));
        TRY(muster_group_read_input(run, &inputs, root,
                                    (struct muster_span){.count = run->launch->shape.count},
                                    muster_group_output_at(run, 0)));
    }
    return exposure->in_buffers ? muster_group_end_reads(run) : MUSTER_OK;
}

/* Reads the blocks of the peers, each as soon as its rank has announced, then its own. */
static muster_status allgather(struct muster_group_run *run,
                               const struct muster_group_exposure *exposure)
{
    const struct muster_shape *shape = &run->launch->shape;
    struct muster_group_payloads payloads;
    struct muster_group_inputs inputs;
    TRY(muster_group_expose(run, exposure));
    if (exposure->in_buffers) { /* their owners wait for the readers only if all calls agree */
        TRY(muster_group_wait_for_all_announcements(run));
    }
    for (uint32_t i = 0; i < muster_group_rank_count(run); i++) {
        uint32_t rank = i + 1 < muster_group_rank_count(run) ? muster_group_peer(run, i)
                                                             : muster_group_own_rank(run);
        const struct muster_span block = muster_shape_output_block(shape, rank);
        const struct muster_group_exposure theirs = {.in_buffers = exposure->in_buffers,
                                                     .size_bytes =
                                                         block.count * run->element_size_bytes};
        if (rank != muster_group_own_rank(run)) {
            TRY(muster_group_wait_for_announcement(run, rank));
        }
        TRY(muster_group_find_input(run, &theirs, rank, &payloads, &inputs));
        TRY(muster_group_read_input(run, &inputs, rank, (struct muster_span){.count = block.count},
                                    muster_group_output_at(run, block.offset)));
    }
    run->memory->all_announced = run->launch->sequence;
    return exposure->in_buffers ? muster_group_end_reads(run) : MUSTER_OK;
}

static muster_status barrier(struct muster_group_run *run,
                             const struct muster_group_exposure *exposure)
{
    TRY(muster_group_expose(run, exposure));
    return muster_group_wait_for_all_announcements(run);
}

/* Runs the collective of the step. The method says how this rank's input is exposed. */
static muster_status carry_out(struct muster_group_run *run)
{
    const struct muster_group_launch *step = run->step;
    const struct muster_group_exposure exposure = {.in_buffers =
                                                       step->method == MUSTER_MEMORY_BUFFERS,
                                                   .size_bytes = run->launch->sizes.in_bytes};
    switch (run->launch->shape.collective) {
    case MUSTER_ALLREDUCE:
        return muster_group_allreduce(run, &exposure);
    case MUSTER_REDUCE_SCATTER:
        return reduce_scatter(run, &exposure);
    case MUSTER_REDUCE:
        return reduce(run, &exposure);
    case MUSTER_BROADCAST:
        return broadcast(run, &exposure);
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return allgather(run, &exposure);
    case MUSTER_BARRIER:
        return barrier(run, &exposure);
    default:
        return muster_error_set(MUSTER_INVALID, "%s cannot run in shared memory",
                                muster_collective_name(run->launch->shape.collective));
    }
}

/* A rank that has sent, or that needed some ranks only, is done before the others have started. */
static muster_status finish_together(struct muster_group_run *run)
{
    TRY(carry_out(run));
    return (run->launch->call.flags & MUSTER_CALL_FINISHES_TOGETHER) != 0
               ? muster_group_wait_for_all_announcements(run)
               : MUSTER_OK;
}

/* Ends an operation. A rank that gives up publishes that before its buffers belong to the caller
 * again. */
static muster_status end(struct muster_group_run *run, muster_status status, uint32_t *ret_suspect)
{
    if (status == MUSTER_OK || status == MUSTER_INVALID) {
        return status;
    }
    struct muster_group_rank_slot *slot =
        muster_group_rank_slot_of(run, muster_group_own_rank(run));
    atomic_store(&slot->withdrawn, run->launch->sequence);
    atomic_thread_fence(memory_order_seq_cst);
    muster_group_wake_sleepers(slot);
    if (run->suspect != UINT32_MAX) {
        *ret_suspect = run->suspect;
    }
    return status;
}

/* An output in place has been read before it is written, so its lines are in the caches, as far as
 * they hold it. */
static bool streams(const struct muster_group_memory *memory, const struct muster_launch *launch)
{
    return launch->in != launch->out && launch->sizes.out_bytes >= memory->options.stream_bytes;
}

muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                      const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    const struct muster_launch *launch = step->launch;
    struct muster_group_run run = {.memory = memory,
                                   .step = step,
                                   .launch = launch,
                                   .element_size_bytes =
                                       muster_type_size_bytes((muster_type)launch->call.type),
                                   .streams = streams(memory, launch),
                                   .suspect = UINT32_MAX};
    return end(&run, finish_together(&run), ret_suspect);
}

muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                           const struct muster_group_launch *step,
                                           uint32_t *ret_suspect)
{
    struct muster_group_run run = {
        .memory = memory, .step = step, .launch = step->launch, .suspect = UINT32_MAX};
    muster_status status = muster_group_wait_for_reuse(&run);
    if (status == MUSTER_OK) {
        muster_group_announce(&run, (const uint64_t[2]){0, 0});
    }
    return end(&run, status, ret_suspect);
}
