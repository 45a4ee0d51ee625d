/*
 * One-to-all broadcast: the root sends the whole data to every rank at once. One round, but the
 * root sends P - 1 times the data. This is the baseline for the other algorithms.
 *
 * Source: J. Pjesivac-Grbovic et al. (see reduce_linear.c) (the flat tree).
 *
 * Four ranks, root 0:
 *
 *   round 0    0 ---> 1    0 ---> 2    0 ---> 3
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    const struct muster_span all = {.count = plan->count};
    if (plan->rank != plan->root) {
        muster_builder_recv(builder, plan->root, MUSTER_OUTPUT, all);
        return MUSTER_OK;
    }
    muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    for (uint32_t i = 1; i < ranks; i++) {
        muster_builder_send(builder, (plan->root + i) % ranks, MUSTER_INPUT, all);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t elements = (ranks - 1) * plan->count;
    *ret_formula = (struct muster_formula){.rounds = ranks > 1 || plan->count > 0 ? 1 : 0,
                                           .elements = elements};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_broadcast_one_to_all_generator = {
    .rounds_text = "1",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
