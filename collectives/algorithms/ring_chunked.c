/*
 * Chunked ring allreduce: two rings of half the data each, in two lanes, 2P chunks in all. While
 * one lane reduces what it received, the other keeps the link busy, and a late message holds up
 * only half of the work. Rounds and elements are the ring's.
 *
 * Source: P. Patarasuk, X. Yuan (see ring_two_phase.c), doubly buffered as in Gloo's
 * allreduce_ring_chunked.
 *
 * Four ranks, chunks 0..3 in lane 0 and 4..7 in lane 1; rank 0's side of it:
 *
 *   lane 0   send 0, reduce 3 | send 3, reduce 2 | ... 2(P-1) rounds
 *   lane 1       send 4, reduce 7 | send 7, reduce 6 | ...
 *   time     ------------------------------------------>
 */
#include "collectives/algorithms/generators.h"

enum { LANES = 2 };

muster_status muster_ring_chunked_generate(const struct muster_plan *plan,
                                           struct muster_builder *builder)
{
    struct muster_group all = muster_group_all(plan);
    struct muster_span whole = {.count = plan->count};
    if (all.size == 1) {
        muster_ring_two_phase_part(builder, &all, MUSTER_INPUT, whole);
        return MUSTER_OK;
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        muster_builder_set_lane(builder, (uint16_t)lane);
        muster_ring_two_phase_part(builder, &all, MUSTER_INPUT,
                                   muster_span_part(whole, LANES, lane));
    }
    return MUSTER_OK;
}

void muster_ring_chunked_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    struct muster_span whole = {.count = plan->count};
    uint64_t elements = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        /* In both lanes the same rank leaves out the two smallest chunks. */
        elements += muster_ring_two_phase_part_elements(muster_span_part(whole, LANES, lane).count,
                                                        ranks, (2 * ranks - 3) % ranks);
    }
    *ret_formula = (struct muster_formula){
        .rounds =
            ranks == 1 ? plan->count > 0 : muster_ring_two_phase_part_rounds(plan->count, ranks, 0),
        .elements = elements,
        .reduced = elements / (2 * LANES)}; /* the rest hides behind the other lane */
    /* So does most of the second lane's latency, but for the posting. */
    uint64_t messages = ret_formula->rounds + ret_formula->rounds / 2;
    muster_formula_flat(plan->topology,
                        (struct muster_path){.messages = messages, .elements = elements},
                        ret_formula);
}
