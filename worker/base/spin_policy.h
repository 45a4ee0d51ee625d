/*
 * How long a thread that waits for another process polls before it sleeps. Pure: its user reads the
 * clock, yields, sleeps and moves.
 *
 * Polling saves a sleep and a wake, tens of microseconds. Between polls the thread yields
 * (sched_yield()), so that members that share a core hand it to each other without sleeping. How
 * long a yield takes shows what else wants the core:
 *
 *   a yield takes   what else runs on the core    what follows
 *   up to 2 us      nothing                       The thread polls for longer between two yields: a
 *                                                 yield hands the core even to work of the lowest
 *                                                 priority, for a slice, which would not have taken
 *                                                 the core by itself.
 *   up to 500 us    another member                The thread polls for a shorter time between two
 *                                                 yields. After many such yields in a row it sleeps
 *                                                 once: the scheduler looks for an idle core only
 *                                                 when a thread wakes up. If that was in vain, the
 *                                                 thread moves to a core of its own. The next times
 *                                                 are twice as far apart, four times over.
 *   more            other work, for a slice       The next waits sleep at once: the scheduler
 *                                                 prefers a thread that wakes up to such work, but
 *                                                 not one that has yielded.
 *
 * Where a quota pays for fewer cores than the members can use, each wait sleeps at once: polling
 * would spend what the work needs. Where there are more members than cores, the pause between two
 * yields stays 0, and no thread moves.
 */
#ifndef MUSTER_WORKER_BASE_SPIN_POLICY_H
#define MUSTER_WORKER_BASE_SPIN_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MUSTER_SPIN_ALONE_NS = 2 * 1000,
    MUSTER_SPIN_SLICE_NS = 500 * 1000,
    MUSTER_SPIN_DOUBLINGS = 4,
    MUSTER_SPIN_RESTS_MAX = 4096,
};

/* What differs between the users of the policy. The pause is how long the thread polls between two
 * yields, in the unit of its user; it begins with 0. */
struct muster_spin_parameters {
    /* How long a wait polls, at most. Several times the cost of a sleep and a wake, which is up to
     * 50 us on a virtual machine: with less, two threads that wait for each other would sleep in
     * turn for ever once one of them was late. */
    int64_t poll_ns;
    /* The same for a member that may have links over RDMA, and a core of its own: a wake by a
     * device costs more, namely a request, an interrupt and an acknowledgement. */
    int64_t poll_device_ns;
    /* Polls of memory before descriptors are polled, at most. 1 after a yield to other work, and
     * one more after each yield that found the core free. */
    uint32_t polls_max;
    /* After a yield that found the core free: pause x factor + step, within the bounds. After a
     * yield to other work: half the pause, or 0, within the bounds. */
    uint32_t pause_min, pause_max, pause_factor, pause_step;
    bool pause_halves;
    /* A thread with at least this pause is alone on its core: the count of sleeps and moves starts
     * again. */
    uint32_t pause_alone;
    /* After so many yields in a row to another member the thread sleeps once; after the next such
     * row it moves. After each move the number doubles, MUSTER_SPIN_DOUBLINGS times. With more
     * members than cores the second number is used: it does not grow, and the thread sleeps
     * every time. */
    uint32_t shared_max, shared_max_crowded;
    /* The number of waits that sleep at once after the first lost slice. Each further lost slice
     * doubles it; each wait that ends while the thread polls reduces it by one. 0: none ever. */
    uint32_t rests_min;
};

/* For the leader of a fabric, which polls rings and descriptors. Pauses are nanoseconds. */
extern const struct muster_spin_parameters muster_spin_on_links;
/* For a rank of a host's group, which polls one word of memory. Pauses are polls. */
extern const struct muster_spin_parameters muster_spin_on_memory;

/* What the host has for the thread's member. */
struct muster_spin_host {
    uint32_t members;
    uint32_t index; /* of this one among them */
    uint32_t cores; /* that it may use */
    bool has_device;
    uint64_t quota_millis; /* thousandths of a core; UINT64_MAX: none */
};

struct muster_spin_policy {
    const struct muster_spin_parameters *parameters;
    bool polls;   /* false: the quota is too small */
    bool crowded; /* more members than cores */
    uint32_t index;
    int64_t poll_ns; /* how long a wait polls, at most */
    uint32_t polls_of_memory;
    uint32_t pause;
    uint32_t shared; /* yields in a row that found another member */
    uint32_t steps;  /* sleeps and moves, in turn, because of that */
    uint32_t rests_left;
    uint32_t rests; /* after the next lost slice */
};

void muster_spin_policy_init(struct muster_spin_policy *policy,
                             const struct muster_spin_parameters *parameters,
                             const struct muster_spin_host *host);

enum muster_spin_action {
    MUSTER_SPIN_SLEEP, /* at once, without a poll */
    MUSTER_SPIN_POLL,
    MUSTER_SPIN_MOVE, /* to core number `index` of the member's (muster_core_move()), then poll */
};

/* A wait begins. */
enum muster_spin_action muster_spin_policy_begin_wait(struct muster_spin_policy *policy);

/* The thread has yielded; took_ns is how long that took. */
void muster_spin_policy_note_yield(struct muster_spin_policy *policy, int64_t took_ns);

/* What the thread waited for came while it polled. */
void muster_spin_policy_note_success(struct muster_spin_policy *policy);

/* Between two polls of memory that another core writes: polls without a break slow that core down.
 */
static inline void muster_spin_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
