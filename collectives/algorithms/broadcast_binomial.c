/*
 * Binomial tree broadcast: in each round everyone who has the data gives it to one who lacks it.
 * ceil(log2 P) rounds; the root sends in each of them.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.3.
 *
 * Four ranks, root 0 (with another root, ranks count from it):
 *
 *   round 0    0 ------> 2
 *   round 1    0 -> 1    2 -> 3
 */
#include "collectives/algorithms/generators.h"

muster_status muster_broadcast_binomial_generate(const struct muster_plan *plan,
                                                 struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t mine = (plan->rank + ranks - plan->root) % ranks;
    struct muster_span all = {.count = plan->count};
    enum muster_buffer source = MUSTER_OUTPUT;
    /* The lowest set bit says in which round the data comes; the bits below it, who gets it next.
     */
    uint32_t below = muster_log2_up(ranks);
    if (mine == 0) {
        source = MUSTER_INPUT;
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_OUTPUT, 0);
    } else {
        below = (uint32_t)__builtin_ctz(mine);
        uint32_t giver = (mine - (UINT32_C(1) << below) + plan->root) % ranks;
        muster_builder_recv(builder, giver, MUSTER_OUTPUT, all);
        muster_builder_next_round(builder);
    }
    while (below-- > 0) {
        uint32_t taker = mine + (UINT32_C(1) << below);
        if (taker < ranks) {
            muster_builder_send(builder, (taker + plan->root) % ranks, source, all);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

void muster_broadcast_binomial_formula(const struct muster_plan *plan,
                                       struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : rounds,
                                           .elements = rounds * plan->count};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = rounds, .elements = ret_formula->elements},
                        ret_formula);
}
