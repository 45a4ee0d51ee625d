/*
 * The stages of the collectives in shared memory, except allreduce (group_allreduce.c).
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

#include "collectives/select/host_memory.h"

static bool is_root(const struct muster_group_run *run)
{
    return run->launch->shape.root == muster_group_own_rank(run);
}

static muster_status reduce_own_block(struct muster_group_run *run)
{
    return muster_group_reduce_to_output(
        run, muster_shape_input_block(&run->launch->shape, muster_group_own_rank(run)));
}

static const muster_group_stage reduce_scatter[] = {
    muster_group_stage_expose,    muster_group_stage_meet,           reduce_own_block,
    muster_group_stage_end_reads, muster_group_stage_wait_for_reads, NULL};

/* Others wait only for the root to have read their buffers. */
static muster_status meet_to_reduce(struct muster_group_run *run)
{
    return is_root(run) || run->exposure.in_buffers ? muster_group_wait_for_all_announcements(run)
                                                    : MUSTER_OK;
}

static muster_status reduce_at_root(struct muster_group_run *run)
{
    return is_root(run) ? muster_group_reduce_to_output(
                              run, (struct muster_span){.count = run->launch->shape.count})
                        : MUSTER_OK;
}

static const muster_group_stage reduce[] = {muster_group_stage_expose,
                                            meet_to_reduce,
                                            reduce_at_root,
                                            muster_group_stage_end_reads,
                                            muster_group_stage_wait_for_reads,
                                            muster_group_stage_finish_together,
                                            NULL};

static muster_status expose_root(struct muster_group_run *run)
{
    const struct muster_group_exposure nothing = {.in_buffers = run->exposure.in_buffers};
    return muster_group_expose(run, is_root(run) ? &run->exposure : &nothing);
}

static muster_status meet_to_broadcast(struct muster_group_run *run)
{
    if (run->exposure.in_buffers) {
        return muster_group_wait_for_all_announcements(run);
    }
    return is_root(run) ? MUSTER_OK
                        : muster_group_wait_for_announcement(run, run->launch->shape.root);
}

/* The root, too, unless its data are there already. */
static muster_status read_root(struct muster_group_run *run)
{
    struct muster_group_payloads payloads;
    struct muster_group_inputs inputs;
    uint32_t root = run->launch->shape.root;
    if (is_root(run) && run->launch->in == run->launch->out) {
        return MUSTER_OK;
    }
    TRY(muster_group_find_input(run, &run->exposure, root, &payloads, &inputs));
    return muster_group_read_input(run, &inputs, root,
                                   (struct muster_span){.count = run->launch->shape.count},
                                   muster_group_output_at(run, 0));
}

static const muster_group_stage broadcast[] = {expose_root,
                                               meet_to_broadcast,
                                               read_root,
                                               muster_group_stage_end_reads,
                                               muster_group_stage_wait_for_reads,
                                               muster_group_stage_finish_together,
                                               NULL};

/* The owners of buffers wait for the readers only if all calls agree. */
static muster_status meet_to_gather(struct muster_group_run *run)
{
    return run->exposure.in_buffers ? muster_group_wait_for_all_announcements(run) : MUSTER_OK;
}

static muster_status read_block(struct muster_group_run *run, uint32_t rank)
{
    struct muster_group_payloads payloads;
    struct muster_group_inputs inputs;
    const struct muster_span block = muster_shape_output_block(&run->launch->shape, rank);
    const struct muster_group_exposure theirs = {.in_buffers = run->exposure.in_buffers,
                                                 .size_bytes =
                                                     block.count * run->element_size_bytes};
    TRY(muster_group_find_input(run, &theirs, rank, &payloads, &inputs));
    return muster_group_read_input(run, &inputs, rank, (struct muster_span){.count = block.count},
                                   muster_group_output_at(run, block.offset));
}

/* The blocks of the peers, each as soon as its rank has announced, then this rank's own. */
static muster_status read_blocks(struct muster_group_run *run)
{
    for (; run->peer + 1 < muster_group_rank_count(run); run->peer++) {
        uint32_t rank = muster_group_peer(run, run->peer);
        TRY(muster_group_wait_for_announcement(run, rank));
        TRY(read_block(run, rank));
    }
    run->memory->all_announced = run->launch->sequence;
    return read_block(run, muster_group_own_rank(run));
}

static const muster_group_stage allgather[] = {muster_group_stage_expose,
                                               meet_to_gather,
                                               read_blocks,
                                               muster_group_stage_end_reads,
                                               muster_group_stage_wait_for_reads,
                                               NULL};

static const muster_group_stage barrier[] = {muster_group_stage_expose, muster_group_stage_meet,
                                             NULL};

static muster_status refuse(struct muster_group_run *run)
{
    return muster_error_set(MUSTER_INVALID, "%s cannot run in shared memory",
                            muster_collective_name(run->launch->shape.collective));
}

static const muster_group_stage refused[] = {refuse, NULL};

static const muster_group_stage *stages_at_once(const struct muster_group_run *run)
{
    switch (run->launch->shape.collective) {
    case MUSTER_REDUCE_SCATTER:
        return reduce_scatter;
    case MUSTER_REDUCE:
        return reduce;
    case MUSTER_BROADCAST:
        return broadcast;
    case MUSTER_ALLGATHER:
    case MUSTER_ALLGATHERV:
        return allgather;
    case MUSTER_BARRIER:
        return barrier;
    default:
        return refused;
    }
}

const muster_group_stage *muster_group_stages_of(const struct muster_group_run *run)
{
    enum muster_collective collective = run->launch->shape.collective;
    if (collective == MUSTER_ALLREDUCE) {
        return muster_group_allreduce_stages(run);
    }
    return run->step->method == MUSTER_MEMORY_SHARES && collective != MUSTER_BARRIER
               ? muster_group_stages_in_windows
               : stages_at_once(run);
}
