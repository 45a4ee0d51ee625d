/*
 * Linear reduce: every rank sends its whole data to the root, which receives and reduces one after
 * the other. For few ranks, and as the baseline.
 *
 * Source: J. Pjesivac-Grbovic, T. Angskun, G. Bosilca, G. E. Fagg, E. Gabriel, J. J. Dongarra:
 * Performance analysis of MPI collective operations. Cluster Computing 10 (2007) (the flat
 * tree).
 *
 * Four ranks, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 <- 1
 *   round 1    0 <- 2
 *   round 2    0 <- 3
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    struct muster_span all = {.count = plan->count};
    if (plan->rank != plan->root) {
        muster_builder_send(builder, plan->root, MUSTER_INPUT, all);
        return MUSTER_OK;
    }
    if (ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    }
    for (uint32_t i = 1; i < ranks; i++) {
        muster_builder_recv_reduce(builder, (plan->root + i) % ranks,
                                   i == 1 ? MUSTER_INPUT : MUSTER_OUTPUT, all, MUSTER_OUTPUT, 0);
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t all = (ranks - 1) * plan->count;
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : ranks - 1,
                                           .elements = ranks == 1 ? 0 : plan->count,
                                           .reduced = all};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = all}, ret_formula);
}

const struct muster_generator muster_reduce_linear_generator = {
    .rounds_text = "P-1",
    .elements_text = "n",
    .generate = generate,
    .formula = find_formula,
};
