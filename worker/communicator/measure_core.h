/*
 * Link figures: what one rank measures alone about its core, and how many ranks share how many
 * cores.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_CORE_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_CORE_H

#include "collectives/select/cost.h"

/* The cores that a member may use, as all members describe them to each other. */
struct muster_core_description {
    double machine;  /* a digest of the machine's boot id */
    double core_set; /* a digest: the same for members that share the cores they may use */
    double cores;    /* that it may use, by affinity and quota */
    double online;   /* that the machine has */
};

/* Of this process. Reads files of the kernel. */
struct muster_core_description muster_core_describe(void);

/* From all members' descriptions [ranks] fills in core->cores, the number of cores that ranks share
 * (0: each has its own), and core->one_machine. The most crowded host counts, or all hosts together
 * if they are one machine. Impossible descriptions are ignored. Pure. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_core_count_shared(
    const struct muster_topology *topology, const struct muster_core_description *descriptions,
    struct muster_core_figures *core);

/* Data that is reduced as it arrives is in the cache; the buffer that it is reduced into is not. */
enum {
    MUSTER_MEASURE_SOURCE_BYTES = 256 << 10,
    MUSTER_MEASURE_TARGET_BYTES = 4 << 20,
};

/* The best of a few repeats, as slower ones were disturbed. in: [MUSTER_MEASURE_SOURCE_BYTES], out:
 * [MUSTER_MEASURE_TARGET_BYTES]. */
void muster_core_measure(const char *in, char *out, double *ret_reduce_GBps, double *ret_copy_GBps);

#endif
