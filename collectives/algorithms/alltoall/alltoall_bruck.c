/*
 * Bruck alltoall: every block travels its distance in steps of powers of two: in round k all blocks
 * whose distance has bit k move 2^k ranks on, in one message. ceil(log2 P) messages with half of
 * all blocks each: few rounds, but more elements than necessary. For small blocks.
 *
 * Messages are packed before they are sent, and unpacked when they have arrived. Between rounds a
 * block is in OUTPUT, in the slot that finally gets a block that travels the same distance, so that
 * nothing has to be reordered. A block that arrives in one round and is sent on in the next is
 * packed straight from the received message.
 *
 * Source: J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby (see allgather_bruck.c), section 3;
 * without the rotations as in J. L. Traeff, A. Rougier, S. Hunold: Implementing a classic:
 * zero-copy all-to-all communication with MPI datatypes. ICS 2014.
 *
 * Four ranks; xy is the block from x for y:
 *
 *   round           0         1
 *   rank 0 sends    03, 01    02, 12
 *   rank 1 sends    10, 12    13, 23
 *   rank 2 sends    21, 23    20, 30
 *   rank 3 sends    32, 30    31, 01
 */
#include "collectives/algorithms/blocks.h"
#include "collectives/algorithms/generators.h"

struct bruck {
    const struct muster_plan *plan;
    struct muster_builder *builder;
    struct muster_blocks blocks;
    uint32_t rank, ranks, rounds;
    uint64_t outgoing, incoming; /* in SCRATCH: room for a message each */
    uint64_t saved;              /* in place: the blocks of INPUT that later rounds send */
};

/* A copy of adjacent elements to adjacent elements. */
struct run {
    enum muster_buffer source, target;
    struct muster_span span;
    uint64_t at;
};

static void flush(struct bruck *bruck, struct run *run)
{
    muster_builder_copy(bruck->builder, run->source, run->span, run->target, run->at);
    *run = (struct run){0};
}

/* Extends the run, or adds its copy and begins another. */
static void add(struct bruck *bruck, struct run *run, const struct run *next)
{
    bool extends = run->source == next->source && run->target == next->target &&
                   run->span.offset + run->span.count == next->span.offset &&
                   run->at + run->span.count == next->at;
    if (extends) {
        run->span.count += next->span.count;
        return;
    }
    flush(bruck, run);
    *run = *next;
}

/* The number of blocks that have the bit and come before the one at this distance. */
static uint64_t place_in_message(uint32_t distance, uint32_t bit)
{
    return ((uint64_t)(distance >> (bit + 1)) << bit) + (distance & ((UINT32_C(1) << bit) - 1));
}

static uint32_t blocks_in_message(uint32_t ranks, uint32_t bit)
{
    uint32_t below = ranks & ((UINT32_C(1) << bit) - 1);
    return (uint32_t)place_in_message(ranks - below, bit) + ((ranks >> bit & 1) != 0 ? below : 0);
}

static bool has(uint32_t distance, uint32_t bit)
{
    return (distance >> bit & 1) != 0;
}

/* The place in the call's buffers of the block that has to travel this distance in all: at first,
 * and once it has moved. */
static struct muster_span first_place(const struct bruck *bruck, uint32_t distance)
{
    return muster_blocks_at(&bruck->blocks, (uint64_t)bruck->rank + bruck->ranks - distance);
}

static struct muster_span later_place(const struct bruck *bruck, uint32_t distance)
{
    return muster_blocks_at(&bruck->blocks, (uint64_t)bruck->rank + distance);
}

/* In place, received blocks are written over blocks that have not moved yet. Those that do not move
 * in the first round are therefore copied to SCRATCH. */
static void save(struct bruck *bruck)
{
    for (uint32_t distance = 2; distance < bruck->ranks; distance += 2) {
        muster_builder_copy(bruck->builder, MUSTER_INPUT, first_place(bruck, distance),
                            MUSTER_SCRATCH,
                            bruck->saved + (distance / 2 - 1) * bruck->blocks.count);
    }
}

/* Where the block at this distance, which has the bit, is stored before the round of that bit. */
static struct run locate(const struct bruck *bruck, uint32_t distance, uint32_t bit)
{
    uint64_t count = bruck->blocks.count;
    if ((distance & ((UINT32_C(1) << bit) - 1)) == 0) {
        bool moved = bruck->plan->in_place && bit > 0;
        uint64_t saved = bruck->saved + ((uint64_t)distance / 2 - 1) * count;
        return (struct run){.source = moved ? MUSTER_SCRATCH : MUSTER_INPUT,
                            .span = moved ? (struct muster_span){.offset = saved, .count = count}
                                          : first_place(bruck, distance)};
    }
    if (has(distance, bit - 1)) {
        uint64_t received = bruck->incoming + place_in_message(distance, bit - 1) * count;
        return (struct run){.source = MUSTER_SCRATCH, .span = {.offset = received, .count = count}};
    }
    return (struct run){.source = MUSTER_OUTPUT, .span = later_place(bruck, distance)};
}

/* Packs all blocks that have the bit. */
static void pack(struct bruck *bruck, uint32_t bit)
{
    struct run run = {0};
    for (uint32_t distance = 1; distance < bruck->ranks; distance++) {
        if (has(distance, bit)) {
            struct run next = locate(bruck, distance, bit);
            next.target = MUSTER_SCRATCH;
            next.at = bruck->outgoing + place_in_message(distance, bit) * bruck->blocks.count;
            add(bruck, &run, &next);
        }
    }
    flush(bruck, &run);
}

/* Unpacks all received blocks that are not sent on in the next round. */
static void unpack(struct bruck *bruck, uint32_t bit)
{
    struct run run = {0};
    bool last = bit + 1 == bruck->rounds;
    for (uint32_t distance = 1; distance < bruck->ranks; distance++) {
        if (has(distance, bit) && (last || !has(distance, bit + 1))) {
            uint64_t count = bruck->blocks.count;
            uint64_t received = bruck->incoming + place_in_message(distance, bit) * count;
            struct run next = {.source = MUSTER_SCRATCH,
                               .span = {.offset = received, .count = count},
                               .target = MUSTER_OUTPUT,
                               .at = later_place(bruck, distance).offset};
            add(bruck, &run, &next);
        }
    }
    flush(bruck, &run);
}

static void move(const struct bruck *bruck, uint32_t bit)
{
    uint32_t distance = UINT32_C(1) << bit;
    uint64_t elements = blocks_in_message(bruck->ranks, bit) * bruck->blocks.count;
    muster_builder_send(bruck->builder, (bruck->rank + bruck->ranks - distance) % bruck->ranks,
                        MUSTER_SCRATCH,
                        (struct muster_span){.offset = bruck->outgoing, .count = elements});
    muster_builder_recv(bruck->builder, (bruck->rank + distance) % bruck->ranks, MUSTER_SCRATCH,
                        (struct muster_span){.offset = bruck->incoming, .count = elements});
    muster_builder_next_round(bruck->builder);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct bruck bruck = {.plan = plan,
                          .builder = builder,
                          .blocks = muster_blocks_of_input(plan),
                          .rank = plan->rank,
                          .ranks = plan->topology->ranks,
                          .rounds = muster_log2_up(plan->topology->ranks)};
    uint64_t message = bruck.ranks / 2 * plan->count;
    struct muster_span own = first_place(&bruck, 0);
    bruck.outgoing = muster_builder_reserve(builder, message);
    bruck.incoming = muster_builder_reserve(builder, message);
    if (plan->in_place) {
        bruck.saved = muster_builder_reserve(builder, (bruck.ranks - 1) / 2 * plan->count);
        save(&bruck);
    } else {
        muster_builder_copy(builder, MUSTER_INPUT, own, MUSTER_OUTPUT, own.offset);
    }
    for (uint32_t bit = 0; bit < bruck.rounds; bit++) {
        pack(&bruck, bit);
        muster_builder_next_round(builder);
        move(&bruck, bit);
        unpack(&bruck, bit); /* in the round of the next packing */
    }
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint32_t rounds = muster_log2_up(ranks);
    *ret_formula = (struct muster_formula){.rounds = rounds};
    if (plan->count > 0 && (ranks > 1 || !plan->in_place)) {
        ret_formula->rounds += rounds + 1; /* for packing */
    }
    for (uint32_t bit = 0; bit < rounds; bit++) {
        uint64_t elements = blocks_in_message(ranks, bit) * plan->count;
        ret_formula->elements += elements;
        muster_formula_add(ret_formula, plan->topology, UINT64_C(2) << bit, 1, elements);
    }
}

const struct muster_generator muster_alltoall_bruck_generator = {
    .rounds_text = "2 ceil(log2 P) + 1",
    .elements_text = "nP/2 log2 P",
    .generate = generate,
    .formula = find_formula,
};
