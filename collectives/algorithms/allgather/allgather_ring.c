/*
 * Ring allgather(v): every block travels once around the ring. P-1 rounds; each rank sends P-1
 * blocks, the least that is possible.
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
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t ranks = blocks.ranks;
    uint32_t next = (plan->rank + 1) % ranks;
    uint32_t previous = (plan->rank + ranks - 1) % ranks;
    struct muster_span place = muster_blocks_at(&blocks, plan->rank);
    struct muster_span mine = {.count = place.count};
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, place.offset);
    for (uint32_t round = 0; round + 1 < ranks; round++) {
        uint64_t out = (plan->rank + (uint64_t)ranks - round) % ranks;
        struct muster_span outgoing = muster_blocks_at(&blocks, out);
        struct muster_span incoming = muster_blocks_at(&blocks, out + ranks - 1);
        if (round == 0) {
            muster_builder_send(builder, next, MUSTER_INPUT,
                                mine); /* its copy is made in this round */
        } else {
            muster_builder_send(builder, next, MUSTER_OUTPUT, outgoing);
        }
        muster_builder_recv(builder, previous, MUSTER_OUTPUT, incoming);
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

/* Every rank sends all blocks but the next rank's. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t ranks = blocks.ranks;
    uint64_t total = muster_blocks_total(&blocks);
    uint64_t elements = total - muster_blocks_smallest(&blocks);
    *ret_formula =
        (struct muster_formula){.rounds = ranks == 1 ? total > 0 : ranks - 1, .elements = elements};
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = ranks - 1, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_allgather_ring_generator = {
    .rounds_text = "P-1",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
