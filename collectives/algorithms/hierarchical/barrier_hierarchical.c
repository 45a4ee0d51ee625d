/*
 * Hierarchical barrier: the ranks of each host signal to a leader, the leaders of a rack's hosts to
 * one of them, and the leaders at the top signal to each other as in barrier_dissemination.c. Then
 * the signal goes back down the same way. The slow links carry as few messages after each other as
 * possible.
 *
 * Source: J. Mellor-Crummey, M. Scott (see barrier_all_to_one.c), the tree barrier; levels as in
 * N. Karonis et al. (see broadcast_hierarchical.c).
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}:
 *
 *   round 0    0 <- 1     2 <- 3
 *   round 1    0 <------> 2
 *   round 2    0 -> 1     2 -> 3
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/rooted.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* The level at which the leaders run a dissemination. */
static uint32_t top_of(const struct muster_topology *topology)
{
    return topology->racks > 1 ? 0 : 1;
}

/* Signals go up a binomial tree to the leader. */
static void signal_leader(const struct muster_rooted_level *level, struct muster_builder *builder)
{
    const struct muster_span nothing = {.count = 0};
    const struct muster_group *group = &level->group;
    uint32_t place = muster_rooted_place(level);
    for (uint32_t child = 0; child < muster_binomial_children(group->size, place); child++) {
        uint64_t from = (uint64_t)group->index + (UINT64_C(1) << child);
        muster_builder_recv(builder, muster_group_rank(group, from), MUSTER_OUTPUT, nothing);
        muster_builder_next_round(builder);
    }
    if (place > 0) {
        uint64_t parent = place & (place - 1);
        muster_builder_send(builder, muster_group_rank(group, parent + level->root), MUSTER_INPUT,
                            nothing);
        muster_builder_next_round(builder);
    }
}

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_span nothing = {.count = 0};
    AUTO_FREE uint32_t *ranks = calloc(muster_rooted_room(plan->topology), sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for the leaders of hosts");
    }
    const struct muster_rooted rooted = muster_rooted_of(plan, ranks);
    const struct muster_rooted_level *levels = rooted.levels;
    uint32_t top = top_of(plan->topology);
    uint32_t below = rooted.first > top ? rooted.first : top + 1;
    for (uint32_t i = MUSTER_ROOTED_LEVELS; i-- > below;) {
        signal_leader(&levels[i], builder);
    }
    if (rooted.first <= top) {
        muster_barrier_dissemination_part(builder, &levels[top].group);
    }
    for (uint32_t i = below; i < MUSTER_ROOTED_LEVELS; i++) {
        muster_broadcast_binomial_part(builder, &levels[i].group, levels[i].root, MUSTER_INPUT,
                                       nothing);
    }
    return MUSTER_OK;
}

/* Below the top: up and back. */
static struct muster_step_totals totals_below(uint64_t count, uint32_t size, uint32_t place)
{
    const struct muster_step_totals one_way = muster_broadcast_binomial_totals(count, size, place);
    return (struct muster_step_totals){.rounds = 2 * one_way.rounds};
}

static struct muster_step_totals totals_top(uint64_t count, uint32_t size, uint32_t place)
{
    (void)count;
    (void)place; /* all members do the same */
    return (struct muster_step_totals){.rounds = muster_log2_up(size)};
}

static void find_formula(const struct muster_plan *plan, struct muster_formula *ret_formula)
{
    muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS] = {totals_below, totals_below,
                                                               totals_below};
    level_totals[top_of(plan->topology)] = totals_top;
    muster_rooted_formula(plan, level_totals, ret_formula);
}

const struct muster_generator muster_barrier_hierarchical_generator = {
    .rounds_text = "2 ceil(log2 L) + ceil(log2 H)",
    .elements_text = "0",
    .generate = generate,
    .formula = find_formula,
};
