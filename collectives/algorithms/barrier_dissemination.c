/*
 * Dissemination barrier: in round k every rank tells the one 2^k further on. After ceil(log2 P)
 * rounds everyone has heard, directly or not, of everyone.
 *
 * Source: D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization.
 * International Journal of Parallel Programming 17 (1988), section 3.
 *
 * Four ranks:
 *
 *   round 0    0 -> 1 -> 2 -> 3 -> 0
 *   round 1    0 -> 2, 1 -> 3, 2 -> 0, 3 -> 1
 */
#include "collectives/algorithms/generators.h"

muster_status muster_barrier_dissemination_generate(const struct muster_plan *plan,
                                                    struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    struct muster_span nothing = {0};
    for (uint32_t round = 0; round < muster_log2_up(ranks); round++) {
        uint32_t distance = UINT32_C(1) << round;
        muster_builder_send(builder, (plan->rank + distance) % ranks, MUSTER_INPUT, nothing);
        muster_builder_recv(builder, (plan->rank + ranks - distance) % ranks, MUSTER_OUTPUT,
                            nothing);
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

void muster_barrier_dissemination_formula(const struct muster_plan *plan,
                                          struct muster_formula *ret_formula)
{
    *ret_formula = (struct muster_formula){.rounds = muster_log2_up(plan->topology->ranks)};
    muster_formula_flat(plan->topology, (struct muster_path){.messages = ret_formula->rounds},
                        ret_formula);
}
