#include "worker/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_SIZE = 4608,     /* of /proc/self/cgroup: PATH_MAX and the names of controllers */
    NAME_SIZE = 5120,     /* of a file */
    CPUS_MAX = 64 * 1024, /* that an affinity can name */
};

/* Where the controller for the CPU is mounted, and what its groups say. */
static const struct hierarchy {
    const char *mount;
    bool second; /* version 2 */
} hierarchies[] = {
    {"/sys/fs/cgroup", true},
    {"/sys/fs/cgroup/unified", true},
    {"/sys/fs/cgroup/cpu", false},
    {"/sys/fs/cgroup/cpu,cpuacct", false},
};

static bool read_line(const char *name, char *line, int size)
{
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return false;
    }
    bool there = fgets(line, size, file) != NULL;
    (void)fclose(file);
    return there;
}

static uint64_t ratio_millis(long long quota, long long period)
{
    return quota > 0 && period > 0 && quota < INT64_MAX / MUSTER_CORE_MILLIS
               ? (uint64_t)quota * MUSTER_CORE_MILLIS / (uint64_t)period
               : UINT64_MAX;
}

/* "50000 100000" or "max 100000". */
static uint64_t quota_of_second(const char *group)
{
    char name[NAME_SIZE];
    char line[64];
    (void)snprintf(name, sizeof name, "%s/cpu.max", group);
    if (!read_line(name, line, sizeof line)) {
        return UINT64_MAX;
    }
    char *end = NULL;
    long long quota = strtoll(line, &end, 10); /* 0 for "max" */
    return ratio_millis(quota, strtoll(end, NULL, 10));
}

static uint64_t quota_of_first(const char *group)
{
    char name[NAME_SIZE];
    char quota[64];
    char period[64];
    (void)snprintf(name, sizeof name, "%s/cpu.cfs_quota_us", group);
    if (!read_line(name, quota, sizeof quota)) {
        return UINT64_MAX;
    }
    (void)snprintf(name, sizeof name, "%s/cpu.cfs_period_us", group);
    if (!read_line(name, period, sizeof period)) {
        return UINT64_MAX;
    }
    return ratio_millis(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The least of a group and those above it. Groups that are not there, because a container sees
 * another tree than the one that its path is of, have none. */
static uint64_t quota_along(const char *root, const struct hierarchy *hierarchy, const char *path)
{
    char group[LINE_SIZE];
    int length = snprintf(group, sizeof group, "%s%s%s", root, hierarchy->mount, path);
    size_t top = strlen(root) + strlen(hierarchy->mount);
    if (length < 0 || (size_t)length >= sizeof group) {
        return UINT64_MAX;
    }
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t quota = hierarchy->second ? quota_of_second(group) : quota_of_first(group);
        least = quota < least ? quota : least;
        if (strlen(group) <= top) {
            return least;
        }
        *strrchr(group, '/') = '\0';
    }
}

/* "0::/path" is of version 2, "4:cpu,cpuacct:/path" of version 1 if the CPU is among the names. */
static bool parse_group(char *line, bool *ret_second, const char **ret_path)
{
    line[strcspn(line, "\n")] = '\0';
    char *names = strchr(line, ':');
    char *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL || path[1] != '/') {
        return false;
    }
    *names++ = '\0';
    *path++ = '\0';
    *ret_second = strcmp(line, "0") == 0 && names[0] == '\0';
    *ret_path = path;
    if (*ret_second) {
        return true;
    }
    char *left = NULL;
    for (char *name = strtok_r(names, ",", &left); name != NULL;
         name = strtok_r(NULL, ",", &left)) {
        if (strcmp(name, "cpu") == 0) {
            return true;
        }
    }
    return false;
}

uint64_t muster_cores_quota_millis(const char *root)
{
    char line[LINE_SIZE];
    (void)snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    uint64_t least = UINT64_MAX;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        bool second;
        const char *path;
        if (!parse_group(line, &second, &path)) {
            continue;
        }
        for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
            if (hierarchies[i].second == second) {
                uint64_t quota = quota_along(root, &hierarchies[i], path);
                least = quota < least ? quota : least;
            }
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return least;
}

/* UINT32_MAX if the kernel does not say. */
static uint32_t affinity_cores(void)
{
    uint32_t cores = UINT32_MAX;
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    if (set != NULL && sched_getaffinity(0, size, set) == 0) {
        cores = (uint32_t)CPU_COUNT_S(size, set);
    }
    CPU_FREE(set);
    return cores;
}

uint32_t muster_cores_usable(void)
{
    uint32_t cores = affinity_cores();
    uint64_t paid = muster_cores_quota_millis("") / MUSTER_CORE_MILLIS;
    uint64_t usable = cores == UINT32_MAX || paid < cores ? paid : cores;
    return usable == 0 || usable > CPUS_MAX ? 1 : (uint32_t)usable;
}

/* Moving -------------------------------------------------------------------------------------- */

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

bool muster_cores_move(uint32_t place)
{
    struct mover mover = {.size = CPU_ALLOC_SIZE(CPUS_MAX),
                          .own = CPU_ALLOC(CPUS_MAX),
                          .now = CPU_ALLOC(CPUS_MAX),
                          .all = CPU_ALLOC(CPUS_MAX)};
    bool moved = mover.own != NULL && mover.now != NULL && mover.all != NULL && move(&mover, place);
    CPU_FREE(mover.own);
    CPU_FREE(mover.now);
    CPU_FREE(mover.all);
    return moved;
}
