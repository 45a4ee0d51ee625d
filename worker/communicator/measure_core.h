/*
 * Link figures: what one rank finds out alone, about its core and who it shares it with.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_CORE_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_CORE_H

#include "collectives/select/cost.h"

/* What a member tells the others; as numbers that travel. */
struct muster_core_facts {
    double machine; /* another one on another machine */
    double share;   /* the same in those that share the cores that they may use */
    double cores;   /* that it may use, by affinity and quota */
    double online;  /* that the machine has */
};

/* Reads files of the kernel. */
struct muster_core_facts muster_core_describe(void);

/* Who shares cores, from all members' facts [ranks]: fills in core->cores and core->one_machine.
 * What counts is the most crowded host, or all of them if they are one machine. Facts that cannot
 * be count as none. Pure. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_core_share(const struct muster_topology *topology,
                                               const struct muster_core_facts *facts,
                                               struct muster_core_figures *core);

/* What is reduced as it arrives is in the cache, and what it is reduced into is not. */
enum {
    MUSTER_MEASURE_SOURCE_BYTES = 256 << 10,
    MUSTER_MEASURE_TARGET_BYTES = 4 << 20,
};

/* In GB/s, the best of a few: anything else was disturbed. in is [MUSTER_MEASURE_SOURCE_BYTES], out
 * is [MUSTER_MEASURE_TARGET_BYTES]. */
void muster_core_measure(const char *in, char *out, double *ret_reduce_GBps, double *ret_copy_GBps);

#endif
