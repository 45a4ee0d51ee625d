/*
 * Linear scatter: the root sends every rank its block, all at once. One round, and no element moves
 * twice, but the root handles P - 1 messages.
 *
 * Source: as in gather_linear.c, whose messages go in the opposite direction.
 *
 * Four ranks, root 0:
 *
 *   round 0    0 -- b --> 1    0 -- c --> 2    0 -- d --> 3    0 copies a
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    if (plan->rank != plan->root) {
        muster_builder_recv(builder, plan->root, MUSTER_OUTPUT,
                            (struct muster_span){.count = plan->count});
        return MUSTER_OK;
    }
    muster_builder_copy(builder, MUSTER_INPUT, muster_shape_input_block(&shape, plan->root),
                        MUSTER_OUTPUT, 0);
    for (uint32_t i = 1; i < shape.ranks; i++) {
        uint32_t to = (plan->root + i) % shape.ranks;
        muster_builder_send(builder, to, MUSTER_INPUT, muster_shape_input_block(&shape, to));
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    *ret_formula = (struct muster_formula){.rounds = ranks > 1 || plan->count > 0 ? 1 : 0,
                                           .elements = (ranks - 1) * plan->count};
    muster_formula_flat(
        plan->topology,
        (struct muster_path){.messages = ranks - 1, .elements = ret_formula->elements},
        ret_formula);
}

const struct muster_generator muster_scatter_linear_generator = {
    .rounds_text = "1",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
