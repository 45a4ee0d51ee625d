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

static uint64_t largest_block(const struct muster_shape *shape)
{
    uint64_t largest = 0;
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        uint64_t count = muster_shape_input_block(shape, rank).count;
        largest = count > largest ? count : largest;
    }
    return largest;
}

muster_status muster_reduce_scatter_ring_generate(const struct muster_plan *plan,
                                                  struct muster_builder *builder)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint32_t ranks = shape.ranks;
    struct muster_span mine = muster_shape_input_block(&shape, plan->rank);
    if (ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    uint32_t next = (plan->rank + 1) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    uint64_t slot = largest_block(&shape);
    uint64_t scratch = ranks > 2 ? muster_builder_reserve(builder, 2 * slot) : 0;
    struct muster_span outgoing = muster_shape_input_block(&shape, previous);
    for (uint32_t round = 0; round < ranks - 1; round++) {
        uint64_t in = (plan->rank + 2 * (uint64_t)ranks - 2 - round) % ranks;
        struct muster_span incoming = muster_shape_input_block(&shape, (uint32_t)in);
        uint64_t place = scratch + (round % 2) * slot;
        bool last = round == ranks - 2;
        muster_builder_send(builder, next, round == 0 ? MUSTER_INPUT : MUSTER_SCRATCH, outgoing);
        muster_builder_recv_reduce(builder, previous, MUSTER_INPUT, incoming,
                                   last ? MUSTER_OUTPUT : MUSTER_SCRATCH, last ? 0 : place);
        outgoing = (struct muster_span){.offset = place, .count = incoming.count};
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

/* Every rank sends all blocks but its own. */
void muster_reduce_scatter_ring_formula(const struct muster_plan *plan,
                                        struct muster_formula *ret_formula)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint32_t ranks = shape.ranks;
    uint64_t all = 0;
    uint64_t smallest = UINT64_MAX;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint64_t count = muster_shape_input_block(&shape, rank).count;
        all += count;
        smallest = count < smallest ? count : smallest;
    }
    uint64_t elements = all - smallest;
    uint32_t copies = ranks == 1 && all > 0 ? 1 : 0;
    *ret_formula = (struct muster_formula){
        .rounds = ranks - 1 + copies, .elements = elements, .reduced = elements};
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}
