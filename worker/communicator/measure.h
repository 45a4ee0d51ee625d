/*
 * Link figures: what the links of each level and the cores can do, measured by the members of a
 * generation together, for the cost model. Some 10 ms where each rank has a core, some 40 where
 * links are slow or ranks share cores.
 *
 * All tell each other which cores they may use. Then a few pairs of ranks at each level measure
 * (measure_pairs.h), first by themselves (latency, posting, a port's bandwidth), then all that
 * share something (what is shared); the others wait. Those who measured take the medians of what
 * they found, and rank 0 tells everybody, so that all have the same. All but the first and the last
 * step is done by a few ranks, however many there are.
 *
 * May use: context, executor, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEASURE_H
#define MUSTER_WORKER_COMMUNICATOR_MEASURE_H

#include "worker/communicator/measure_pairs.h"
#include "worker/context/context.h"

enum { MUSTER_MEASURE_CONTEXTS = 3 }; /* numbers that it uses */

struct muster_measure_options {
    struct muster_fabric *fabric; /* borrowed; has begun the generation */
    uint64_t generation;
    uint32_t context;                       /* the first of its numbers */
    const struct muster_topology *topology; /* of all members */
    uint32_t rank;
    int64_t deadline_ns;
};

/* Called by all members alike. *ret_model must hold a model: levels that the topology lacks keep
 * their figures. MUSTER_REJOIN: a member died, or was not there before the deadline; ret_suspect as
 * in muster_context_run(). */
MUSTER_CHECKED muster_status muster_measure(const struct muster_measure_options *options,
                                            struct muster_cost_model *ret_model,
                                            uint32_t *ret_suspect);

#endif
