/*
 * The floor: how many cores this process may keep busy. Whoever spins, or reckons with the work of
 * several ranks at once, asks here instead of counting the machine's cores.
 */
#ifndef MUSTER_WORKER_BASE_CORES_H
#define MUSTER_WORKER_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

enum { MUSTER_CORE_MILLIS = 1000 }; /* quotas are counted in thousandths of a core */

/* The cores that the calling thread's affinity names, or as many as the CPU quota of its control
 * group and of those above pays for (rounded down), whichever is less; at least 1. Reads files:
 * to be asked once, not in a loop. */
uint32_t muster_cores_usable(void);

/* What quotas alone allow, in thousandths of a core; UINT64_MAX where there is none. `root` stands
 * before the names of the kernel's files: "" but for tests. Knows version 2 of control groups
 * (cpu.max) and version 1 (cpu.cfs_quota_us), mounted in the usual places. */
uint64_t muster_cores_quota_millis(const char *root);

/* Moves the calling thread to one of the cores that its affinity names, counted from 0 and round
 * again, and leaves the affinity as it was: the scheduler may move it on. An affinity that somebody
 * else sets meanwhile stays, unless that happens in one of two moments, of some 100 ns each,
 * between a look and a change, which the kernel cannot do at once. False: it stays, because it is
 * there, because that one is of another NUMA node, or because the kernel does not let it. Asks by a
 * thread that it starts and joins: to be called seldom. */
bool muster_cores_move(uint32_t place);

/* Between two looks at what another core writes: looking without a break keeps it back. */
static inline void muster_cores_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
