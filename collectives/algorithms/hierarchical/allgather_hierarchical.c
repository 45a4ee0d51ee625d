/*
 * Hierarchical allgather(v): the blocks of each host go once to every other host, along as many
 * lanes as the smallest host has ranks (lanes.h), and then from the carriers of the lanes to all
 * ranks of their host. On hosts with more ranks than there are lanes, carriers collect the blocks
 * of their run first.
 *
 * Source: J. L. Traeff, S. Hunold: Decomposing MPI collectives for exploiting multi-lane
 * communication. CLUSTER 2020; between hosts as in J. Bruck et al. (see allgather_bruck.c), each
 * block at its final place in the buffer from the start.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, with blocks a b c d:
 *
 *   round 0    0 -- a --> 2    2 -- c --> 0        1 -- b --> 3    3 -- d --> 1
 *   round 1    0 -- ac --> 1   1 -- bd --> 0       2 -- ac --> 3   3 -- bd --> 2
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/lanes.h"

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* The carrier receives the blocks of its run. */
static void collect_run(const struct muster_lane *own, struct muster_span block,
                        struct muster_builder *builder)
{
    const struct muster_span mine = {.count = block.count};
    uint32_t carrier = (uint32_t)own->run.offset;
    if (!own->carries) {
        muster_builder_send(builder, carrier, MUSTER_INPUT,
                            mine); /* it is received back at the end */
        muster_builder_next_round(builder);
        return;
    }
    muster_builder_copy(builder, MUSTER_INPUT, mine, MUSTER_OUTPUT, block.offset);
    for (uint32_t i = 1; i < own->run.count; i++) {
        muster_builder_recv(builder, carrier + i, MUSTER_OUTPUT,
                            muster_blocks_at(&own->all->blocks, carrier + i));
    }
    if (own->run.count > 1) {
        muster_builder_next_round(builder);
    }
}

/* Carriers send the blocks of their lane to all ranks of the host. */
static void spread_within_host(const struct muster_lane *own, struct muster_builder *builder)
{
    const struct muster_lanes *lanes = own->all;
    for (uint32_t distance = 1; distance < own->local_size; distance++) {
        struct muster_span span;
        for (uint32_t host = 0;
             own->carries && muster_lanes_next(lanes, own->lane, &host, &span);) {
            muster_builder_send(builder, muster_lane_rank_after(own, distance), MUSTER_OUTPUT,
                                span);
        }
        uint32_t from = muster_lane_before(own, distance);
        for (uint32_t host = 0;
             from < lanes->lanes && muster_lanes_next(lanes, from, &host, &span);) {
            muster_builder_recv(builder, muster_lane_rank_before(own, distance), MUSTER_OUTPUT,
                                span);
        }
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_lanes lanes = muster_lanes_of(plan->topology, &blocks);
    struct muster_lane own;
    AUTO_FREE uint64_t *starts = NULL;
    TRY(muster_lane_init(&lanes, plan->rank, &own, &starts));
    collect_run(&own, muster_blocks_at(&blocks, plan->rank), builder);
    if (own.carries) { /* a run's only block is still being copied in the first round */
        muster_lane_allgather(&own, own.run.count == 1, builder);
    }
    spread_within_host(&own, builder);
    return MUSTER_OK;
}

static struct muster_step_totals totals_of(const struct muster_lane *own)
{
    struct muster_step_totals totals = {.rounds = own->run.count > 1 ? 1 : 0};
    if (!own->carries) {
        uint32_t rank = own->all->topology->host_first[own->host] + own->local_rank;
        totals.rounds += own->all->lanes;
        totals.elements = muster_blocks_at(&own->all->blocks, rank).count;
        return totals;
    }
    totals.rounds += muster_lanes_rounds(own->all) + own->local_size - 1;
    totals.elements =
        (own->local_size - 1) * muster_lane_elements(own) + muster_lane_allgather_elements(own);
    return totals;
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_lanes lanes = muster_lanes_of(plan->topology, &blocks);
    muster_lanes_formula(&lanes, totals_of, ret_formula);
}

const struct muster_generator muster_allgather_hierarchical_generator = {
    .rounds_text = "ceil(log2 H) + L-1",
    .elements_text = "n(H-1) + nH(L-1)",
    .generate = generate,
    .formula = find_formula,
};
