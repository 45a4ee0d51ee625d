/*
 * Reproducible reduce-scatter and allreduce: every member collects its block from all others
 * directly, and reduces it along the tree of the reduction order; in an allreduce it then sends the
 * result to all others. It sends as little as any algorithm: n(P-1)/P in each phase. The cost is
 * scratch for everything that arrives, and that nothing is reduced before everything has arrived.
 *
 * Source: R. Thakur, R. Rabenseifner, W. Gropp (see allgather_ring.c), sections 4.2 (pairwise
 * exchange) and 4.1; the order as in ordered.h.
 *
 * Four members, numbered in the reduction order; a letter is a block; member 0's part:
 *
 *   round    0             1             2             3            4
 *            b -> 1        c -> 2        d -> 3
 *            a3 <- 3       a2 <- 2       a1 <- 1       a0+a1        (a0+a1)+(a2+a3)
 *                                                      a2+a3        then a to all
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/level.h"
#include "collectives/algorithms/ordered.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* One member's part. */
struct part {
    const struct muster_plan *plan;
    struct muster_group group;
    struct muster_span own; /* its block of INPUT */
    uint64_t at;            /* where the sum of that block goes in OUTPUT */
};

/* The block of INPUT that goes to the member at this place. */
static struct muster_span block_of(const struct part *part, uint32_t place)
{
    const struct muster_plan *plan = part->plan;
    uint32_t rank = muster_group_rank(&part->group, place);
    if (plan->collective == MUSTER_REDUCE_SCATTER) {
        const struct muster_shape shape = muster_plan_shape(plan);
        return muster_shape_input_block(&shape, rank);
    }
    return muster_span_part((struct muster_span){.count = plan->count}, plan->topology->ranks,
                            place);
}

/* Receives all members' inputs, nodes[place] being that of the member there, and reduces them. The
 * sum ends in OUTPUT. */
static void collect(struct muster_builder *builder, const struct part *part,
                    struct muster_partial_sum *nodes)
{
    const struct muster_group *group = &part->group;
    const struct muster_span own = part->own;
    muster_builder_copy(builder, MUSTER_INPUT, own, MUSTER_OUTPUT, part->at);
    nodes[group->index] =
        (struct muster_partial_sum){.first = group->index, .buffer = MUSTER_OUTPUT, .at = part->at};
    for (uint32_t distance = 1; distance < group->size; distance++) {
        uint32_t to = (uint32_t)(((uint64_t)group->index + distance) % group->size);
        uint32_t from = (uint32_t)(((uint64_t)group->index + group->size - distance) % group->size);
        uint64_t at = muster_builder_reserve(builder, own.count);
        muster_builder_send(builder, muster_group_rank(group, to), MUSTER_INPUT,
                            block_of(part, to));
        muster_builder_recv(builder, muster_group_rank(group, from), MUSTER_SCRATCH,
                            (struct muster_span){.offset = at, .count = own.count});
        nodes[from] =
            (struct muster_partial_sum){.first = from, .buffer = MUSTER_SCRATCH, .at = at};
        muster_builder_next_round(builder);
    }
    muster_builder_next_round(builder);
    uint32_t count = group->size;
    (void)muster_ordered_merge(builder, group->size, own.count, nodes, &count);
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    struct part part = {.plan = plan, .group = muster_group_all(plan)};
    uint32_t ranks = part.group.size;
    AUTO_FREE struct muster_partial_sum *nodes = calloc(ranks, sizeof *nodes);
    if (nodes == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for %" PRIu32 " ranks", ranks);
    }
    bool allreduce = plan->collective == MUSTER_ALLREDUCE;
    part.own = block_of(&part, part.group.index);
    part.at = allreduce ? part.own.offset : 0;
    collect(builder, &part, nodes);
    if (allreduce) {
        const struct muster_level level = {
            .group = part.group, .span = {.count = plan->count}, .owners = ranks};
        muster_pairwise_allgather(builder, &level);
    }
    return MUSTER_OK;
}

/* Every level of the tree has sums to reduce. */
static uint32_t rounds_to_collect(uint32_t ranks, uint64_t elements)
{
    uint32_t copies = ranks == 1 && elements > 0 ? 1 : 0;
    return ranks - 1 + copies + (elements > 0 ? muster_log2_up(ranks) : 0);
}

static void fill_path(const struct muster_plan *plan, uint64_t collected,
                      struct muster_formula *formula)
{
    formula->reduced = collected;
    muster_formula_flat(
        plan->topology,
        (struct muster_path){
            .messages = plan->topology->ranks - 1 +
                        (plan->collective == MUSTER_ALLREDUCE ? plan->topology->ranks - 1 : 0),
            .elements = formula->elements},
        formula);
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    uint32_t ranks = plan->topology->ranks;
    uint64_t largest = (plan->count + ranks - 1) / ranks;
    *ret_formula =
        (struct muster_formula){.rounds = rounds_to_collect(ranks, plan->count) + ranks - 1,
                                .elements = ranks == 1 ? 0 : plan->count + (ranks - 2) * largest};
    fill_path(plan, (ranks - 1) * largest, ret_formula);
}

/* The rank with the smallest block sends most. */
static void find_scatter_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    uint32_t ranks = plan->topology->ranks;
    uint64_t all = muster_shape_input_count(&shape);
    uint64_t least = all;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint64_t block = muster_shape_input_block(&shape, rank).count;
        least = block < least ? block : least;
        most = block > most ? block : most;
    }
    *ret_formula =
        (struct muster_formula){.rounds = rounds_to_collect(ranks, most), .elements = all - least};
    fill_path(plan, (ranks - 1) * most, ret_formula);
}

const struct muster_generator muster_ordered_pairwise_generator = {
    .rounds_text = "2(P-1) + ceil(log2 P)",
    .elements_text = "2n(P-1)/P",
    .generate = generate,
    .formula = find_formula,
};
const struct muster_generator muster_ordered_pairwise_scatter_generator = {
    .rounds_text = "P-1 + ceil(log2 P)",
    .elements_text = "n(P-1)",
    .generate = generate,
    .formula = find_scatter_formula,
};
