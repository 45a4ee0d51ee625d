/*
 * Hierarchical reduce-scatter, with any distribution: within each host the carriers of the lanes
 * (lanes.h) reduce their columns, between the hosts each lane reduces its pieces to the hosts that
 * they belong to, and where hosts have more ranks than there are lanes, carriers give the blocks of
 * their run away. The way of the hierarchical allgather, backward.
 *
 * Source: as allgather_hierarchical.c.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, with blocks a b c d:
 *
 *   round 0    0 -- bd --> 1   1 -- ac --> 0       2 -- bd --> 3   3 -- ac --> 2
 *   round 1    0 -- c --> 2    2 -- a --> 0        1 -- d --> 3    3 -- b --> 1
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/lanes.h"

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Where a carrier keeps its column: in SCRATCH, one piece after the other. */
struct column {
    const struct muster_lane *own;
    struct muster_builder *builder;
    bool reduced; /* all of it holds sums over the host; else it is still in INPUT */
};

/* In SCRATCH, of the piece of the host `distance` before. */
static uint64_t place_of(const struct column *column, uint64_t distance)
{
    uint64_t hosts = column->own->all->topology->hosts;
    return column->own->starts[(column->own->host + hosts - distance % hosts) % hosts];
}

static void gather(struct column *column)
{
    const struct muster_lane *own = column->own;
    const struct muster_lanes *lanes = own->all;
    for (uint32_t distance = 1; distance < own->local_size; distance++) {
        struct muster_span span;
        uint32_t to = muster_lane_after(own, distance);
        for (uint32_t host = 0; to < lanes->lanes && muster_lanes_next(lanes, to, &host, &span);) {
            muster_builder_send(column->builder, muster_lane_rank_after(own, distance),
                                MUSTER_INPUT, span);
        }
        uint64_t place = 0;
        for (uint32_t host = 0;
             own->carries && muster_lanes_next(lanes, own->lane, &host, &span);) {
            const struct muster_span sums = {.offset = place, .count = span.count};
            muster_builder_recv_reduce(column->builder, muster_lane_rank_before(own, distance),
                                       column->reduced ? MUSTER_SCRATCH : MUSTER_INPUT,
                                       column->reduced ? sums : span, MUSTER_SCRATCH, place);
            place += span.count;
        }
        column->reduced = true;
        muster_builder_next_round(column->builder);
    }
}

/* Whether the piece of this distance got a sum in a round before this one; they go downward. */
static bool is_reduced(const struct column *column, uint64_t distance, uint32_t round)
{
    bool reduced = column->reduced;
    for (uint32_t before = round + 1; before < muster_lanes_rounds(column->own->all); before++) {
        reduced = reduced || distance < muster_lanes_pieces(column->own->all, before);
    }
    return reduced;
}

static struct muster_span held(const struct column *column, uint64_t distance, bool reduced)
{
    struct muster_span span = muster_lane_piece(column->own, distance);
    span.offset = reduced ? place_of(column, distance) : span.offset;
    return span;
}

/* Into OUTPUT with the last sum, if all of the piece is this rank's block. */
static void exchange(const struct column *column)
{
    const struct muster_lane *own = column->own;
    uint64_t hosts = own->all->topology->hosts;
    for (uint32_t round = muster_lanes_rounds(own->all); round-- > 0;) {
        uint64_t distance = UINT64_C(1) << round;
        for (uint32_t i = 0; i < muster_lanes_pieces(own->all, round); i++) {
            bool given = is_reduced(column, distance + i, round);
            bool taken = is_reduced(column, i, round);
            bool done = round == 0 && own->run.count == 1;
            muster_builder_send(column->builder, muster_lane_carrier(own, hosts - distance),
                                given ? MUSTER_SCRATCH : MUSTER_INPUT,
                                held(column, distance + i, given));
            muster_builder_recv_reduce(
                column->builder, muster_lane_carrier(own, distance),
                taken ? MUSTER_SCRATCH : MUSTER_INPUT, held(column, i, taken),
                done ? MUSTER_OUTPUT : MUSTER_SCRATCH, done ? 0 : place_of(column, i));
        }
        muster_builder_next_round(column->builder);
    }
}

static void give_away(const struct column *column)
{
    const struct muster_lane *own = column->own;
    uint64_t first = own->run.offset;
    uint64_t place = place_of(column, 0);
    for (uint64_t rank = first; rank < first + own->run.count; rank++) {
        struct muster_span block = muster_blocks_at(&own->all->blocks, rank);
        block.offset = place;
        if (rank == first) {
            muster_builder_copy(column->builder, MUSTER_SCRATCH, block, MUSTER_OUTPUT, 0);
        } else {
            muster_builder_send(column->builder, (uint32_t)rank, MUSTER_SCRATCH, block);
        }
        place += block.count;
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_lanes lanes = muster_lanes_of(plan->topology, &blocks);
    struct muster_lane own;
    AUTO_FREE uint64_t *starts = NULL;
    TRY(muster_lane_init(&lanes, plan->rank, &own, &starts));
    struct column column = {.own = &own, .builder = builder};
    if (own.carries) {
        (void)muster_builder_reserve(builder, muster_lane_column(&own));
    }
    gather(&column);
    if (!own.carries) {
        muster_builder_recv(
            builder, (uint32_t)own.run.offset, MUSTER_OUTPUT,
            (struct muster_span){.count = muster_blocks_at(&blocks, plan->rank).count});
        return MUSTER_OK;
    }
    exchange(&column);
    if (own.run.count > 1) {
        give_away(&column);
    }
    return MUSTER_OK;
}

static struct muster_step_totals totals_of(const struct muster_lane *own)
{
    const struct muster_lanes *lanes = own->all;
    uint64_t total = muster_blocks_total(&lanes->blocks);
    struct muster_step_totals totals = {.rounds = own->run.count > 1 ? 1 : 0};
    if (!own->carries) {
        totals.rounds += lanes->lanes;
        totals.elements = total;
        return totals;
    }
    totals.rounds += muster_lanes_rounds(lanes) + own->local_size - 1;
    totals.elements = total - muster_lane_column(own);
    for (uint32_t round = 0; round < muster_lanes_rounds(lanes); round++) {
        totals.elements +=
            muster_lane_sum(own, UINT64_C(1) << round, muster_lanes_pieces(lanes, round));
    }
    totals.elements +=
        muster_lane_piece(own, 0).count - muster_blocks_at(&lanes->blocks, own->run.offset).count;
    return totals;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_lanes lanes = muster_lanes_of(plan->topology, &blocks);
    muster_lanes_formula(&lanes, totals_of, ret_formula);
    ret_formula->reduced =
        ret_formula->local.elements +
        (ret_formula->cross.elements + ret_formula->world.elements) / lanes.lanes;
}

const struct muster_generator muster_reduce_scatter_hierarchical_generator = {
    .rounds_text = "ceil(log2 H) + L-1",
    .elements_text = "n(H-1) + nH(L-1)",
    .generate = generate,
    .formula = find_formula,
};
