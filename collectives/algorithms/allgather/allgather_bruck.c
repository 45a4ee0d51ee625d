/*
 * Bruck allgather(v): in round k every rank sends all its blocks to the rank 2^k before it, so that
 * every rank's number of blocks doubles. ceil(log2 P) rounds, each rank sends P-1 blocks: both are
 * the least that is possible. Far partners exchange most, so between hosts the ring may be faster.
 *
 * Source: J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all
 * communications in multiport message-passing systems. IEEE Transactions on Parallel and
 * Distributed Systems 8 (1997), section 4.
 *
 * Four ranks; digits are blocks:
 *
 *   round 0    0 -> 3: 0     1 -> 0: 1     2 -> 1: 2     3 -> 2: 3
 *   round 1    0 -> 2: 01    1 -> 3: 12    2 -> 0: 23    3 -> 1: 30
 *
 * Blocks that wrap around the end of the buffer are sent in two messages, so nothing is rotated
 * later.
 */
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

/* Sends or receives `many` blocks from number `first` on, modulo the ranks, as one or two messages.
 */
static void move(const struct muster_blocks *blocks, struct muster_builder *builder, uint32_t peer,
                 uint64_t first, uint64_t many, bool send)
{
    uint64_t ranks = blocks->ranks;
    uint64_t begin = first % ranks;
    uint64_t end = begin + many < ranks ? begin + many : ranks;
    while (many > 0) {
        struct muster_span span = muster_blocks_range(blocks, begin, end);
        if (send) {
            muster_builder_send(builder, peer, MUSTER_OUTPUT, span);
        } else {
            muster_builder_recv(builder, peer, MUSTER_OUTPUT, span);
        }
        many -= end - begin;
        begin = 0;
        end = many;
    }
}

/* The number of blocks that are sent in the round at this distance. */
static uint32_t blocks_at(uint32_t ranks, uint32_t distance)
{
    return distance < ranks - distance ? distance : ranks - distance;
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t ranks = blocks.ranks;
    struct muster_span place = muster_blocks_at(&blocks, plan->rank);
    struct muster_span mine = {.count = place.count};
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, place.offset);
    for (uint32_t round = 0; round < muster_log2_up(ranks); round++) {
        uint32_t distance = UINT32_C(1) << round;
        uint32_t many = blocks_at(ranks, distance);
        uint32_t before = (plan->rank + ranks - distance) % ranks;
        uint32_t after = (plan->rank + distance) % ranks;
        if (round == 0) {
            muster_builder_send(builder, before, MUSTER_INPUT,
                                mine); /* its copy is made in this round */
        } else {
            move(&blocks, builder, before, plan->rank, many, true);
        }
        move(&blocks, builder, after, after, many, false);
        muster_builder_next_round(builder);
    }
    return MUSTER_OK;
}

/* Elements that this rank sends in the round at this distance. */
static uint64_t elements_at(const struct muster_blocks *blocks, uint32_t rank, uint32_t distance)
{
    uint64_t end = (uint64_t)rank + blocks_at(blocks->ranks, distance);
    uint64_t wrapped = end > blocks->ranks ? end - blocks->ranks : 0;
    return muster_blocks_range(blocks, rank, end - wrapped).count +
           muster_blocks_range(blocks, 0, wrapped).count;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    uint32_t ranks = blocks.ranks;
    uint32_t rounds = muster_log2_up(ranks);
    uint64_t total = muster_blocks_total(&blocks);
    *ret_formula = (struct muster_formula){.rounds = ranks == 1 ? total > 0 : rounds};
    for (uint32_t rank = 0; rank < muster_blocks_different(&blocks); rank++) {
        uint64_t elements = 0;
        for (uint32_t round = 0; round < rounds; round++) {
            elements += elements_at(&blocks, rank, UINT32_C(1) << round);
        }
        ret_formula->elements = elements > ret_formula->elements ? elements : ret_formula->elements;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t elements = blocks_at(ranks, UINT32_C(1) << round) * (total / ranks);
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << round, 1, elements);
    }
}

const struct muster_generator muster_allgather_bruck_generator = {
    .rounds_text = "ceil(log2 P)",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_formula,
};
