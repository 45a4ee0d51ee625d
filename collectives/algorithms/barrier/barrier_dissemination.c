/*
 * Dissemination barrier: in round k every rank sends an empty message to the rank 2^k further on.
 * After ceil(log2 P) rounds every rank knows, directly or not, that all ranks have entered.
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

void muster_barrier_dissemination_part(struct muster_builder *builder,
                                       const struct muster_group *group)
{
    const struct muster_span nothing = {.count = 0};
    for (uint32_t round = 0; round < muster_log2_up(group->size); round++) {
        uint64_t distance = UINT64_C(1) << round;
        muster_builder_send(builder, muster_group_rank(group, group->index + distance),
                            MUSTER_INPUT, nothing);
        muster_builder_recv(builder,
                            muster_group_rank(group, group->index + group->size - distance),
                            MUSTER_OUTPUT, nothing);
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    muster_barrier_dissemination_part(builder, &all);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    *ret_formula = (struct muster_formula){.rounds = muster_log2_up(plan->topology->ranks)};
    muster_formula_flat(plan->topology, (struct muster_path){.messages = ret_formula->rounds},
                        ret_formula);
}

const struct muster_generator muster_barrier_dissemination_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "0",
    .generate = generate,
    .formula = find_formula,
};
