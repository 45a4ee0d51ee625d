/*
 * Link figures: the cost model that the members of a generation measured, for which hosts, and the
 * algorithms that trying found to be fastest there.
 *
 * May use: collectives, base.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_FIGURES_H
#define MUSTER_WORKER_COMMUNICATOR_FIGURES_H

#include "collectives/select/tuning.h"

struct muster_figures {
    struct muster_cost_model model;
    uint32_t levels;                /* that were measured, as bits; 0: nothing was */
    uint32_t hosts;                 /* a number for the hosts and racks that were there */
    uint32_t shape;                 /* a number for how many members each of them had */
    struct muster_tuned_list tuned; /* by all members of that shape together */
};

/* The figures of an ordinary machine, of which nothing was measured. */
void muster_figures_init(struct muster_figures *ret_figures);

/* MUSTER_INVALID: levels that do not exist, a figure that cannot be, or that no machine has: the
 * text names it. Anybody may have put them there, an older version, too. */
MUSTER_CHECKED muster_status muster_figures_check(const struct muster_figures *figures);

#endif
