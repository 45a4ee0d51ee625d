/*
 * The collectives in shared memory.
 *
 * Where others read this rank's own buffers, all wait at the end until all are through.
 *
 * Source: R. Graham, G. Shipman: MPI support for multi-core architectures: optimized shared memory
 * collectives (EuroPVM/MPI 2008), for slots and flags of each rank; T. Ma, G. Bosilca, A.
 * Bouteiller, J. Dongarra: Kernel assisted collective intra-node MPI communication among
 * multi-core and many-core CPUs (ICPP 2011), for reading straight from the others' buffers.
 */
#include "worker/device/host/group_memory_parts.h"

#include <string.h>

#include "collectives/select/host_memory.h"

static muster_status reduce_scatter(struct muster_group_memory_run *run,
                                    const struct muster_memory_exposure *exposure)
{
    TRY(muster_memory_expose(run, exposure));
    TRY(muster_memory_meet_all(run));
    TRY(muster_memory_reduce_here(
        run, exposure, muster_shape_input_block(run->work->shape, muster_memory_own_rank(run))));
    return exposure->in_buffers ? muster_memory_leave_buffers(run) : MUSTER_OK;
}

static muster_status reduce(struct muster_group_memory_run *run,
                            const struct muster_memory_exposure *exposure)
{
    bool root = run->work->shape->root == muster_memory_own_rank(run);
    TRY(muster_memory_expose(run, exposure));
    if (root || exposure->in_buffers) {
        TRY(muster_memory_meet_all(run));
    }
    if (root) {
        TRY(muster_memory_reduce_here(run, exposure,
                                      (struct muster_span){.count = run->work->shape->count}));
    }
    return exposure->in_buffers ? muster_memory_leave_buffers(run) : MUSTER_OK;
}

static muster_status broadcast(struct muster_group_memory_run *run,
                               const struct muster_memory_exposure *exposure)
{
    struct muster_memory_small_room room;
    struct muster_memory_inputs inputs;
    uint32_t root = run->work->shape->root;
    bool gives = root == muster_memory_own_rank(run);
    const struct muster_memory_exposure nothing = {.in_buffers = exposure->in_buffers};
    TRY(muster_memory_expose(run, gives ? exposure : &nothing));
    if (exposure->in_buffers) {
        TRY(muster_memory_meet_all(run));
    } else if (!gives) {
        TRY(muster_memory_meet(run, root));
    }
    if (!gives) {
        muster_memory_find_input(run, exposure, root, &room, &inputs);
        TRY(muster_memory_take(run, &inputs, root,
                               (struct muster_span){.count = run->work->shape->count},
                               run->work->out));
    }
    return exposure->in_buffers ? muster_memory_leave_buffers(run) : MUSTER_OK;
}

static muster_status allgather(struct muster_group_memory_run *run,
                               const struct muster_memory_exposure *exposure)
{
    const struct muster_shape *shape = run->work->shape;
    struct muster_memory_small_room room;
    struct muster_memory_inputs inputs;
    TRY(muster_memory_expose(run, exposure));
    if (exposure->in_buffers) { /* whose owners stay only if all calls agree */
        TRY(muster_memory_meet_all(run));
    }
    for (uint32_t i = 0; i < muster_memory_rank_count(run); i++) {
        uint32_t rank = i + 1 < muster_memory_rank_count(run) ? muster_memory_other(run, i)
                                                              : muster_memory_own_rank(run);
        const struct muster_span block = muster_shape_output_block(shape, rank);
        const struct muster_memory_exposure theirs = {.in_buffers = exposure->in_buffers,
                                                      .size_bytes =
                                                          block.count * run->element_size_bytes};
        if (rank != muster_memory_own_rank(run)) {
            TRY(muster_memory_meet(run, rank));
        }
        muster_memory_find_input(run, &theirs, rank, &room, &inputs);
        TRY(muster_memory_take(run, &inputs, rank, (struct muster_span){.count = block.count},
                               muster_memory_out_at(run, block.offset)));
    }
    run->memory->settled = run->work->sequence;
    return exposure->in_buffers ? muster_memory_leave_buffers(run) : MUSTER_OK;
}

static muster_status barrier(struct muster_group_memory_run *run,
                             const struct muster_memory_exposure *exposure)
{
    TRY(muster_memory_expose(run, exposure));
    return muster_memory_meet_all(run);
}

static muster_status carry_out(struct muster_group_memory_run *run)
{
    const struct muster_group_memory_work *work = run->work;
    const struct muster_memory_exposure exposure = {
        .in_buffers = work->method == MUSTER_MEMORY_BUFFERS,
        .size_bytes = muster_shape_input_count(work->shape) * run->element_size_bytes};
    switch (work->shape->collective) {
    case MUSTER_ALLREDUCE:
        return muster_memory_allreduce(run, &exposure);
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
        return muster_error_set(MUSTER_INVALID, "%s is not done in shared memory",
                                muster_collective_name(work->shape->collective));
    }
}

/* Ends an operation: who gives up says so before its buffers become the caller's again. */
static muster_status end(struct muster_group_memory_run *run, muster_status status,
                         uint32_t *ret_suspect)
{
    if (status == MUSTER_OK || status == MUSTER_INVALID) {
        return status;
    }
    struct muster_memory_seat *seat = muster_memory_seat_of(run, muster_memory_own_rank(run));
    atomic_store(&seat->withdrawn, run->work->sequence);
    atomic_thread_fence(memory_order_seq_cst);
    muster_memory_ring(seat);
    if (run->suspect != UINT32_MAX) {
        *ret_suspect = run->suspect;
    }
    return status;
}

/* What is changed in place has been read, and so is in the caches as far as they reach. */
static bool streams(const struct muster_group_memory *memory,
                    const struct muster_group_memory_work *work, size_t element_size_bytes)
{
    return work->in != work->out && muster_shape_output_count(work->shape) * element_size_bytes >=
                                        memory->options.stream_bytes;
}

muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                      const struct muster_group_memory_work *work,
                                      uint32_t *ret_suspect)
{
    size_t element_size_bytes = muster_type_size_bytes((muster_type)work->call->type);
    struct muster_group_memory_run run = {.memory = memory,
                                          .work = work,
                                          .element_size_bytes = element_size_bytes,
                                          .streams = streams(memory, work, element_size_bytes),
                                          .suspect = UINT32_MAX};
    return end(&run, carry_out(&run), ret_suspect);
}

muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                           const struct muster_group_memory_work *work,
                                           uint32_t *ret_suspect)
{
    struct muster_group_memory_run run = {.memory = memory, .work = work, .suspect = UINT32_MAX};
    muster_status status = muster_memory_settle(&run);
    if (status == MUSTER_OK) {
        muster_memory_say(&run, (const uint64_t[2]){0, 0});
    }
    return end(&run, status, ret_suspect);
}
