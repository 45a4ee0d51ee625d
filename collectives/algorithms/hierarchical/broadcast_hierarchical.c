/*
 * Hierarchical broadcast: from the root to one leader of each rack, from these to one leader of
 * each host, and then within each host; at each level down a binomial tree. Each host receives the
 * data over its uplink once, wherever the root is and however many ranks a host has. In a binomial
 * tree over all ranks this holds only if all hosts have the same power of two of ranks and the root
 * is rank 0.
 *
 * Source: N. Karonis, B. de Supinski, I. Foster, W. Gropp, E. Lusk, J. Bresnahan: Exploiting
 * hierarchy in parallel computer networks to optimize collective operation performance. IPDPS 2000;
 * X. Luo et al.: HAN: a hierarchical autotuned collective communication framework. CLUSTER 2020.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, root 1:
 *
 *   round 0    1 ------> 2
 *   round 1    1 -> 0    2 -> 3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/rooted.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_span span = {.count = plan->count};
    AUTO_FREE uint32_t *ranks = calloc(muster_rooted_room(plan->topology), sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for the leaders of hosts");
    }
    const struct muster_rooted rooted = muster_rooted_of(plan, ranks);
    bool is_root = plan->rank == plan->root;
    if (is_root) {
        muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, 0);
    }
    for (uint32_t i = rooted.first; i < MUSTER_ROOTED_LEVELS; i++) {
        muster_broadcast_binomial_part(builder, &rooted.levels[i].group, rooted.levels[i].root,
                                       is_root ? MUSTER_INPUT : MUSTER_OUTPUT, span);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS] = {
        muster_broadcast_binomial_totals, muster_broadcast_binomial_totals,
        muster_broadcast_binomial_totals};
    muster_rooted_formula(plan, level_totals, ret_formula);
}

const struct muster_generator muster_broadcast_hierarchical_generator = {
    .rounds_text = "ceil(log2 H) + ceil(log2 L)",
    .elements_text = "n(ceil(log2 H) + ceil(log2 L))",
    .generate = generate,
    .formula = find_formula,
};
