/* Moves a thread to another core, and leaves its affinity as it was. */
#include "worker/base/core_move.h"

#include "worker/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

/* The only way to move is an affinity of one core. The kernel has none to change an affinity only
 * if it is what it was, so others' changes are looked for just before each of our own. */
struct mover {
    size_t size; /* of each set */
    cpu_set_t *own, *now, *all;
};

static bool read_affinity(cpu_set_t *set, size_t size)
{
    CPU_ZERO_S(size, set);
    return sched_getaffinity(0, size, set) == 0;
}

static void *ask_for_all(void *argument)
{
    struct mover *mover = argument;
    memset(mover->all, UINT8_MAX, mover->size);
    bool asked = sched_setaffinity(0, mover->size, mover->all) == 0 &&
                 read_affinity(mover->all, mover->size);
    return asked ? mover : NULL;
}

/* What a thread may use that nobody has pinned, asked by a thread of its own: the caller's affinity
 * is not touched. */
static bool read_all(struct mover *mover)
{
    sigset_t every, before;
    pthread_t thread;
    void *done = NULL;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before); /* they are not for that thread */
    bool asked = pthread_create(&thread, NULL, ask_for_all, mover) == 0 &&
                 pthread_join(thread, &done) == 0 && done != NULL;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return asked;
}

/* That of the set with so many before it; there is one. */
static unsigned core_at(const cpu_set_t *set, size_t size, uint32_t place)
{
    unsigned core = 0;
    for (uint32_t left = place;; core++) {
        if (CPU_ISSET_S(core, size, set) && left-- == 0) {
            return core;
        }
    }
}

static bool go(struct mover *mover, unsigned core)
{
    CPU_ZERO_S(mover->size, mover->now);
    CPU_SET_S(core, mover->size, mover->now);
    return sched_setaffinity(0, mover->size, mover->now) == 0;
}

/* The affinity is still the one that was set to go there. */
static bool is_bound_to(const struct mover *mover, unsigned core)
{
    return read_affinity(mover->now, mover->size) && CPU_COUNT_S(mover->size, mover->now) == 1 &&
           CPU_ISSET_S(core, mover->size, mover->now);
}

/* The control group has lost the core meanwhile: then the kernel gives all that is left, which is
 * not what somebody else has set. */
static bool is_thrown_out(struct mover *mover, unsigned core)
{
    return read_all(mover) && !CPU_ISSET_S(core, mover->size, mover->all) &&
           read_affinity(mover->now, mover->size) &&
           CPU_EQUAL_S(mover->size, mover->now, mover->all);
}

/* An affinity that was set stays when a control group gets more cores, so one that was none but
 * the group's is not set. One that was is never widened, not even for a moment. */
static void restore(struct mover *mover, unsigned core, bool pinned)
{
    if (!is_bound_to(mover, core) && !is_thrown_out(mover, core)) {
        return;
    }
    memset(mover->now, UINT8_MAX, mover->size);
    (void)sched_setaffinity(0, mover->size, pinned ? mover->own : mover->now);
}

static bool move(struct mover *mover, uint32_t place)
{
    unsigned here, node, there, other_node;
    size_t size = mover->size;
    if (getcpu(&here, &node) != 0 || !read_affinity(mover->own, size)) {
        return false;
    }
    unsigned core = core_at(mover->own, size, place % (uint32_t)CPU_COUNT_S(size, mover->own));
    if (core == here) {
        return false;
    }
    bool pinned = !read_all(mover) || !CPU_EQUAL_S(size, mover->own, mover->all);
    if (!read_affinity(mover->now, size) || !CPU_EQUAL_S(size, mover->own, mover->now) ||
        !go(mover, core)) {
        return false;
    }
    bool near = getcpu(&there, &other_node) == 0 && other_node == node;
    if (!near && is_bound_to(mover, core) && go(mover, here)) {
        core = here;
    }
    restore(mover, core, pinned);
    return near;
}

bool muster_core_move(uint32_t place)
{
    struct mover mover = {.size = CPU_ALLOC_SIZE(MUSTER_CPUS_MAX),
                          .own = CPU_ALLOC(MUSTER_CPUS_MAX),
                          .now = CPU_ALLOC(MUSTER_CPUS_MAX),
                          .all = CPU_ALLOC(MUSTER_CPUS_MAX)};
    bool moved = mover.own != NULL && mover.now != NULL && mover.all != NULL && move(&mover, place);
    CPU_FREE(mover.own);
    CPU_FREE(mover.now);
    CPU_FREE(mover.all);
    return moved;
}
