/* Counts the cores that a process may use: its affinity, and the quotas of its control groups. */
#include "worker/base/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_SIZE = 4608, /* of /proc/self/cgroup: PATH_MAX and the names of controllers */
    NAME_SIZE = 5120, /* of a file */
};

/* Where the controller for the CPU is mounted, and which files its groups have. */
static const struct hierarchy {
    const char *mount;
    bool version_2;
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
    bool got = fgets(line, size, file) != NULL;
    (void)fclose(file);
    return got;
}

static uint64_t ratio_millis(long long quota, long long period)
{
    return quota > 0 && period > 0 && quota < INT64_MAX / MUSTER_CORE_MILLIS
               ? (uint64_t)quota * MUSTER_CORE_MILLIS / (uint64_t)period
               : UINT64_MAX;
}

/* "50000 100000" or "max 100000". */
static uint64_t read_quota_2(const char *group)
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

/* The same in two files; -1 for no quota. */
static uint64_t read_quota_1(const char *group)
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

/* The least quota of a group and of those above it. A group that does not exist has none: the path
 * may be of another tree than the one that a container sees. */
static uint64_t read_least_quota(const char *root, const struct hierarchy *hierarchy,
                                 const char *path)
{
    char group[LINE_SIZE];
    int length = snprintf(group, sizeof group, "%s%s%s", root, hierarchy->mount, path);
    size_t top = strlen(root) + strlen(hierarchy->mount);
    if (length < 0 || (size_t)length >= sizeof group) {
        return UINT64_MAX;
    }
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t quota = hierarchy->version_2 ? read_quota_2(group) : read_quota_1(group);
        least = quota < least ? quota : least;
        if (strlen(group) <= top) {
            return least;
        }
        *strrchr(group, '/') = '\0';
    }
}

/* A line of /proc/self/cgroup: "0::/path" is of version 2; "4:cpu,cpuacct:/path" is of version 1,
 * and counts if the CPU is among the names. */
static bool parse_group(char *line, bool *ret_version_2, const char **ret_path)
{
    line[strcspn(line, "\n")] = '\0';
    char *names = strchr(line, ':');
    char *path = names != NULL ? strchr(names + 1, ':') : NULL;
    if (path == NULL || path[1] != '/') {
        return false;
    }
    *names++ = '\0';
    *path++ = '\0';
    *ret_version_2 = strcmp(line, "0") == 0 && names[0] == '\0';
    *ret_path = path;
    if (*ret_version_2) {
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

/* The least quota of all groups that this process is in: a line of /proc/self/cgroup names a group
 * in each hierarchy, which may be mounted at several places. */
uint64_t muster_cores_quota_millis(const char *root)
{
    char line[LINE_SIZE];
    (void)snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    uint64_t least = UINT64_MAX;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        bool version_2;
        const char *path;
        if (!parse_group(line, &version_2, &path)) {
            continue;
        }
        for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
            if (hierarchies[i].version_2 == version_2) {
                uint64_t quota = read_least_quota(root, &hierarchies[i], path);
                least = quota < least ? quota : least;
            }
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return least;
}

/* UINT32_MAX: the kernel reports no affinity. */
static uint32_t affinity_cores(void)
{
    uint32_t cores = UINT32_MAX;
    cpu_set_t *set = CPU_ALLOC(MUSTER_CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(MUSTER_CPUS_MAX);
    if (set != NULL && sched_getaffinity(0, size, set) == 0) {
        cores = (uint32_t)CPU_COUNT_S(size, set);
    }
    CPU_FREE(set);
    return cores;
}

uint32_t muster_cores_usable(void)
{
    uint32_t cores = affinity_cores();
    uint64_t quota = muster_cores_quota_millis("") / MUSTER_CORE_MILLIS;
    uint64_t usable = cores == UINT32_MAX || quota < cores ? quota : cores;
    return usable == 0 || usable > MUSTER_CPUS_MAX ? 1 : (uint32_t)usable;
}
