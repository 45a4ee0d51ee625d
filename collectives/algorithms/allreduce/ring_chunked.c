/*
 * Chunked ring allreduce: two rings with half of the data each, in two lanes, 2P chunks in all.
 * While one lane reduces what it received, the other one keeps the link busy, and a late message
 * delays only half of the work. Rounds and elements are those of one ring.
 *
 * Source: P. Patarasuk, X. Yuan (see ring.c), doubly buffered as in Gloo's allreduce_ring_chunked.
 *
 * Four ranks, chunks 0..3 in lane 0 and 4..7 in lane 1; what rank 0 does:
 *
 *   lane 0   send 0, reduce 3 | send 3, reduce 2 | ... 2(P-1) rounds
 *   lane 1       send 4, reduce 7 | send 7, reduce 6 | ...
 *   time     ------------------------------------------>
 *
 * As a part of another algorithm, which has one lane, both rings share the rounds: while one chunk
 * is reduced, the other is in flight.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum { LANES = 2 };

void muster_ring_halves_part(struct muster_builder *builder, const struct muster_group *group,
                             enum muster_buffer source, struct muster_span span, bool opposite)
{
    if (group->size == 1) {
        muster_builder_copy(builder, source, span, MUSTER_OUTPUT, span.offset);
        return;
    }
    for (uint32_t round = 0; round < 2 * (group->size - 1); round++) {
        for (uint32_t half = 0; half < 2; half++) {
            muster_ring_round(builder, group, source, muster_span_part(span, 2, half), round,
                              opposite && half == 1);
        }
        muster_builder_next_round(builder);
    }
}

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    muster_ring_halves_part(builder, group, source, span, false);
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    struct muster_span whole = {.count = count};
    uint64_t elements = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        elements +=
            muster_ring_part_elements(muster_span_part(whole, LANES, lane).count, size, index);
    }
    return elements;
}

static uint32_t part_rounds(uint64_t count, uint32_t size, uint32_t index)
{
    return muster_ring_part_rounds(count, size, index);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct muster_group all = muster_group_all(plan);
    struct muster_span whole = {.count = plan->count};
    if (all.size == 1) {
        muster_ring_part(builder, &all, MUSTER_INPUT, whole);
        return MUSTER_OK;
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        muster_builder_set_lane(builder, (uint16_t)lane);
        muster_ring_part(builder, &all, MUSTER_INPUT, muster_span_part(whole, LANES, lane));
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    /* The busiest rank is that which leaves out the two smallest chunks; in both lanes it is the
     * same. */
    uint64_t elements = part_elements(plan->count, ranks, (2 * ranks - 3) % ranks);
    *ret_formula = (struct muster_formula){
        .rounds = ranks == 1 ? plan->count > 0 : muster_ring_part_rounds(plan->count, ranks, 0),
        .elements = elements,
        .reduced = elements / (2 * LANES)}; /* the rest is hidden behind the other lane */
    /* Most of the second lane's latency is hidden too, except for the posting. */
    uint64_t messages = ret_formula->rounds + ret_formula->rounds / 2;
    muster_formula_ring(plan->topology,
                        (struct muster_path){.messages = messages, .elements = elements},
                        ret_formula);
}

const struct muster_generator muster_ring_chunked_generator = {
    .rounds_text = "2(P-1), two lanes",
    .elements_text = "2n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_ring_chunked = {
    .name = "ring_chunked",
    .steady = true,
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
