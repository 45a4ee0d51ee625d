/*
 * Bidirectional ring allreduce: one half of the data goes around the ring in one direction, the
 * other half in the opposite direction, each as in ring.c. Rounds and elements are those of one
 * ring, but every rank sends to both neighbours and receives from both, so that both directions of
 * every link carry data.
 *
 * Source: N. Jain, Y. Sabharwal: Optimal bucket algorithms for large MPI collectives on torus
 * interconnects. ICS 2010 (the bucket algorithm along one dimension, in both directions).
 *
 * Four ranks, chunks 0..3 to the next rank in lane 0, chunks 4..7 to the previous one in lane 1:
 *
 *   round            0        1        2     |   3        4        5
 *   rank 0 sends    0 7      3 6      2 5    |  1 4      0 7      3 6
 *   rank 1 sends    1 6      0 5      3 4    |  2 7      1 6      0 5
 *   rank 2 sends    2 5      1 4      0 7    |  3 6      2 5      1 4
 *   rank 3 sends    3 4      2 7      1 6    |  0 5      3 4      2 7
 *
 * Each chunk is reduced in one direction and then copied, so all ranks end with the same bits.
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"

enum { DIRECTIONS = 2 };

static void allreduce(struct muster_builder *builder, const struct muster_group *group,
                      enum muster_buffer source, struct muster_span span)
{
    muster_ring_halves_part(builder, group, source, span, true);
}

static uint64_t part_elements(uint64_t count, uint32_t size, uint32_t index)
{
    struct muster_span whole = {.count = count};
    return muster_ring_part_elements(muster_span_part(whole, DIRECTIONS, 0).count, size, index) +
           muster_ring_part_elements(muster_span_part(whole, DIRECTIONS, 1).count, size,
                                     size - 1 - index);
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
        muster_builder_copy(builder, MUSTER_INPUT, whole, MUSTER_OUTPUT, 0);
        return MUSTER_OK;
    }
    for (uint32_t direction = 0; direction < DIRECTIONS; direction++) {
        muster_builder_set_lane(builder, (uint16_t)direction);
        for (uint32_t round = 0; round < 2 * (all.size - 1); round++) {
            muster_ring_round(builder, &all, MUSTER_INPUT,
                              muster_span_part(whole, DIRECTIONS, direction), round,
                              direction == 1);
            muster_builder_next_round(builder);
        }
    }
    return MUSTER_OK;
}

/* Elements that the busiest rank sends. Larger chunks come first, so the number of larger chunks
 * that a rank leaves out changes only at the ranks listed here. */
static uint64_t elements_of_busiest(uint64_t count, uint32_t ranks)
{
    struct muster_span whole = {.count = count};
    uint64_t forward = muster_span_part(whole, DIRECTIONS, 0).count % ranks;
    uint64_t backward = muster_span_part(whole, DIRECTIONS, 1).count % ranks;
    const uint64_t places[] = {0,
                               1,
                               2,
                               ranks - 1,
                               2 * (uint64_t)ranks - 2,
                               ranks + forward - 1,
                               2 * ranks + forward - 2,
                               ranks - backward + 1,
                               ranks - backward + 2};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        uint64_t elements = part_elements(count, ranks, (uint32_t)(places[i] % ranks));
        most = elements > most ? elements : most;
    }
    return most;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t elements = elements_of_busiest(plan->count, ranks);
    uint32_t rounds = part_rounds(plan->count, ranks, 0);
    *ret_formula = (struct muster_formula){
        .rounds = ranks == 1 ? plan->count > 0 : rounds,
        .elements = elements,
        .reduced = elements / 4}; /* the rest while the other direction sends */
    /* Most of the second direction's latency is hidden too, as in ring_chunked.c. */
    struct muster_path path = {.messages = rounds + rounds / 2, .elements = elements};
    muster_formula_ring(plan->topology, path, ret_formula);
}

const struct muster_generator muster_bidirectional_ring_generator = {
    .rounds_text = "2(P-1), two lanes",
    .elements_text = "2n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};

const struct muster_exchange muster_exchange_bidirectional_ring = {
    .name = "bidirectional_ring",
    .steady = true,
    .part = allreduce,
    .part_elements = part_elements,
    .part_rounds = part_rounds,
};
