/*
 * How one rank waits for another, and notices that it waits in vain.
 *
 * First it only looks, if every rank has a core of its own; then it gives way between the looks, so
 * that ranks that share a core go on, and less often where nobody else is on its core; then it
 * sleeps, a slice at a time, and after each slice sees after the other one. Whoever writes wakes
 * those who sleep.
 *
 * Who sleeps has counted itself before its last look; who writes looks at the count after it wrote.
 * One of the two sees the other, if neither's order of the two is turned around. The writer, who is
 * in haste, takes no barrier for that: the sleeper asks the kernel for one on all processors
 * (membarrier). Where there is none, a sleeper may miss its wake, and a slice ends its sleep.
 */
#include "worker/device/host/group_parts.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "worker/base/clock.h"
#include "worker/base/cores.h"

enum {
    SLICE_NS = 1000 * 1000, /* the first; the next are twice as long */
    SLICE_MAX_NS = 16 * 1000 * 1000,
    NS_PER_S = 1000000000,
};

static bool is_reached(const _Atomic uint64_t *word, uint64_t least)
{
    return atomic_load_explicit(word, memory_order_acquire) >= least;
}

/* Sleeping ------------------------------------------------------------------------------------ */

void muster_group_wake_sleepers(struct muster_group_rank_slot *slot)
{
    atomic_signal_fence(memory_order_seq_cst); /* the processor's is the sleeper's to ask for */
    if (atomic_load_explicit(&slot->sleepers, memory_order_relaxed) == 0) {
        return;
    }
    atomic_fetch_add(&slot->futex_word, 1);
    (void)syscall(SYS_futex, &slot->futex_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void sleep_for(struct muster_group_rank_slot *slot, const _Atomic uint64_t *word,
                      uint64_t least, int64_t most_ns)
{
    const struct timespec most = {.tv_sec = most_ns / NS_PER_S, .tv_nsec = most_ns % NS_PER_S};
    atomic_fetch_add(&slot->sleepers, 1);
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    uint32_t futex_word = atomic_load(&slot->futex_word);
    if (!is_reached(word, least)) {
        (void)syscall(SYS_futex, &slot->futex_word, FUTEX_WAIT, futex_word, &most, NULL, 0);
    }
    atomic_fetch_sub(&slot->sleepers, 1);
}

/* Seeing after the other ---------------------------------------------------------------------- */

static muster_status dead(struct muster_group_run *run, uint32_t rank)
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
    /* First whether it lives: it says that it goes before it goes. */
    bool lives = memory->pids[rank] == getpid() ||
                 muster_group_layout_rank_holder(&memory->layout, rank) != 0;
    uint64_t withdrawn = atomic_load(&slot->withdrawn);
    if (withdrawn != 0 && withdrawn <= run->step->sequence) {
        return muster_error_set(MUSTER_REJOIN, "rank %u takes part no more", name);
    }
    return lives ? MUSTER_OK : dead(run, rank);
}

static muster_status late(struct muster_group_run *run, uint32_t rank)
{
    run->suspect = run->memory->options.names[rank];
    return muster_error_set(MUSTER_RETRY, "the deadline passed while it waited for rank %u",
                            run->suspect);
}

/* Waiting ------------------------------------------------------------------------------------- */

static bool spin(const struct muster_group_memory *memory, const _Atomic uint64_t *word,
                 uint64_t least)
{
    uint32_t polls = memory->spin_policy.pause;
    for (uint32_t i = 0; i < polls; i++) {
        if (is_reached(word, least)) {
            return true;
        }
        muster_cores_relax();
    }
    return false;
}

static bool give_way(struct muster_group_memory *memory, const _Atomic uint64_t *word,
                     uint64_t least, int64_t until_ns)
{
    int64_t now_ns = muster_clock_ns();
    while (now_ns < until_ns) {
        (void)sched_yield();
        muster_spin_policy_note_yield(&memory->spin_policy, muster_clock_ns() - now_ns);
        if (is_reached(word, least) || spin(memory, word, least)) {
            return true;
        }
        now_ns = muster_clock_ns();
    }
    return false;
}

/* Yields and polls in turn, on a core of this rank's own if the spin policy says so. False at once
 * if it says to sleep. */
static bool give_way_or_sleep(struct muster_group_memory *memory, const _Atomic uint64_t *word,
                              uint64_t least, int64_t deadline_ns)
{
    enum muster_spin_action action = muster_spin_policy_begin_wait(&memory->spin_policy);
    int64_t until_ns = muster_clock_ns() + memory->spin_policy.poll_ns;
    if (action == MUSTER_SPIN_MOVE) {
        (void)muster_cores_move(memory->spin_policy.index);
    }
    return action != MUSTER_SPIN_SLEEP &&
           give_way(memory, word, least, until_ns < deadline_ns ? until_ns : deadline_ns);
}

static int64_t earlier(int64_t one_ns, int64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* Sees after the rank that is waited for. It may have done its part and gone since it was looked
 * for, as members do after the last operation of a generation: that is no death. */
static muster_status see_after(struct muster_group_run *run, uint32_t rank,
                               const _Atomic uint64_t *word, uint64_t least)
{
    muster_status status = muster_group_check_liveness(run, rank);
    if (status != MUSTER_OK && is_reached(word, least)) {
        run->suspect = UINT32_MAX;
        return MUSTER_OK;
    }
    return status;
}

muster_status muster_group_wait_slowly(struct muster_group_run *run, uint32_t rank,
                                       const _Atomic uint64_t *word, uint64_t least)
{
    const struct muster_group_step *step = run->step;
    if (spin(run->memory, word, least) ||
        give_way_or_sleep(run->memory, word, least, step->deadline_ns)) {
        return MUSTER_OK;
    }
    struct muster_group_rank_slot *slot = muster_group_layout_rank_slot(&run->memory->layout, rank);
    int64_t slice_ns = SLICE_NS;
    int64_t now_ns;
    while ((now_ns = muster_clock_ns()) < step->deadline_ns) {
        sleep_for(slot, word, least, earlier(slice_ns, step->deadline_ns - now_ns));
        if (is_reached(word, least)) {
            return MUSTER_OK;
        }
        TRY(step->check(step->user, &run->suspect));
        TRY(see_after(run, rank, word, least));
        slice_ns = earlier(2 * slice_ns, SLICE_MAX_NS);
    }
    return late(run, rank);
}

/* The other's own memory ---------------------------------------------------------------------- */

muster_status muster_group_copy_from_peer(struct muster_group_run *run, uint32_t rank,
                                          uint64_t address, void *target, size_t size_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        struct iovec here = {.iov_base = (char *)target + done, .iov_len = size_bytes - done};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(address + done), // NOLINT
                              .iov_len = size_bytes - done};
        ssize_t got = process_vm_readv((pid_t)run->memory->pids[rank], &here, 1, &there, 1, 0);
        if (got <= 0) {
            int reason = errno;
            TRY(muster_group_check_liveness(run, rank));
            if (reason == ESRCH) { /* it is dying: its memory goes before its lock */
                return dead(run, rank);
            }
            errno = reason;
            return muster_error_errno(MUSTER_REJOIN, "the memory of rank %u",
                                      run->memory->options.names[rank]);
        }
        done += (size_t)got;
    }
    return MUSTER_OK;
}
