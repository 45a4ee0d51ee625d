/*
 * Recursive doubling allgather(v): in round k partners at distance 2^k exchange all blocks that
 * they have. A rank then has the blocks of 2^k neighbouring ranks, which are adjacent in the
 * buffer, so that one message in each direction is enough. log2 P rounds, each rank sends P-1
 * blocks; near partners exchange least.
 *
 * Where P is not a power of two, each of the first 2(P - 2^k) ranks of even number first sends its
 * block to the next rank, and receives all other blocks from it at the end: two more rounds, and
 * nearly twice the elements at those next ranks.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), section 4.1; other numbers
 * of ranks as in section 4.5.
 *
 * Four ranks; digits are blocks:
 *
 *   round 0    0: 0 <-> 1 :1      2: 2 <-> 3 :3
 *   round 1    0: 01 <-> 23 :2    1: 01 <-> 23 :3
 */
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

/* The blocks that the place has before this round. */
static struct muster_span held(const struct muster_blocks *blocks,
                               const struct muster_places *places, uint32_t place, uint32_t round)
{
    uint32_t first = place >> round << round;
    return muster_places_range(places, blocks, first, UINT32_C(1) << round);
}

/* Sends all blocks but that of `rank` to the peer, or receives them from it. */
static void move_others(struct muster_builder *builder, const struct muster_blocks *blocks,
                        uint32_t peer, uint32_t rank, bool send)
{
    const struct muster_span parts[] = {muster_blocks_range(blocks, 0, rank),
                                        muster_blocks_range(blocks, rank + 1, blocks->ranks)};
    for (uint32_t i = rank == 0 ? 1 : 0; i < 2; i++) {
        if (send) {
            muster_builder_send(builder, peer, MUSTER_OUTPUT, parts[i]);
        } else {
            muster_builder_recv(builder, peer, MUSTER_OUTPUT, parts[i]);
        }
    }
}

/* A place with an extra first receives the extra's block, and sends it the others at the end. */
static void exchange(struct muster_builder *builder, const struct muster_blocks *blocks,
                     const struct muster_places *places, uint32_t place, struct muster_span mine)
{
    bool folds = place < places->extras;
    uint32_t rank = muster_places_rank(places, place);
    if (folds) {
        muster_builder_recv(builder, rank - 1, MUSTER_OUTPUT, muster_blocks_at(blocks, rank - 1));
        muster_builder_next_round(builder);
    }
    for (uint32_t round = 0; round < places->levels; round++) {
        uint32_t other = place ^ (UINT32_C(1) << round);
        uint32_t peer = muster_places_rank(places, other);
        if (round == 0 && !folds) {
            muster_builder_send(builder, peer, MUSTER_INPUT,
                                mine); /* its copy is made in this round */
        } else {
            muster_builder_send(builder, peer, MUSTER_OUTPUT, held(blocks, places, place, round));
        }
        muster_builder_recv(builder, peer, MUSTER_OUTPUT, held(blocks, places, other, round));
        muster_builder_next_round(builder);
    }
    if (folds) {
        move_others(builder, blocks, rank - 1, rank - 1, true);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_places places = muster_places_of(blocks.ranks);
    uint32_t rank = plan->rank;
    struct muster_span place = muster_blocks_at(&blocks, rank);
    struct muster_span mine = {.count = place.count};
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, place.offset);
    if (muster_places_is_extra(&places, rank)) {
        muster_builder_send(builder, rank + 1, MUSTER_INPUT, mine);
        muster_builder_next_round(builder);
        move_others(builder, &blocks, rank + 1, rank, false);
        return MUSTER_OK;
    }
    exchange(builder, &blocks, &places, muster_places_find(&places, rank), mine);
    return MUSTER_OK;
}

/* Elements that the rank at this place sends; extra ranks send no more than their neighbours. */
static uint64_t elements_at(const struct muster_blocks *blocks, const struct muster_places *places,
                            uint32_t place)
{
    uint64_t elements = 0;
    for (uint32_t round = 0; round < places->levels; round++) {
        elements += held(blocks, places, place, round).count;
    }
    if (place < places->extras) {
        uint32_t extra = muster_places_first(places, place);
        elements += muster_blocks_total(blocks) - muster_blocks_at(blocks, extra).count;
    }
    return elements;
}

/* If all blocks have one size, the rank at place 0 is the busiest one. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_places places = muster_places_of(blocks.ranks);
    uint64_t total = muster_blocks_total(&blocks);
    uint32_t folds = places.extras > 0 ? 2 : 0;
    *ret_formula =
        (struct muster_formula){.rounds = blocks.ranks == 1 ? total > 0 : places.levels + folds};
    uint32_t examined = blocks.bounds == NULL ? 1 : UINT32_C(1) << places.levels;
    for (uint32_t place = 0; place < examined; place++) {
        uint64_t elements = elements_at(&blocks, &places, place);
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    for (uint32_t round = 0; round < places.levels; round++) {
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << round, 1,
                           held(&blocks, &places, 0, round).count);
    }
    muster_formula_add(ret_formula, plan->topology, 1, folds, folds > 0 ? total : 0);
}

const struct muster_generator muster_allgather_recursive_doubling_generator = {
    .rounds_text = "log2 P; other P: floor(log2 P) + 2",
    .elements_text = "n(P-1); other P: about 2nP",
    .generate = generate,
    .formula = find_formula,
};
