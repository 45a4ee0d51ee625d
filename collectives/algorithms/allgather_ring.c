/*
 * Ring allgather: every block travels once around the ring. P-1 rounds, each rank sends P-1 blocks:
 * the least there can be.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations
 * in MPICH. International Journal of High Performance Computing Applications 19 (2005),
 * section 4.1.
 *
 * Four ranks; a digit is a block, and each rank sends to the next:
 *
 *   round           0     1     2
 *   rank 0 sends    0     3     2
 *   rank 1 sends    1     0     3
 *   rank 2 sends    2     1     0
 *   rank 3 sends    3     2     1
 */
#include "collectives/algorithms/generators.h"

muster_status muster_allgather_ring_generate(const struct muster_plan *plan,
                                             struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t next = (plan->rank + 1) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    struct muster_span mine = {.count = plan->count};
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, plan->rank * plan->count);
    for (uint32_t round = 0; round + 1 < ranks; round++) {
        uint64_t out = (plan->rank + ranks - round) % ranks;
        uint64_t in = (out + ranks - 1) % ranks;
        struct muster_span outgoing = {.offset = out * plan->count, .count = plan->count};
        struct muster_span incoming = {.offset = in * plan->count, .count = plan->count};
        if (round == 0) {
            muster_builder_send(builder, next, MUSTER_INPUT, mine);
        } else {
            muster_builder_send(builder, next, MUSTER_OUTPUT, outgoing);
        }
        muster_builder_recv(builder, previous, MUSTER_OUTPUT, incoming);
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

void muster_allgather_ring_formula(const struct muster_plan *plan,
                                   struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t elements = (ranks - 1) * plan->count;
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? plan->count > 0 : ranks - 1,
                                           .elements = elements};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}
