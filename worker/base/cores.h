/*
 * The floor: how many cores this process may keep busy. Whoever spins, or reckons with the work of
 * several ranks at once, asks here instead of counting the machine's cores.
 */
#ifndef MUSTER_WORKER_BASE_CORES_H
#define MUSTER_WORKER_BASE_CORES_H

#include <stdint.h>

enum {
    MUSTER_CORE_MILLIS = 1000,   /* quotas are counted in thousandths of a core */
    MUSTER_CPUS_MAX = 64 * 1024, /* that an affinity can name */
};

/* The cores that the calling thread's affinity names, or as many as the CPU quota of its control
 * group and of those above pays for (rounded down), whichever is less; at least 1. Reads files:
 * to be asked once, not in a loop. */
uint32_t muster_cores_usable(void);

/* What quotas alone allow, in thousandths of a core; UINT64_MAX where there is none. `root` stands
 * before the names of the kernel's files: "" but for tests. Knows version 2 of control groups
 * (cpu.max) and version 1 (cpu.cfs_quota_us), mounted in the usual places. */
uint64_t muster_cores_quota_millis(const char *root);

#endif
