/*
 * Pairwise alltoall(v): in round k every rank sends to the rank k further on, and receives from the
 * rank k before it. P-1 rounds; every block goes directly to its rank, so that no less can be sent.
 *
 * In place, blocks that are sent late lie where blocks are received early, so all blocks are copied
 * to scratch first.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.3.
 *
 * Four ranks; xy is the block from x for y:
 *
 *   round           0     1     2
 *   rank 0 sends    01    02    03
 *   rank 1 sends    12    13    10
 *   rank 2 sends    23    20    21
 *   rank 3 sends    30    31    32
 */
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

/* True if this rank's block for itself is at its place already. */
static bool stays(const struct muster_plan *plan, struct muster_span from, struct muster_span to)
{
    return from.count == 0 || (plan->in_place && from.offset == to.offset);
}

/* Copies the blocks that will be moved to the same places in scratch. */
static void save(const struct muster_plan *plan, struct muster_builder *builder,
                 const struct muster_blocks *blocks, bool own_too)
{
    struct muster_span all = muster_blocks_range(blocks, 0, blocks->ranks);
    (void)muster_builder_reserve(builder, all.count); /* the only scratch, so it begins at 0 */
    if (own_too) {
        muster_builder_copy(builder, MUSTER_INPUT, all, MUSTER_SCRATCH, 0);
    } else {
        struct muster_span before = muster_blocks_range(blocks, 0, plan->rank);
        struct muster_span after = muster_blocks_range(blocks, plan->rank + 1, blocks->ranks);
        muster_builder_copy(builder, MUSTER_INPUT, before, MUSTER_SCRATCH, before.offset);
        muster_builder_copy(builder, MUSTER_INPUT, after, MUSTER_SCRATCH, after.offset);
    }
    muster_builder_next_round(builder);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks outgoing = muster_blocks_of_input(plan);
    const struct muster_blocks incoming = muster_blocks_of_output(plan);
    uint32_t ranks = outgoing.ranks;
    struct muster_span own = muster_blocks_at(&outgoing, plan->rank);
    struct muster_span place = muster_blocks_at(&incoming, plan->rank);
    bool moves = !stays(plan, own, place);
    enum muster_buffer source = MUSTER_INPUT;
    if (plan->in_place) {
        save(plan, builder, &outgoing, moves);
        source = MUSTER_SCRATCH;
    }
    if (moves) {
        muster_builder_copy(builder, source, own, MUSTER_OUTPUT, place.offset);
    }
    for (uint32_t distance = 1; distance < ranks; distance++) {
        uint32_t to = (plan->rank + distance) % ranks;
        uint32_t from = (plan->rank + ranks - distance) % ranks;
        muster_builder_send(builder, to, source, muster_blocks_at(&outgoing, to));
        muster_builder_recv(builder, from, MUSTER_OUTPUT, muster_blocks_at(&incoming, from));
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks outgoing = muster_blocks_of_input(plan);
    const struct muster_blocks incoming = muster_blocks_of_output(plan);
    uint32_t ranks = outgoing.ranks;
    struct muster_span own = muster_blocks_at(&outgoing, plan->rank);
    bool moves = !stays(plan, own, muster_blocks_at(&incoming, plan->rank));
    uint64_t elements = muster_blocks_total(&outgoing) - own.count;
    uint32_t saves = plan->in_place && (elements > 0 || moves) ? 1 : 0;
    uint32_t exchanges = ranks == 1 ? (moves ? 1 : 0) : ranks - 1;
    *ret_formula = (struct muster_formula){.rounds = saves + exchanges, .elements = elements};
    muster_formula_exchange(plan->topology, elements, ret_formula);
}

const struct muster_generator muster_alltoall_pairwise_generator = {
    .rounds_text = "P-1; in place P",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
