/*
 * Binomial tree reduce: the broadcast's tree backward. In each round half of those that still hold
 * a part of the sum give theirs away. ceil(log2 P) rounds; partial sums live in SCRATCH, the root's
 * in OUTPUT.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c).
 *
 * Four ranks, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 <- 1    2 <- 3
 *   round 1    0 <------ 2
 */
#include "collectives/algorithms/generators.h"

muster_status muster_reduce_binomial_generate(const struct muster_plan *plan,
                                              struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t mine = (plan->rank + ranks - plan->root) % ranks;
    const struct muster_span all = {.count = plan->count};
    enum muster_buffer sum = mine == 0 ? MUSTER_OUTPUT : MUSTER_SCRATCH;
    enum muster_buffer source = MUSTER_INPUT; /* of the sum so far */
    if (ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    /* The lowest set bit says in which round the sum goes; the bits below it, who adds to it. */
    uint32_t below = mine == 0 ? muster_log2_up(ranks) : (uint32_t)__builtin_ctz(mine);
    for (uint32_t bit = 0; bit < below && mine + (UINT32_C(1) << bit) < ranks; bit++) {
        uint32_t giver = (mine + (UINT32_C(1) << bit) + plan->root) % ranks;
        if (bit == 0 && mine != 0) {
            (void)muster_builder_reserve(builder, plan->count);
        }
        muster_builder_recv_reduce(builder, giver, source, all, sum, 0);
        muster_builder_next_round(builder);
        source = sum;
    }
    if (mine != 0) {
        uint32_t taker = (mine - (UINT32_C(1) << below) + plan->root) % ranks;
        muster_builder_send(builder, taker, source, all);
    }
    return MUSTER_OK;
}

void muster_reduce_binomial_formula(const struct muster_plan *plan,
                                    struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = ranks == 1 ? 0 : plan->count,
                                           .reduced = rounds * plan->count};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = rounds * plan->count},
                        ret_formula);
}
