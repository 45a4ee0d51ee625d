/* Runs an operation of a group: from its first stage to its last one, and its end after a failure.
 */
#include "worker/device/host/group_parts.h"

#include "collectives/select/host_memory.h"

/* An output in place has been read before it is written, so its lines are in the caches, as far as
 * they hold it. */
static bool streams(const struct muster_group_memory *memory, const struct muster_launch *launch)
{
    return launch->in != launch->out && launch->sizes.out_bytes >= memory->options.stream_bytes;
}

/* The method says how this rank's input is exposed. */
static void begin(struct muster_group_memory *memory, const struct muster_group_launch *step,
                  struct muster_group_run *run)
{
    const struct muster_launch *launch = step->launch;
    *run = (struct muster_group_run){
        .memory = memory,
        .step = step,
        .launch = launch,
        .element_size_bytes = muster_type_size_bytes((muster_type)launch->call.type),
        .streams = streams(memory, launch),
        .suspect = UINT32_MAX,
        .exposure = {.in_buffers = step->method == MUSTER_MEMORY_BUFFERS,
                     .size_bytes = launch->sizes.in_bytes},
        .windows = 1};
    run->stage = muster_group_stages_of(run);
}

static muster_status run_stages(struct muster_group_run *run)
{
    while (*run->stage != NULL) {
        const muster_group_stage *stage = run->stage++;
        TRY((*stage)(run));
        run->peer = 0;
    }
    return MUSTER_OK;
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

muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                      const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    struct muster_group_run run;
    begin(memory, step, &run);
    return end(&run, run_stages(&run), ret_suspect);
}

static muster_status announce_only(struct muster_group_run *run)
{
    TRY(muster_group_wait_for_reuse(run));
    muster_group_announce(run, (const uint64_t[2]){0, 0});
    return MUSTER_OK;
}

muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                           const struct muster_group_launch *step,
                                           uint32_t *ret_suspect)
{
    struct muster_group_run run = {
        .memory = memory, .step = step, .launch = step->launch, .suspect = UINT32_MAX};
    return end(&run, announce_only(&run), ret_suspect);
}
