/*
 * Two RDMA devices that there are not: stands in for libibverbs, so that the RDMA transport runs on
 * any machine. A thread is their network. It carries what is posted, and brings acknowledgements,
 * in an order of its own: chance decides which queue pair has its turn. What it does to memory it
 * does only through registrations, and counts what breaks the rules.
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

/* Moves that many connections, chosen by chance among those that stand, to the state of error, each
 * at one end or at both. Gives how many it were. */
uint32_t verbs_pretend_break(uint32_t count);

/* From now on a connection fails with one of so many frames and acknowledgements: at one end, at
 * both, or so that nothing gets through. 0: none does. */
void verbs_pretend_roughness(uint32_t one_of);

/* After so many more, connections fail before the end that was called has got anything through: for
 * that end they are open, for the one that called they never are. UINT32_MAX: none does. */
void verbs_pretend_live(uint32_t count);

/* So many more queue pairs cannot be connected. */
void verbs_pretend_refuse(uint32_t count);

/* Sends of unregistered memory, receives that there are not, writes beyond what may be written. */
uint32_t verbs_pretend_offences(void);

/* How the devices can read memory of the pretended GPU, from now on: in neither way, or in one or
 * both. */
enum { VERBS_PRETEND_DMABUF = 1, VERBS_PRETEND_PEERMEM = 2 };
void verbs_pretend_gpu(const struct gpu_pretend *gpu, unsigned ways);

/* Registrations of such memory: how often the devices were asked, how many they have now, and how
 * many they made in one way. */
struct verbs_pretend_gpu_figures {
    uint32_t asked, held, by_dmabuf, by_peermem;
};
struct verbs_pretend_gpu_figures verbs_pretend_gpu_figures(void);

/* Frames, acknowledgements and flushes that the network has dealt with. */
uint64_t verbs_pretend_steps(void);

#endif
