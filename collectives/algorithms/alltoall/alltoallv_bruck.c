/*
 * Bruck alltoallv: as Bruck's alltoall, every block goes its distance in steps of powers of two,
 * many blocks in a message; but each has a size of its own, and so those who pass a block on must
 * know how large it is. They can if all members have told each other all counts. ceil(log2 P)
 * messages of about half of all blocks each: for small blocks.
 *
 * What came in a round stays where it came until it goes on, or to OUTPUT at the end.
 *
 * Source: J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby (see allgather_bruck.c), section 3;
 * for blocks of different sizes: K. Fan, T. Gilray, V. Pascucci, X. Huang, K. Micinski, S. Kumar:
 * Optimizing the Bruck algorithm for non-uniform all-to-all communication. HPDC 2022.
 *
 * Four ranks; xy is the block from x for y:
 *
 *   round           0         1
 *   rank 0 sends    03, 01    02, 12
 *   rank 1 sends    10, 12    13, 23
 *   rank 2 sends    21, 23    20, 30
 *   rank 3 sends    32, 30    31, 01
 */
#include <stdio.h>

#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

/* Where the block at one distance from its goal stands at the moment. */
struct place {
    enum muster_buffer buffer;
    struct muster_span span;
};

struct bruck {
    const struct muster_plan *plan;
    uint32_t rank, ranks;
    struct place places[MUSTER_ALL_COUNTS_RANKS_MAX]; /* by distance; 0 is this rank's own */
};

static bool is_too_much(const struct muster_plan *plan)
{
    size_t pairs = (size_t)plan->topology->ranks * plan->topology->ranks;
    uint64_t left = MUSTER_ELEMENTS_MAX;
    for (size_t i = 0; i < pairs; i++) {
        if (plan->all_counts[i] > left) {
            return true;
        }
        left -= plan->all_counts[i];
    }
    return false;
}

bool muster_alltoallv_bruck_fits(const struct muster_plan *plan, char *ret_why, size_t size)
{
    if (plan->topology->ranks > MUSTER_ALL_COUNTS_RANKS_MAX) {
        (void)snprintf(ret_why, size, "it is for at most %d ranks, and there are %u",
                       MUSTER_ALL_COUNTS_RANKS_MAX, plan->topology->ranks);
        return false;
    }
    if (plan->all_counts == NULL) {
        (void)snprintf(ret_why, size, "the members do not know each other's counts");
        return false;
    }
    if (is_too_much(plan)) {
        (void)snprintf(ret_why, size, "all counts together are over the limit of %llu elements",
                       (unsigned long long)MUSTER_ELEMENTS_MAX);
        return false;
    }
    return true;
}

static bool has(uint32_t distance, uint32_t bit)
{
    return (distance >> bit & 1) != 0;
}

/* What a rank has at this distance before the round of that bit: who made it stands as far on as
 * the bits below say, and gave it all of its distance to go. */
static uint64_t size_at(const struct muster_plan *plan, uint32_t rank, uint32_t distance,
                        uint32_t bit)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t gone = distance & ((UINT32_C(1) << bit) - 1);
    uint32_t from = (rank + gone) % ranks;
    uint32_t to = (from + ranks - distance) % ranks;
    return plan->all_counts[(size_t)from * ranks + to];
}

/* Of all that this rank sends in that round. */
static uint64_t message_size(const struct muster_plan *plan, uint32_t rank, uint32_t bit)
{
    uint64_t size = 0;
    for (uint32_t distance = 1; distance < plan->topology->ranks; distance++) {
        size += has(distance, bit) ? size_at(plan, rank, distance, bit) : 0;
    }
    return size;
}

static uint64_t largest_message(const struct muster_plan *plan)
{
    uint64_t largest = 0;
    for (uint32_t bit = 0; bit < muster_log2_up(plan->topology->ranks); bit++) {
        uint64_t size = message_size(plan, plan->rank, bit);
        largest = size > largest ? size : largest;
    }
    return largest;
}

static void copy(struct muster_builder *builder, struct place from, enum muster_buffer target,
                 uint64_t at)
{
    muster_builder_copy(builder, from.buffer, from.span, target, at);
}

/* All that has the bit, one after the other. */
static void pack(const struct bruck *bruck, struct muster_builder *builder, uint32_t bit,
                 uint64_t at)
{
    for (uint32_t distance = 1; distance < bruck->ranks; distance++) {
        if (has(distance, bit)) {
            copy(builder, bruck->places[distance], MUSTER_SCRATCH, at);
            at += bruck->places[distance].span.count;
        }
    }
}

static void move(struct bruck *bruck, struct muster_builder *builder, uint32_t bit,
                 uint64_t outgoing)
{
    uint32_t step = UINT32_C(1) << bit;
    uint32_t from = (bruck->rank + step) % bruck->ranks;
    uint64_t sent = message_size(bruck->plan, bruck->rank, bit);
    uint64_t came = message_size(bruck->plan, from, bit);
    uint64_t incoming = muster_builder_reserve(builder, came);
    muster_builder_send(builder, (bruck->rank + bruck->ranks - step) % bruck->ranks, MUSTER_SCRATCH,
                        (struct muster_span){.offset = outgoing, .count = sent});
    muster_builder_recv(builder, from, MUSTER_SCRATCH,
                        (struct muster_span){.offset = incoming, .count = came});
    for (uint32_t distance = 1; distance < bruck->ranks; distance++) {
        if (has(distance, bit)) {
            uint64_t count = size_at(bruck->plan, from, distance, bit);
            bruck->places[distance] =
                (struct place){MUSTER_SCRATCH, {.offset = incoming, .count = count}};
            incoming += count;
        }
    }
}

/* In place, this rank's own block is written over unless it moves away, or stays. */
static void keep_own(struct bruck *bruck, struct muster_builder *builder)
{
    struct place *own = &bruck->places[0];
    if (bruck->plan->in_place) {
        uint64_t at = muster_builder_reserve(builder, own->span.count);
        copy(builder, *own, MUSTER_SCRATCH, at);
        *own = (struct place){MUSTER_SCRATCH, {.offset = at, .count = own->span.count}};
    }
}

static bool own_moves(const struct muster_plan *plan)
{
    const struct muster_blocks input = muster_blocks_of_input(plan);
    const struct muster_blocks output = muster_blocks_of_output(plan);
    struct muster_span from = muster_blocks_at(&input, plan->rank);
    return from.count > 0 &&
           !(plan->in_place && from.offset == muster_blocks_at(&output, plan->rank).offset);
}

muster_status muster_alltoallv_bruck_generate(const struct muster_plan *plan,
                                              struct muster_builder *builder)
{
    const struct muster_blocks input = muster_blocks_of_input(plan);
    const struct muster_blocks output = muster_blocks_of_output(plan);
    struct bruck bruck = {.plan = plan, .rank = plan->rank, .ranks = plan->topology->ranks};
    uint64_t outgoing = muster_builder_reserve(builder, largest_message(plan));
    for (uint32_t distance = 0; distance < bruck.ranks; distance++) {
        bruck.places[distance] = (struct place){
            MUSTER_INPUT, muster_blocks_at(&input, (uint64_t)bruck.rank + bruck.ranks - distance)};
    }
    if (own_moves(plan)) {
        keep_own(&bruck, builder);
    }
    for (uint32_t bit = 0; bit < muster_log2_up(bruck.ranks); bit++) {
        pack(&bruck, builder, bit, outgoing);
        muster_builder_next_round(builder);
        move(&bruck, builder, bit, outgoing);
        muster_builder_next_round(builder);
    }
    for (uint32_t distance = own_moves(plan) ? 0 : 1; distance < bruck.ranks; distance++) {
        copy(builder, bruck.places[distance], MUSTER_OUTPUT,
             muster_blocks_at(&output, (uint64_t)bruck.rank + distance).offset);
    }
    return MUSTER_OK;
}

void muster_alltoallv_bruck_formula(const struct muster_plan *plan,
                                    struct muster_formula *ret_formula)
{
    const struct muster_blocks input = muster_blocks_of_input(plan);
    const struct muster_blocks output = muster_blocks_of_output(plan);
    uint64_t own = muster_blocks_at(&input, plan->rank).count;
    bool moves = own_moves(plan);
    uint32_t rounds = muster_log2_up(plan->topology->ranks);
    *ret_formula = (struct muster_formula){.rounds = rounds};
    for (uint32_t bit = 0; bit < rounds; bit++) {
        uint64_t elements = message_size(plan, plan->rank, bit);
        bool packs = elements > 0 || (bit == 0 && moves && plan->in_place);
        ret_formula->rounds += packs ? 1 : 0;
        ret_formula->elements += elements;
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << bit, 1, elements);
    }
    ret_formula->rounds += moves || muster_blocks_total(&output) > own ? 1 : 0;
}
