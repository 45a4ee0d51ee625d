/*
 * Allgather(v) over hosts whose ranks share memory: each host gathers its blocks by one group step
 * (collectives/schedule/group_step.h); the hosts exchange theirs along as many lanes as the
 * smallest host has ranks, of which each carries an equal part of every host's blocks (lanes.h);
 * and one group step for each other host spreads its parts. Where ranks share no memory, the
 * hierarchical algorithm does all of it by messages.
 *
 * Source: as allgather_hierarchical.c; group steps in place of the levels within hosts in X. Luo et
 * al.: HAN: a hierarchical autotuned collective communication framework. CLUSTER 2020.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, with blocks a b c d:
 *
 *   group      a b in the outputs of {0, 1}, c d in those of {2, 3}
 *   round 1    0 -- a --> 2    2 -- c --> 0        1 -- b --> 3    3 -- d --> 1
 *   group      c d in the outputs of {0, 1}, a b in those of {2, 3}
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/exchange.h"
#include "collectives/algorithms/hierarchical/lanes.h"

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

extern const struct muster_generator muster_allgather_hierarchical_generator;

/* The blocks of this rank's host. Alone there, it copies its block, while it sends that from INPUT.
 */
static void gather_host(const struct muster_plan *plan, const struct muster_lane *own,
                        struct muster_builder *builder)
{
    const struct muster_span whole = muster_lanes_host(own->all, own->host);
    const struct muster_span block = muster_blocks_at(&own->all->blocks, plan->rank);
    const struct muster_group_call call = {.kind = MUSTER_STEP_GROUP_ALLGATHER,
                                           .scope = MUSTER_STEP_OVER_HOST,
                                           .source = MUSTER_INPUT,
                                           .target = MUSTER_OUTPUT,
                                           .span = {.count = whole.count},
                                           .at = whole.offset,
                                           .blocks = plan->output_bounds != NULL};
    if (own->local_size == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, (struct muster_span){.count = block.count},
                            MUSTER_OUTPUT, block.offset);
        return;
    }
    muster_builder_group(builder, &call);
    muster_builder_next_round(builder);
}

static void spread(const struct muster_lane *own, struct muster_span span,
                   struct muster_builder *builder)
{
    const struct muster_level level = {
        .group = {.offset = own->all->topology->host_first[own->host],
                  .size = own->local_size,
                  .index = own->local_rank},
        .span = span,
        .owners = own->all->lanes};
    const struct muster_group_ends ends = {
        .span_buffer = MUSTER_OUTPUT,
        .share_buffer = MUSTER_OUTPUT,
        .whole = span.offset,
        .share = own->carries ? muster_level_share(&level, own->local_rank).offset : 0};
    muster_group_level_spread(builder, &level, &ends);
}

/* The blocks of the other hosts. A single carrier has them in at most two spans. */
static void spread_others(const struct muster_lane *own, struct muster_builder *builder)
{
    const struct muster_lanes *lanes = own->all;
    const struct muster_span mine = muster_lanes_host(lanes, own->host);
    uint64_t total = muster_blocks_total(&lanes->blocks);
    uint64_t behind = mine.offset + mine.count;
    if (own->local_size == 1) {
        return;
    }
    if (lanes->lanes == 1) {
        spread(own, (struct muster_span){.count = mine.offset}, builder);
        spread(own, (struct muster_span){.offset = behind, .count = total - behind}, builder);
        return;
    }
    for (uint32_t host = 0; host < lanes->topology->hosts; host++) {
        if (host != own->host) {
            spread(own, muster_lanes_host(lanes, host), builder);
        }
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_lanes lanes = muster_lanes_of_parts(plan->topology, &blocks);
    struct muster_lane own;
    AUTO_FREE uint64_t *starts = NULL;
    if (plan->memory == NULL) {
        return muster_allgather_hierarchical_generator.generate(plan, builder);
    }
    TRY(muster_lane_init(&lanes, plan->rank, &own, &starts));
    gather_host(plan, &own, builder);
    if (own.carries) {
        muster_lane_allgather(&own, own.local_size == 1, builder);
    }
    spread_others(&own, builder);
    return MUSTER_OK;
}

/* Group steps are no messages. */
static struct muster_step_totals totals_of(const struct muster_lane *own)
{
    return (struct muster_step_totals){.rounds = muster_lanes_rounds(own->all) +
                                                 (own->local_size > 1 ? 2 : 0),
                                       .elements = muster_lane_allgather_elements(own)};
}

/* A rank writes all blocks of its host's members, which is half of the work of a reduction. */
static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_blocks blocks = muster_blocks_of_output(plan);
    const struct muster_lanes lanes = muster_lanes_of_parts(plan->topology, &blocks);
    if (plan->memory == NULL) {
        muster_allgather_hierarchical_generator.formula(plan, ret_formula);
        return;
    }
    muster_lanes_formula(&lanes, totals_of, ret_formula);
    ret_formula->local = (struct muster_path){.messages = plan->topology->hosts};
    ret_formula->reduced = muster_blocks_total(&blocks) / 2;
}

const struct muster_generator muster_allgather_group_generator = {
    .rounds_text = "ceil(log2 H) + 2",
    .elements_text = "n(H-1)",
    .generate = generate,
    .formula = find_formula,
};
