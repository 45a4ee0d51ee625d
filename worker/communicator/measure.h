/*
 * Link figures: what the links of each level and the cores can do, for the cost model. The members
 * of a generation measure them together, in some 10 ms where each rank has a core, and in some 60
 * ms between hosts with slow links or where ranks share cores.
 *
 *   1. An allgather of all members shows which cores each may use.
 *   2. A few pairs of ranks measure each level (measure_pairs.h): first pairs that share no
 *      resource (latency, posting, the bandwidth of a port), then all pairs that share a resource:
 *      the memory of a host, the port of a host, the uplink of a rack. The other ranks wait.
 *   3. The ranks that measured exchange their results and take the medians. Rank 0 broadcasts
 *      them, so that all members have the same figures.
 *
 * Only steps 1 and 3 involve all members; the work of step 2 does not grow with the job.
 *
 * May use: context, executor, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_H

#include "worker/communicator/measure_pairs.h"
#include "worker/context/context.h"

enum { MUSTER_MEASURE_CONTEXTS = 3 }; /* context numbers that it uses */

struct muster_measure_options {
    struct muster_fabric *fabric; /* borrowed; has begun the generation */
    uint64_t generation;
    uint32_t context;                       /* the first of these numbers */
    const struct muster_topology *topology; /* of all members */
    uint32_t rank;                          /* in the topology */
    const uint32_t *peers; /* [topology->ranks] the global rank of each; borrowed */
    int64_t deadline_ns;
};

/* Called by all members alike. Blocks. *ret_model must hold a model: levels that the topology lacks
 * keep their figures. MUSTER_REJOIN: a member died, or was missing at the deadline; ret_suspect as
 * in muster_context_run(). */
MUSTER_CHECKED muster_status muster_measure(const struct muster_measure_options *options,
                                            struct muster_cost_model *ret_model,
                                            uint32_t *ret_suspect);

#endif
