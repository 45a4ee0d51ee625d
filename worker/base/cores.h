/*
 * The floor: how many cores this process may keep busy. Code that polls, or that estimates the work
 * of several ranks at once, uses these functions instead of counting the machine's cores.
 */
#ifndef MUSTER_WORKER_BASE_CORES_H
#define MUSTER_WORKER_BASE_CORES_H

#include <stdint.h>

enum {
    MUSTER_CORE_MILLIS = 1000,   /* quotas are counted in thousandths of a core */
    MUSTER_CPUS_MAX = 64 * 1024, /* that an affinity can name */
};

/* The number of cores in the calling thread's affinity, or the number that the CPU quota of its
 * control group and of the groups above pays for (rounded down), whichever is less; at least 1.
 * Reads files, so it is not for a loop. */
uint32_t muster_cores_usable(void);

/* What quotas alone allow, in thousandths of a core; UINT64_MAX without a quota. `root` is put
 * before the names of the kernel's files: "" outside tests. Knows version 2 of control groups
 * (cpu.max) and version 1 (cpu.cfs_quota_us), mounted in the usual places. */
uint64_t muster_cores_quota_millis(const char *root);

#endif
