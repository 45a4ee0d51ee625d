/*
 * The agreement of a group's members on link figures: they adopt the choice of rank 0 of the
 * topology, which may be that all measure together.
 *
 * May use: context, fabric, collectives, base. May not know: the session, the service.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_FIGURES_AGREEMENT_H
#define MUSTER_WORKER_COMMUNICATOR_FIGURES_AGREEMENT_H

#include "worker/communicator/figures.h"
#include "worker/communicator/measure.h"

enum { MUSTER_FIGURES_CONTEXTS = 1 + MUSTER_MEASURE_CONTEXTS }; /* context numbers that it uses */

struct muster_figures_group {
    struct muster_fabric *fabric; /* borrowed; has begun the generation */
    uint64_t generation;
    uint32_t context;                       /* the first of MUSTER_FIGURES_CONTEXTS numbers */
    const struct muster_topology *topology; /* of all members */
    uint32_t rank;                          /* in the topology */
    const uint32_t *peers;               /* [topology->ranks] the global rank of each; borrowed */
    uint32_t hosts_digest, shape_digest; /* of these members: see struct muster_figures */
    uint32_t timeout_ms;                 /* for the broadcast, and again for measuring */
};

/* Called by all members alike; rank 0's choice replaces that of the others. Impossible figures
 * are replaced by the default ones on all members alike, since all hold the same bytes; rank 0 logs
 * that. Tuned algorithms of another group are dropped. Blocks. MUSTER_REJOIN: a member
 * died, or was missing at the deadline; ret_suspect as in muster_context_run(). MUSTER_FATAL: the
 * choice cannot be decoded (figures_wire.h). */
MUSTER_CHECKED muster_status muster_figures_agree(const struct muster_figures_group *group,
                                                  struct muster_figures_choice *choice,
                                                  uint32_t *ret_suspect);

#endif
