/*
 * Ring reduce-scatter: every block is reduced with one rank's input after the other on its way
 * around the ring, and ends at its own rank. P-1 rounds; each rank sends P-1 blocks, the least that
 * is possible. It needs scratch for two blocks: one is sent while the other is received.
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
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    uint32_t ranks = blocks.ranks;
    if (ranks == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, muster_blocks_at(&blocks, 0), MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    uint32_t next = (plan->rank + 1) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    uint64_t slot = muster_blocks_largest(&blocks);
    uint64_t scratch = ranks > 2 ? muster_builder_reserve(builder, 2 * slot) : 0;
    struct muster_span outgoing = muster_blocks_at(&blocks, previous);
    for (uint32_t round = 0; round < ranks - 1; round++) {
        uint64_t in = plan->rank + 2 * (uint64_t)ranks - 2 - round;
        struct muster_span incoming = muster_blocks_at(&blocks, in);
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
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    uint32_t ranks = blocks.ranks;
    uint64_t total = muster_blocks_total(&blocks);
    uint64_t elements = total - muster_blocks_smallest(&blocks);
    uint32_t copies = ranks == 1 && total > 0 ? 1 : 0;
    *ret_formula = (struct muster_formula){
        .rounds = ranks - 1 + copies, .elements = elements, .reduced = elements};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_reduce_scatter_ring_generator = {
    .rounds_text = "P-1",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
