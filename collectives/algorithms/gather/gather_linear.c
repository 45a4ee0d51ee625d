/*
 * Linear gather and gatherv: every rank sends its block to the root, which receives all at once.
 * One round, and no element moves twice, but the root handles P - 1 messages.
 *
 * Source: E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory,
 * practice, and experience. Concurrency and Computation 19 (2007); "linear" as in Pjesivac-Grbovic
 * et al. (see reduce_linear.c).
 *
 * Four ranks, root 0:
 *
 *   round 0    0 <-- b -- 1    0 <-- c -- 2    0 <-- d -- 3    0 copies a
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    struct muster_span mine = muster_shape_output_block(&shape, plan->rank);
    struct muster_span whole = {.count = mine.count};
    if (plan->rank != plan->root) {
        muster_builder_send(builder, plan->root, MUSTER_INPUT, whole);
        return MUSTER_OK;
    }
    muster_builder_copy(builder, MUSTER_INPUT, whole, MUSTER_OUTPUT, mine.offset);
    for (uint32_t i = 1; i < shape.ranks; i++) {
        uint32_t from = (plan->root + i) % shape.ranks;
        muster_builder_recv(builder, from, MUSTER_OUTPUT, muster_shape_output_block(&shape, from));
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint64_t own = muster_shape_output_block(&shape, plan->root).count;
    uint64_t largest = 0;
    uint64_t others = 0;
    for (uint32_t rank = 0; rank < shape.ranks; rank++) {
        uint64_t count = muster_shape_output_block(&shape, rank).count;
        if (rank != plan->root) {
            largest = count > largest ? count : largest;
            others += count;
        }
    }
    *ret_formula =
        (struct muster_formula){.rounds = shape.ranks > 1 || own > 0 ? 1 : 0, .elements = largest};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = shape.ranks - 1, .elements = others},
                        ret_formula);
}

const struct muster_generator muster_gather_linear_generator = {
    .rounds_text = "1",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
