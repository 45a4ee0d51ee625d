/*
 * How a rank waits for another one, and how it notices that the other one has died.
 *
 *   1. poll      only; for as long as the spin policy says, which is 0 without a core for each rank
 *   2. yield     and poll in turn, for 200 us; or not at all if the policy says to sleep
 *   3. sleep     (futex) for at most 1 ms, then 2, 4 ... 16 ms; after each sleep the waiting rank
 *                calls `check`, checks that the other one is alive, and checks the deadline
 *
 * A wait of an operation in flight polls and yields for as long as its caller allows, then returns;
 * the operation is polled again.
 *
 * A rank that writes wakes the sleepers. No wake is lost: a sleeper increments the count of
 * sleepers and then polls once more; a writer writes and then reads the count. If neither is
 * reordered, one of the two sees the other. The writer has no memory barrier, because
 * writes are frequent and sleeps are rare: the sleeper makes the kernel run a barrier on all
 * processors (membarrier). Where that is forbidden, a
 * wake may be lost, and the sleep ends by its bound.
 */
#include "worker/device/host/group_parts.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/base/core_move.h"

enum {
    SLEEP_NS = 1000 * 1000, /* the first; each further one is twice as long */
    SLEEP_MAX_NS = 16 * 1000 * 1000,
};

static bool is_reached(const _Atomic uint64_t *word, uint64_t least)
{
    return atomic_load_explicit(word, memory_order_acquire) >= least;
}

/* Sleeping ------------------------------------------------------------------------------------ */

void muster_group_wake_sleepers(struct muster_group_rank_slot *slot)
{
    /* For the compiler only: the sleeper requests the barrier on the processors. */
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&slot->sleepers, memory_order_relaxed) == 0) {
        return;
    }
    atomic_fetch_add(&slot->futex_word, 1);
    (void)syscall(SYS_futex, &slot->futex_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void sleep_for(struct muster_group_rank_slot *slot, const _Atomic uint64_t *word,
                      uint64_t least, int64_t most_ns)
{
    const struct timespec most = muster_clock_timespec(most_ns);
    atomic_fetch_add(&slot->sleepers, 1);
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    uint32_t futex_word = atomic_load(&slot->futex_word);
    if (!is_reached(word, least)) {
        (void)syscall(SYS_futex, &slot->futex_word, FUTEX_WAIT, futex_word, &most, NULL, 0);
    }
    atomic_fetch_sub(&slot->sleepers, 1);
}

/* Liveness ------------------------------------------------------------------------------------ */

muster_status muster_group_report_death(struct muster_group_run *run, uint32_t rank)
{
    run->suspect = run->memory->options.names[rank];
    return muster_error_set(MUSTER_REJOIN, "rank %u died", run->suspect);
}

muster_status muster_group_check_liveness(struct muster_group_run *run, uint32_t rank)
{
    struct muster_group_memory *memory = run->memory;
    const struct muster_group_rank_slot *slot =
        muster_group_layout_rank_slot(&memory->layout, rank);
    uint32_t name = memory->options.names[rank];
    /* In this order: a rank that leaves writes that before it releases its lock. */
    bool alive = memory->pids[rank] == getpid() ||
                 muster_group_layout_rank_holder(&memory->layout, rank) != 0;
    uint64_t withdrawn = atomic_load(&slot->withdrawn);
    if (withdrawn != 0 && withdrawn <= run->launch->sequence) {
        return muster_error_set(MUSTER_REJOIN, "rank %u has left the group", name);
    }
    return alive ? MUSTER_OK : muster_group_report_death(run, rank);
}

muster_status muster_group_report_timeout(struct muster_group_run *run, uint32_t rank)
{
    run->suspect = run->memory->options.names[rank];
    return muster_error_set(MUSTER_RETRY, "the deadline passed while it waited for rank %u",
                            run->suspect);
}

/* Waiting ------------------------------------------------------------------------------------- */

static bool poll_word(const struct muster_group_memory *memory, const _Atomic uint64_t *word,
                      uint64_t least)
{
    uint32_t polls = memory->spin_policy.pause;
    for (uint32_t i = 0; i < polls; i++) {
        if (is_reached(word, least)) {
            return true;
        }
        muster_spin_relax();
    }
    return false;
}

static bool yield_and_poll(struct muster_group_memory *memory, const _Atomic uint64_t *word,
                           uint64_t least, int64_t until_ns)
{
    int64_t now_ns = muster_clock_ns();
    while (now_ns < until_ns) {
        (void)sched_yield();
        muster_spin_policy_note_yield(&memory->spin_policy, muster_clock_ns() - now_ns);
        if (is_reached(word, least) || poll_word(memory, word, least)) {
            return true;
        }
        now_ns = muster_clock_ns();
    }
    return false;
}

/* Yields and polls in turn, after a move to a core of this rank's own if the spin policy says so.
 * False at once if it says to sleep. */
static bool follow_policy(struct muster_group_memory *memory, const _Atomic uint64_t *word,
                          uint64_t least, int64_t deadline_ns)
{
    enum muster_spin_action action = muster_spin_policy_begin_wait(&memory->spin_policy);
    int64_t until_ns = muster_clock_ns() + memory->spin_policy.poll_ns;
    if (action == MUSTER_SPIN_MOVE) {
        (void)muster_core_move(memory->spin_policy.index);
    }
    return action != MUSTER_SPIN_SLEEP &&
           yield_and_poll(memory, word, least, until_ns < deadline_ns ? until_ns : deadline_ns);
}

static int64_t earlier(int64_t one_ns, int64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* Checks that the rank is alive. It may have written and left since the last poll, as members do
 * after the last operation of a generation: that is no death. */
muster_status muster_group_check_peer(struct muster_group_run *run, uint32_t rank,
                                      const _Atomic uint64_t *word, uint64_t least)
{
    const struct muster_group_rank_slot *slot = muster_group_rank_slot_of(run, rank);
    if (atomic_load(&run->memory->aborted)) {
        return muster_error_set(MUSTER_REJOIN, "the group was aborted");
    }
    bool left = run->step->part && is_reached(&slot->left, muster_group_call_of(run));
    muster_status status = muster_group_check_liveness(run, rank);
    if (status == MUSTER_OK && left) {
        status = muster_error_set(MUSTER_INVALID,
                                  "rank %u calls differently: it has ended the call before a group "
                                  "step of it",
                                  run->memory->options.names[rank]);
    }
    if (status != MUSTER_OK && is_reached(word, least)) {
        run->suspect = UINT32_MAX;
        return MUSTER_OK;
    }
    return status;
}

/* Of an operation in flight: for a short time if the caller has nothing else to do. */
static muster_status wait_polled(struct muster_group_run *run, uint32_t rank,
                                 const _Atomic uint64_t *word, uint64_t least)
{
    int64_t spin_ns = run->spin_ns;
    if (spin_ns > 0 && (poll_word(run->memory, word, least) ||
                        yield_and_poll(run->memory, word, least, muster_clock_ns() + spin_ns))) {
        return MUSTER_OK;
    }
    run->spin_ns = 0;
    run->awaited_rank = rank;
    run->awaited = word;
    run->awaited_least = least;
    return MUSTER_RETRY;
}

muster_status muster_group_wait_slowly(struct muster_group_run *run, uint32_t rank,
                                       const _Atomic uint64_t *word, uint64_t least)
{
    const struct muster_group_launch *step = run->step;
    if (run->polled) {
        return wait_polled(run, rank, word, least);
    }
    if (poll_word(run->memory, word, least) ||
        follow_policy(run->memory, word, least, run->launch->deadline_ns)) {
        return MUSTER_OK;
    }
    struct muster_group_rank_slot *slot = muster_group_layout_rank_slot(&run->memory->layout, rank);
    int64_t sleep_ns = SLEEP_NS;
    int64_t now_ns;
    while ((now_ns = muster_clock_ns()) < run->launch->deadline_ns) {
        sleep_for(slot, word, least, earlier(sleep_ns, run->launch->deadline_ns - now_ns));
        if (is_reached(word, least)) {
            return MUSTER_OK;
        }
        TRY(step->check(step->user, &run->suspect));
        TRY(muster_group_check_peer(run, rank, word, least));
        sleep_ns = earlier(2 * sleep_ns, SLEEP_MAX_NS);
    }
    return muster_group_report_timeout(run, rank);
}
