/*
 * Reduce-scatter over hosts whose ranks share memory: each host reduces the blocks of every host by
 * one group step (collectives/schedule/group_step.h), after which each lane's carrier has an equal
 * part of them; the hosts reduce these parts at the hosts that they belong to (lanes.h). Where the
 * ranks of a host are the carriers of equal blocks, a part is a rank's block then; else one more
 * group step spreads the parts of the host, and each rank takes its block. Where ranks share no
 * memory, the hierarchical algorithm does all of it by messages.
 *
 * Source: as allgather_group.c, backward.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, with blocks a b c d:
 *
 *   group      sums over {0, 1}: a c at 0, b d at 1; over {2, 3}: a c at 2, b d at 3
 *   round 1    0 -- c --> 2    2 -- a --> 0        1 -- d --> 3    3 -- b --> 1
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/hierarchical/lanes.h"

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

extern const struct muster_generator muster_reduce_scatter_hierarchical_generator;

static struct muster_level level_of(const struct muster_lane *own, struct muster_span span)
{
    return (struct muster_level){.group = {.offset = own->all->topology->host_first[own->host],
                                           .size = own->local_size,
                                           .index = own->local_rank},
                                 .span = span,
                                 .owners = own->all->lanes};
}

/* Whether the parts of the host are the blocks of its ranks. */
static bool parts_are_blocks(const struct muster_lane *own)
{
    const struct muster_lanes *lanes = own->all;
    const struct muster_level level = level_of(own, muster_lanes_host(lanes, own->host));
    bool same = own->local_size == lanes->lanes;
    for (uint32_t i = 0; i < own->local_size && same && lanes->blocks.bounds != NULL; i++) {
        const struct muster_span part = muster_level_share(&level, i);
        const struct muster_span block =
            muster_blocks_at(&lanes->blocks, lanes->topology->host_first[own->host] + i);
        same = part.offset == block.offset && part.count == block.count;
    }
    return same;
}

static void reduce_span(const struct muster_lane *own, struct muster_span span, uint64_t place,
                        struct muster_builder *builder)
{
    const struct muster_level level = level_of(own, span);
    const struct muster_group_ends ends = {.span_buffer = MUSTER_INPUT,
                                           .share_buffer = MUSTER_SCRATCH,
                                           .whole = span.offset,
                                           .share = place};
    muster_group_level_reduce(builder, &level, &ends);
}

/* The sums over this host: in SCRATCH, the lane's parts of one host after the other. A single
 * carrier has all of them in one span. */
static void reduce_within_host(const struct muster_lane *own, struct muster_builder *builder)
{
    const struct muster_lanes *lanes = own->all;
    if (own->local_size == 1) {
        return;
    }
    if (lanes->lanes == 1) {
        reduce_span(own, (struct muster_span){.count = muster_blocks_total(&lanes->blocks)}, 0,
                    builder);
    }
    for (uint32_t host = 0; host < lanes->topology->hosts && lanes->lanes > 1; host++) {
        reduce_span(own, muster_lanes_host(lanes, host), own->carries ? own->starts[host] : 0,
                    builder);
    }
    muster_builder_next_round(builder);
}

/* All parts of the host at all of its ranks, of which each takes its block. */
static void take_blocks(const struct muster_lane *own, uint32_t rank,
                        struct muster_builder *builder)
{
    const struct muster_span whole = muster_lanes_host(own->all, own->host);
    struct muster_span block = muster_blocks_at(&own->all->blocks, rank);
    const struct muster_level level = level_of(own, whole);
    const struct muster_group_ends ends = {.span_buffer = MUSTER_SCRATCH,
                                           .share_buffer = MUSTER_SCRATCH,
                                           .whole = muster_builder_reserve(builder, whole.count),
                                           .share = own->carries ? muster_lane_place(own, 0) : 0};
    muster_group_level_spread(builder, &level, &ends);
    muster_builder_next_round(builder);
    block.offset = ends.whole + (block.offset - whole.offset);
    muster_builder_copy(builder, MUSTER_SCRATCH, block, MUSTER_OUTPUT, 0);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_lanes lanes = muster_lanes_of_parts(plan->topology, &blocks);
    struct muster_lane own;
    AUTO_FREE uint64_t *starts = NULL;
    if (plan->memory == NULL) {
        return muster_reduce_scatter_hierarchical_generator.generate(plan, builder);
    }
    TRY(muster_lane_init(&lanes, plan->rank, &own, &starts));
    bool direct = parts_are_blocks(&own);
    if (own.carries) {
        (void)muster_builder_reserve(builder, muster_lane_elements(&own));
    }
    reduce_within_host(&own, builder);
    if (own.carries) {
        muster_lane_reduce_scatter(&own, own.local_size > 1, direct, builder);
    }
    if (!direct) {
        take_blocks(&own, plan->rank, builder);
    }
    return MUSTER_OK;
}

/* Group steps are no messages. */
static struct muster_step_totals totals_of(const struct muster_lane *own)
{
    struct muster_step_totals totals = {.rounds = muster_lanes_rounds(own->all) +
                                                  (own->local_size > 1 ? 1 : 0),
                                        .elements = muster_lane_reduce_scatter_elements(own)};
    if (!parts_are_blocks(own)) {
        uint32_t rank = own->all->topology->host_first[own->host] + own->local_rank;
        totals.rounds += muster_blocks_at(&own->all->blocks, rank).count > 0 ? 2 : 1;
    }
    return totals;
}

/* A rank copies its data for the others, and reduces a share of theirs. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_input(plan);
    const struct muster_lanes lanes = muster_lanes_of_parts(plan->topology, &blocks);
    if (plan->memory == NULL) {
        muster_reduce_scatter_hierarchical_generator.formula(plan, ret_formula);
        return;
    }
    muster_lanes_formula(&lanes, totals_of, ret_formula);
    ret_formula->local = (struct muster_path){.messages = plan->topology->hosts};
    ret_formula->reduced =
        muster_blocks_total(&blocks) +
        (ret_formula->cross.elements + ret_formula->world.elements) / lanes.lanes;
}

const struct muster_generator muster_reduce_scatter_group_generator = {
    .rounds_text = "ceil(log2 H) + 1",
    .elements_text = "n(H-1)",
    .generate = generate,
    .formula = find_formula,
};
