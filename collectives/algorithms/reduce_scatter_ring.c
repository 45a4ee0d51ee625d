/*
 * Ring reduce-scatter: every block collects one contribution after another on its way around the
 * ring and ends where it belongs. P-1 rounds, each rank sends P-1 blocks: the least there can be.
 * Two blocks of scratch: one is sent while the other is filled.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.2, as a ring.
 *
 * Four ranks; a digit is a block, and each rank sends to the next, which reduces:
 *
 *   round           0     1     2
 *   rank 0 sends    3     2     1
 *   rank 1 sends    0     3     2
 *   rank 2 sends    1     0     3
 *   rank 3 sends    2     1     0
 */
#include "collectives/algorithms/generators.h"

/* The two blocks of scratch take turns. */
static struct muster_span partial(uint64_t scratch, uint64_t count, uint32_t round)
{
    return (struct muster_span){.offset = scratch + (round % 2) * count, .count = count};
}

muster_status muster_reduce_scatter_ring_generate(const struct muster_plan *plan,
                                                  struct muster_builder *builder)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t count = plan->count;
    struct muster_span mine = {.offset = plan->rank * count, .count = count};
    if (ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    uint32_t next = (plan->rank + 1) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    uint64_t scratch = muster_builder_reserve(builder, (ranks > 2 ? 2 : 1) * count);
    for (uint32_t round = 0; round < ranks - 1; round++) {
        uint64_t in = (plan->rank + 2 * (uint64_t)ranks - 2 - round) % ranks;
        struct muster_span incoming = {.offset = in * count, .count = count};
        if (round == 0) {
            uint64_t out = (in + 1) % ranks;
            muster_builder_send(builder, next, MUSTER_INPUT,
                                (struct muster_span){.offset = out * count, .count = count});
        } else {
            muster_builder_send(builder, next, MUSTER_SCRATCH, partial(scratch, count, round - 1));
        }
        /* In place, OUTPUT is the first block of INPUT: with two ranks it is still being sent when
         * the result comes, which therefore waits in scratch. */
        bool last = round == ranks - 2 && ranks > 2;
        muster_builder_recv_reduce(builder, previous, MUSTER_INPUT, incoming,
                                   last ? MUSTER_OUTPUT : MUSTER_SCRATCH,
                                   last ? 0 : partial(scratch, count, round).offset);
        muster_builder_next_round(builder);
    }
    if (ranks == 2) {
        muster_builder_copy(builder, MUSTER_SCRATCH, partial(scratch, count, 0), MUSTER_OUTPUT, 0);
    }
    return MUSTER_OK;
}

void muster_reduce_scatter_ring_formula(const struct muster_plan *plan,
                                        struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t elements = (ranks - 1) * plan->count;
    uint32_t copies = ranks <= 2 && plan->count > 0 ? 1 : 0;
    *ret_formula = (struct muster_formula){
        .rounds = ranks - 1 + copies, .elements = elements, .reduced = elements};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}
