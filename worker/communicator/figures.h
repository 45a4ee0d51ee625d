/*
 * Link figures: the cost model that the members of a generation measured, on which hosts, and the
 * algorithms that autotune found to be the fastest there.
 *
 * May use: measure_pairs, collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_FIGURES_H
#define MUSTER_WORKER_COMMUNICATOR_FIGURES_H

#include "collectives/select/tuning.h"

struct muster_figures {
    struct muster_cost_model model;
    uint32_t levels;                /* that were measured, as bits 1 << enum muster_link_level */
    uint32_t hosts_digest;          /* of the names of the hosts and racks they were measured on */
    uint32_t shape_digest;          /* of the number of members on each of these hosts */
    struct muster_tuned_list tuned; /* by all members of that shape together */
};

/* What rank 0 decides for all members. */
struct muster_figures_choice {
    struct muster_figures figures;
    bool measure;  /* all measure now, and the result replaces `figures` */
    bool autotune; /* contexts autotune */
    bool outdated; /* the figures are those of other hosts or of another number of members, and the
                      next commit replaces them */
};

/* The default cost model; nothing was measured. */
void muster_figures_init(struct muster_figures *ret_figures);

/* MUSTER_INVALID names what is impossible: levels that do not exist, a figure that no machine has.
 * Figures come from outside (any client of the service may store them, also an older version), so
 * they are checked before use. */
MUSTER_CHECKED muster_status muster_figures_check(const struct muster_figures *figures);

/* True if the figures were measured on the hosts of these digests, for every level that the
 * topology has. */
bool muster_figures_match(const struct muster_figures *figures,
                          const struct muster_topology *topology, uint32_t hosts_digest,
                          uint32_t shape_digest);

#endif
