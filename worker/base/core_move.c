/*
 * Moves a thread to another core by an affinity of that core alone, which is the only way there is,
 * and restores the affinity. The kernel has no compare-and-swap for affinities, so before
 * each change this file checks that no other thread has changed the affinity.
 */
#include "worker/base/core_move.h"

#include "worker/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

struct move {
    size_t size;      /* of each set */
    cpu_set_t *own;   /* the thread's affinity before */
    cpu_set_t *now;   /* as last read, or about to be set */
    cpu_set_t *group; /* all cores of the control group */
};

static bool read_affinity(cpu_set_t *set, size_t size)
{
    CPU_ZERO_S(size, set);
    return sched_getaffinity(0, size, set) == 0;
}

static void *widen_and_read(void *argument)
{
    struct move *move = argument;
    memset(move->group, UINT8_MAX, move->size);
    bool done = sched_setaffinity(0, move->size, move->group) == 0 &&
                read_affinity(move->group, move->size);
    return done ? move : NULL;
}

/* Reads the cores of the control group: the affinity of a thread that was never pinned. A helper
 * thread widens its own affinity to find out, so that the caller's is not touched. */
static bool read_group(struct move *move)
{
    sigset_t every, before;
    pthread_t thread;
    void *done = NULL;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for the user's threads */
    bool ran = pthread_create(&thread, NULL, widen_and_read, move) == 0 &&
               pthread_join(thread, &done) == 0 && done != NULL;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ran;
}

/* The core number `index` of the set; the set has more than `index` cores. */
static unsigned core_at(const cpu_set_t *set, size_t size, uint32_t index)
{
    unsigned core = 0;
    for (uint32_t left = index;; core++) {
        if (CPU_ISSET_S(core, size, set) && left-- == 0) {
            return core;
        }
    }
}

static bool bind_to(struct move *move, unsigned core)
{
    CPU_ZERO_S(move->size, move->now);
    CPU_SET_S(core, move->size, move->now);
    return sched_setaffinity(0, move->size, move->now) == 0;
}

/* Whether the affinity is still the one that bind_to() set. */
static bool is_bound_to(const struct move *move, unsigned core)
{
    return read_affinity(move->now, move->size) && CPU_COUNT_S(move->size, move->now) == 1 &&
           CPU_ISSET_S(core, move->size, move->now);
}

/* Whether the control group has lost the core since bind_to(). The kernel then sets the affinity to
 * all cores of the group, which no other thread has asked for. */
static bool has_lost_core(struct move *move, unsigned core)
{
    return read_group(move) && !CPU_ISSET_S(core, move->size, move->group) &&
           read_affinity(move->now, move->size) && CPU_EQUAL_S(move->size, move->now, move->group);
}

/* An affinity that was set does not grow when the control group gets more cores. So a thread that
 * was not pinned gets a full mask back, and one that was pinned gets its own: that one is never
 * widened, not even for a moment. */
static void restore(struct move *move, unsigned core, bool pinned)
{
    if (!is_bound_to(move, core) && !has_lost_core(move, core)) {
        return;
    }
    memset(move->now, UINT8_MAX, move->size);
    (void)sched_setaffinity(0, move->size, pinned ? move->own : move->now);
}

/* Chooses the core, binds the thread to it, and restores the affinity. Only on the new core does
 * the thread learn its NUMA node: if that is another one, the thread moves back. */
static bool run(struct move *move, uint32_t index)
{
    unsigned here, node, there, other_node;
    size_t size = move->size;
    if (getcpu(&here, &node) != 0 || !read_affinity(move->own, size)) {
        return false;
    }
    unsigned core = core_at(move->own, size, index % (uint32_t)CPU_COUNT_S(size, move->own));
    if (core == here) {
        return false;
    }
    bool pinned = !read_group(move) || !CPU_EQUAL_S(size, move->own, move->group);
    if (!read_affinity(move->now, size) || !CPU_EQUAL_S(size, move->own, move->now) ||
        !bind_to(move, core)) {
        return false;
    }
    bool same_node = getcpu(&there, &other_node) == 0 && other_node == node;
    if (!same_node && is_bound_to(move, core) && bind_to(move, here)) {
        core = here;
    }
    restore(move, core, pinned);
    return same_node;
}

bool muster_core_move(uint32_t index)
{
    struct move move = {.size = CPU_ALLOC_SIZE(MUSTER_CPUS_MAX),
                        .own = CPU_ALLOC(MUSTER_CPUS_MAX),
                        .now = CPU_ALLOC(MUSTER_CPUS_MAX),
                        .group = CPU_ALLOC(MUSTER_CPUS_MAX)};
    bool moved = move.own != NULL && move.now != NULL && move.group != NULL && run(&move, index);
    CPU_FREE(move.own);
    CPU_FREE(move.now);
    CPU_FREE(move.group);
    return moved;
}
