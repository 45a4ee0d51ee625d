/*
 * Two simulated RDMA devices, which replace libibverbs, so that the RDMA transport runs on any
 * machine. A thread is their network: it carries posted sends and returns acknowledgements, and
 * chance decides which queue pair has its turn. It touches memory only through registrations, and
 * counts violations of the rules.
 *
 * For a whole program, before its first fabric; any thread.
 */
#ifndef MUSTER_TESTS_SUPPORT_VERBS_PRETEND_H
#define MUSTER_TESTS_SUPPORT_VERBS_PRETEND_H

#include "tests/support/gpu_pretend.h"

#include <stdbool.h>
#include <stdint.h>

/* Devices "pretend0" and "pretend1". False: libibverbs cannot be loaded. */
bool verbs_pretend_start(unsigned seed);
void verbs_pretend_stop(void);

/* Moves that many connections, chosen by chance, to the error state, each at one end or at both.
 * Returns how many. */
uint32_t verbs_pretend_break(uint32_t count);

/* From now on a connection fails once in so many frames and acknowledgements: at one end, at both,
 * or silently. 0: none fails. */
void verbs_pretend_roughness(uint32_t one_of);

/* After so many more connections, they fail before anything from the acceptor gets through: they
 * are open for the acceptor, and never for the dialler. UINT32_MAX: none does. */
void verbs_pretend_live(uint32_t count);

/* The next so many queue pairs cannot be connected. */
void verbs_pretend_refuse(uint32_t count);

/* Violations: sends of unregistered memory, sends without a receive, writes out of bounds. */
uint32_t verbs_pretend_violations(void);

/* How the devices can read memory of the simulated GPU from now on: in no way, one way, or both. */
enum { VERBS_PRETEND_DMABUF = 1, VERBS_PRETEND_PEERMEM = 2 };
void verbs_pretend_gpu(const struct gpu_pretend *gpu, unsigned ways);

/* Registrations of GPU memory: how many were tried, how many exist, and how many were made in one
 * way. */
struct verbs_pretend_gpu_figures {
    uint32_t asked, held, by_dmabuf, by_peermem;
};
struct verbs_pretend_gpu_figures verbs_pretend_gpu_figures(void);

/* Frames, acknowledgements and flushes that the network has handled. */
uint64_t verbs_pretend_steps(void);

#endif
