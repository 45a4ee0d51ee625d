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

/* The method says how this rank's input is exposed. Field by field: to clear all of the run first
 * would take a tenth of a small call's own time. */
static inline void begin(struct muster_group_memory *memory, const struct muster_group_launch *step,
                         bool polled, struct muster_group_run *run)
{
    const struct muster_launch *launch = step->launch;
    run->memory = memory;
    run->step = step;
    run->launch = launch;
    run->element_size_bytes = muster_type_size_bytes((muster_type)launch->call.type);
    run->streams = streams(memory, launch);
    run->suspect = UINT32_MAX;
    run->exposure.in_buffers = step->method == MUSTER_MEMORY_BUFFERS;
    run->exposure.size_bytes = launch->sizes.in_bytes;
    run->peer = 0;
    run->window = 0;
    run->windows = 1;
    run->polled = polled;
    run->awaited = NULL;
    run->stage = muster_group_stages_of(run);
}

static muster_status run_stages(struct muster_group_run *run)
{
    muster_status status = MUSTER_OK;
    while (status == MUSTER_OK && *run->stage != NULL) {
        run->current = run->stage++;
        status = (*run->current)(run);
        run->peer = status == MUSTER_OK ? 0 : run->peer;
    }
    return status;
}

void muster_group_memory_withdraw(struct muster_group_memory *memory, uint64_t sequence)
{
    struct muster_group_rank_slot *slot =
        muster_group_layout_rank_slot(&memory->layout, memory->options.rank);
    uint64_t before = atomic_load(&slot->withdrawn);
    if (before == 0 || sequence < before) {
        atomic_store(&slot->withdrawn, sequence);
    }
    atomic_thread_fence(memory_order_seq_cst);
    muster_group_wake_sleepers(slot);
}

/* Ends an operation. A rank that gives up publishes that before its buffers belong to the caller
 * again. */
static muster_status end(const struct muster_group_run *run, muster_status status,
                         uint32_t *ret_suspect)
{
    if (status == MUSTER_OK || status == MUSTER_INVALID) {
        return status;
    }
    muster_group_memory_withdraw(run->memory, run->launch->sequence);
    if (run->suspect != UINT32_MAX) {
        *ret_suspect = run->suspect;
    }
    return status;
}

muster_status muster_group_memory_run(struct muster_group_memory *memory,
                                      const struct muster_group_launch *step, uint32_t *ret_suspect)
{
    struct muster_group_run run;
    begin(memory, step, false, &run);
    return end(&run, run_stages(&run), ret_suspect);
}

/* Operations that run by messages are only announced --------------------------------------------
 */

static muster_status announce(struct muster_group_run *run)
{
    TRY(muster_group_wait_for_reuse(run));
    muster_group_announce(run, (const uint64_t[2]){0, 0});
    return MUSTER_OK;
}

static const muster_group_stage announced[] = {announce, NULL};

muster_status muster_group_memory_announce(struct muster_group_memory *memory,
                                           const struct muster_group_launch *step,
                                           uint32_t *ret_suspect)
{
    struct muster_group_run run = {
        .memory = memory, .step = step, .launch = step->launch, .suspect = UINT32_MAX};
    return end(&run, announce(&run), ret_suspect);
}

/* In flight ------------------------------------------------------------------------------------ */

void muster_group_memory_begin_step(struct muster_group_memory *memory,
                                    const struct muster_group_launch *step, bool announces)
{
    memory->flight_step = *step;
    begin(memory, &memory->flight_step, true, &memory->flight);
    if (announces) {
        memory->flight.stage = announced;
    }
}

muster_status muster_group_memory_poll(struct muster_group_memory *memory, int64_t spin_ns,
                                       bool *ret_advanced)
{
    struct muster_group_run *run = &memory->flight;
    const _Atomic uint64_t *awaited = run->awaited;
    uint64_t least = run->awaited_least;
    *ret_advanced = false;
    if (spin_ns == 0 && awaited != NULL &&
        atomic_load_explicit(awaited, memory_order_acquire) < least) {
        return MUSTER_RETRY;
    }
    run->spin_ns = spin_ns;
    muster_status status = run_stages(run);
    if (status == MUSTER_RETRY) {
        run->stage = run->current;
    }
    *ret_advanced =
        status != MUSTER_RETRY || run->awaited != awaited || run->awaited_least != least;
    return status;
}

muster_status muster_group_memory_check(struct muster_group_memory *memory)
{
    struct muster_group_run *run = &memory->flight;
    return run->awaited == NULL
               ? MUSTER_OK
               : muster_group_check_peer(run, run->awaited_rank, run->awaited, run->awaited_least);
}

muster_status muster_group_memory_end_step(struct muster_group_memory *memory, muster_status status,
                                           uint32_t *ret_suspect)
{
    struct muster_group_run *run = &memory->flight;
    if (status == MUSTER_RETRY && run->awaited != NULL) {
        status = muster_group_report_timeout(run, run->awaited_rank);
    }
    return end(run, status, ret_suspect);
}
