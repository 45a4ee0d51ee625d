/*
 * Hierarchical reduce-scatter, for any sizes of hosts and blocks: within each host the carriers of
 * the lanes (lanes.h) reduce the blocks of their lane; between the hosts the blocks are reduced at
 * the hosts that they belong to; on hosts with more ranks than there are lanes, carriers then send
 * the blocks of their run to their ranks. It is the hierarchical allgather backward.
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

/* A carrier's sums: in SCRATCH, the lane's blocks of one host after the other. */
struct carrier {
    const struct muster_lane *own;
    struct muster_builder *builder;
    bool reduced; /* SCRATCH holds sums over the host; else the data is still in INPUT */
};

/* Every rank sends each carrier of its host the blocks of that one's lane. */
static void reduce_within_host(struct carrier *carrier)
{
    const struct muster_lane *own = carrier->own;
    const struct muster_lanes *lanes = own->all;
    for (uint32_t distance = 1; distance < own->local_size; distance++) {
        struct muster_span span;
        uint32_t to = muster_lane_after(own, distance);
        for (uint32_t host = 0; to < lanes->lanes && muster_lanes_next(lanes, to, &host, &span);) {
            muster_builder_send(carrier->builder, muster_lane_rank_after(own, distance),
                                MUSTER_INPUT, span);
        }
        uint64_t place = 0;
        for (uint32_t host = 0;
             own->carries && muster_lanes_next(lanes, own->lane, &host, &span);) {
            const struct muster_span sums = {.offset = place, .count = span.count};
            muster_builder_recv_reduce(carrier->builder, muster_lane_rank_before(own, distance),
                                       carrier->reduced ? MUSTER_SCRATCH : MUSTER_INPUT,
                                       carrier->reduced ? sums : span, MUSTER_SCRATCH, place);
            place += span.count;
        }
        carrier->reduced = true;
        muster_builder_next_round(carrier->builder);
    }
}

/* Sends the blocks of the run to their ranks. */
static void send_run(const struct carrier *carrier)
{
    const struct muster_lane *own = carrier->own;
    uint64_t first = own->run.offset;
    uint64_t place = muster_lane_place(own, 0);
    for (uint64_t rank = first; rank < first + own->run.count; rank++) {
        struct muster_span block = muster_blocks_at(&own->all->blocks, rank);
        block.offset = place;
        if (rank == first) {
            muster_builder_copy(carrier->builder, MUSTER_SCRATCH, block, MUSTER_OUTPUT, 0);
        } else {
            muster_builder_send(carrier->builder, (uint32_t)rank, MUSTER_SCRATCH, block);
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
    struct carrier carrier = {.own = &own, .builder = builder};
    if (own.carries) {
        (void)muster_builder_reserve(builder, muster_lane_elements(&own));
    }
    reduce_within_host(&carrier);
    if (!own.carries) {
        muster_builder_recv(
            builder, (uint32_t)own.run.offset, MUSTER_OUTPUT,
            (struct muster_span){.count = muster_blocks_at(&blocks, plan->rank).count});
        return MUSTER_OK;
    }
    muster_lane_reduce_scatter(&own, carrier.reduced, own.run.count == 1, builder);
    if (own.run.count > 1) {
        send_run(&carrier);
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
    totals.elements = total - muster_lane_elements(own) + muster_lane_reduce_scatter_elements(own);
    totals.elements +=
        muster_lane_blocks(own, 0).count - muster_blocks_at(&lanes->blocks, own->run.offset).count;
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
