/*
 * Hierarchical reduce: from the ranks of each host to a leader, from these leaders to one in each
 * rack, and from those to the root; at each level up a binomial tree. It is the hierarchical
 * broadcast backward: each host sends the data over its uplink once.
 *
 * Source: as broadcast_hierarchical.c.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, root 1:
 *
 *   round 0    1 <- 0    2 <- 3
 *   round 1    1 <------ 2
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/rooted.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    AUTO_FREE uint32_t *ranks = calloc(muster_rooted_room(plan->topology), sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for the leaders of hosts");
    }
    const struct muster_rooted rooted = muster_rooted_of(plan, ranks);
    enum muster_buffer held = MUSTER_INPUT;
    for (uint32_t i = MUSTER_ROOTED_LEVELS; i-- > rooted.first;) {
        held =
            muster_reduce_binomial_part(builder, &rooted.levels[i].group, rooted.levels[i].root,
                                        held, (struct muster_span){.count = plan->count},
                                        plan->rank == plan->root ? MUSTER_OUTPUT : MUSTER_SCRATCH);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS] = {muster_reduce_binomial_totals,
                                                                     muster_reduce_binomial_totals,
                                                                     muster_reduce_binomial_totals};
    muster_rooted_formula(plan, level_totals, ret_formula);
}

const struct muster_generator muster_reduce_hierarchical_generator = {
    .rounds_text = "ceil(log2 H) + ceil(log2 L)",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
