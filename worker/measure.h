/*
 * Link figures: what the links of each level and the cores can do, measured by all members of a
 * generation together, for the cost model. A few tens of milliseconds.
 *
 * At each level pairs of ranks measure at the same time: first one pair between two neighbours
 * (latency, posting, a port's bandwidth), then all pairs that share something (what is shared).
 * Then everybody gets everybody's figures and takes the medians, so that all have the same, and no
 * slow rank spoils them.
 *
 * May use: context, executor, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_MEASURE_H
#define MUSTER_WORKER_MEASURE_H

#include "worker/context.h"

enum { MUSTER_MEASURE_CONTEXTS = 2 }; /* numbers that it uses */

struct muster_measure_options {
    struct muster_fabric *fabric; /* borrowed; has begun the generation */
    uint64_t generation;
    uint32_t context;                       /* the first of its numbers */
    const struct muster_topology *topology; /* of all members */
    uint32_t rank;
    int64_t deadline_ns;
};

/* The levels that links between these ranks have, as bits 1 << enum muster_link_level. */
unsigned muster_measure_levels(const struct muster_topology *topology);

/* Called by all members alike. *ret_model must hold a model: levels that the topology lacks keep
 * their figures. MUSTER_REJOIN: a member died, or was not there before the deadline; ret_suspect as
 * in muster_context_run(). */
MUSTER_CHECKED muster_status muster_measure(const struct muster_measure_options *options,
                                            struct muster_cost_model *ret_model,
                                            uint32_t *ret_suspect);

#endif
