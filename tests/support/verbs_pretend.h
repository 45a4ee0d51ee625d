/*
 * Two pretended RDMA devices: they replace the functions of libibverbs, so that the RDMA transport
 * runs on any machine. A thread is their network. It delivers posted sends and acknowledgements in
 * a random order: chance decides which queue pair is served next. It accesses memory only through
 * registrations, and counts violations of the rules.
 *
 * For a whole program, before its first fabric; any thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_H

#include "tests/support/gpu_pretend.h"

#include <stdbool.h>
#include <stdint.h>

/* Devices "pretend0" and "pretend1". False where libibverbs cannot be loaded. */
bool verbs_pretend_start(unsigned seed);
void verbs_pretend_stop(void);

/* Moves up to `count` established connections, chosen at random, to the error state, each at one
 * end or at both. Returns how many it moved. */
uint32_t verbs_pretend_break(uint32_t count);

/* From now on one of `one_of` frames and acknowledgements makes its connection fail: at one end, at
 * both, or silently, so that nothing is delivered any more. 0: none does. */
void verbs_pretend_roughness(uint32_t one_of);

/* After `count` more connections, each new one fails silently before the first frame of the
 * accepting end is delivered: it is open at that end, and never at the connecting end. UINT32_MAX:
 * none fails so. */
void verbs_pretend_live(uint32_t count);

/* The next `count` queue pairs cannot be connected. */
void verbs_pretend_refuse(uint32_t count);

/* Violations so far: sends from unregistered memory, frames without a posted receive, writes to
 * memory that is not registered for them. */
uint32_t verbs_pretend_violations(void);

/* Sets by which of these ways the devices can register memory of the pretended GPU. */
enum { VERBS_PRETEND_DMABUF = 1, VERBS_PRETEND_PEERMEM = 2 };
void verbs_pretend_gpu(const struct gpu_pretend *gpu, unsigned ways);

/* Registrations of such memory: attempts, those that exist now, and those that were made by each
 * way. */
struct verbs_pretend_gpu_figures {
    uint32_t attempts, held, by_dmabuf, by_peermem;
};
struct verbs_pretend_gpu_figures verbs_pretend_gpu_figures(void);

/* Frames, acknowledgements and flushes that the network has processed. */
uint64_t verbs_pretend_steps(void);

#endif
