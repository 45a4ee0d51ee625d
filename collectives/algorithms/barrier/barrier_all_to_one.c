/*
 * Central barrier: every rank sends an empty message to rank 0, which answers all of them when it
 * has received all. Two rounds and 2(P - 1) messages in all, the fewest that are possible; but rank
 * 0 handles each of them.
 *
 * Source: J. Mellor-Crummey, M. Scott: Algorithms for scalable synchronization on shared-memory
 * multiprocessors. ACM Transactions on Computer Systems 9 (1991) (the centralized barrier, by
 * messages).
 *
 * Four ranks:
 *
 *   round 0    0 <- 1    0 <- 2    0 <- 3
 *   round 1    0 -> 1    0 -> 2    0 -> 3
 */
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    const struct muster_span nothing = {.count = 0};
    if (plan->rank != 0) {
        muster_builder_send(builder, 0, MUSTER_INPUT, nothing);
        muster_builder_next_round(builder);
        muster_builder_recv(builder, 0, MUSTER_OUTPUT, nothing);
        return MUSTER_OK;
    }
    for (uint32_t rank = 1; rank < ranks; rank++) {
        muster_builder_recv(builder, rank, MUSTER_OUTPUT, nothing);
    }
    muster_builder_next_round(builder);
    for (uint32_t rank = 1; rank < ranks; rank++) {
        muster_builder_send(builder, rank, MUSTER_INPUT, nothing);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t others = plan->topology->ranks - 1;
    *ret_formula = (struct muster_formula){.rounds = others > 0 ? 2 : 0};
    muster_formula_flat(plan->topology, (struct muster_path){.messages = 2 * (uint64_t)others},
                        ret_formula);
}

const struct muster_generator muster_barrier_all_to_one_generator = {
    .rounds_text = "2",
    .elements_text = "0",
    .generate = generate,
    .formula = find_formula,
};
