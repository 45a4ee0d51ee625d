/*
 * Broadcast, reduce and barrier over hosts whose ranks share memory: within each host one group
 * step (collectives/schedule/group_step.h) each way, between the leaders of hosts and racks the
 * messages of the hierarchical algorithms. Where ranks share no memory, these do all of it.
 *
 * Source: group steps in place of the levels within hosts in X. Luo et al.: HAN: a hierarchical
 * autotuned collective communication framework. CLUSTER 2020.
 *
 * Four ranks on two hosts, {0, 1} and {2, 3}, root 1:
 *
 *   broadcast    1 ------> 2, then a group broadcast from 1 to {0, 1} and from 2 to {2, 3}
 *   reduce       a group reduce of {0, 1} at 1 and of {2, 3} at 2, then 1 <------ 2
 *   barrier      group barriers of {0, 1} and {2, 3}, 0 <------> 2, group barriers again
 */
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical/rooted.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

enum { HOST_LEVEL = MUSTER_ROOTED_LEVELS - 1 };

extern const struct muster_generator muster_barrier_hierarchical_generator;
extern const struct muster_generator muster_broadcast_hierarchical_generator;
extern const struct muster_generator muster_reduce_hierarchical_generator;

static void add_group_step(const struct muster_rooted *rooted, enum muster_step_kind kind,
                           enum muster_buffer source, enum muster_buffer target, uint64_t count,
                           struct muster_builder *builder)
{
    const struct muster_rooted_level *level = &rooted->levels[HOST_LEVEL];
    const struct muster_group_call call = {.kind = kind,
                                           .scope = MUSTER_STEP_OVER_HOST,
                                           .root = muster_group_rank(&level->group, level->root),
                                           .source = source,
                                           .target = target,
                                           .span = {.count = count}};
    if (level->group.size > 1) {
        muster_builder_next_round(builder);
        muster_builder_group(builder, &call);
        muster_builder_next_round(builder);
    }
}

/* In the host, and between its leader and others. */
static struct muster_step_totals one_step(uint64_t count, uint32_t size, uint32_t place)
{
    (void)place;
    return (struct muster_step_totals){.rounds = size > 1 ? 1 : 0, .reduced = size > 1 ? count : 0};
}

static struct muster_step_totals two_steps(uint64_t count, uint32_t size, uint32_t place)
{
    (void)count;
    (void)place;
    return (struct muster_step_totals){.rounds = size > 1 ? 2 : 0};
}

/* Broadcast ------------------------------------------------------------------------------------ */

static void add_broadcast(const struct muster_plan *plan, const struct muster_rooted *rooted,
                          struct muster_builder *builder)
{
    const struct muster_span span = {.count = plan->count};
    bool is_root = plan->rank == plan->root;
    enum muster_buffer source = is_root ? MUSTER_INPUT : MUSTER_OUTPUT;
    if (is_root && rooted->levels[HOST_LEVEL].group.size == 1) {
        muster_builder_copy(builder, MUSTER_INPUT, span, MUSTER_OUTPUT, 0);
    }
    for (uint32_t i = rooted->first; i < HOST_LEVEL; i++) {
        muster_broadcast_binomial_part(builder, &rooted->levels[i].group, rooted->levels[i].root,
                                       source, span);
    }
    add_group_step(rooted, MUSTER_STEP_GROUP_BROADCAST, source, MUSTER_OUTPUT, plan->count,
                   builder);
}

/* Reduce --------------------------------------------------------------------------------------- */

static void add_reduce(const struct muster_plan *plan, const struct muster_rooted *rooted,
                       struct muster_builder *builder)
{
    const struct muster_span span = {.count = plan->count};
    bool leads = rooted->first < HOST_LEVEL;
    enum muster_buffer sum = plan->rank == plan->root ? MUSTER_OUTPUT : MUSTER_SCRATCH;
    enum muster_buffer held = MUSTER_INPUT;
    if (rooted->levels[HOST_LEVEL].group.size > 1) {
        if (leads && sum == MUSTER_SCRATCH) {
            (void)muster_builder_reserve(builder, plan->count);
        }
        add_group_step(rooted, MUSTER_STEP_GROUP_REDUCE, MUSTER_INPUT, sum, plan->count, builder);
        held = sum;
    }
    for (uint32_t i = HOST_LEVEL; i-- > rooted->first;) {
        held = muster_reduce_binomial_part(builder, &rooted->levels[i].group,
                                           rooted->levels[i].root, held, span, sum);
    }
}

/* Barrier -------------------------------------------------------------------------------------- */

/* Between the leaders as an allreduce of nothing, which is a barrier: up to the first, and back. */
static void add_barrier(const struct muster_plan *plan, const struct muster_rooted *rooted,
                        struct muster_builder *builder)
{
    (void)plan;
    add_group_step(rooted, MUSTER_STEP_GROUP_BARRIER, MUSTER_INPUT, MUSTER_OUTPUT, 0, builder);
    for (uint32_t i = HOST_LEVEL; i-- > rooted->first;) {
        (void)muster_reduce_binomial_part(builder, &rooted->levels[i].group, rooted->levels[i].root,
                                          MUSTER_INPUT, (struct muster_span){0}, MUSTER_OUTPUT);
    }
    for (uint32_t i = rooted->first; i < HOST_LEVEL; i++) {
        muster_broadcast_binomial_part(builder, &rooted->levels[i].group, rooted->levels[i].root,
                                       MUSTER_INPUT, (struct muster_span){0});
    }
    add_group_step(rooted, MUSTER_STEP_GROUP_BARRIER, MUSTER_INPUT, MUSTER_OUTPUT, 0, builder);
}

static struct muster_step_totals up_and_back(uint64_t count, uint32_t size, uint32_t place)
{
    const struct muster_step_totals up = muster_reduce_binomial_totals(count, size, place);
    const struct muster_step_totals back = muster_broadcast_binomial_totals(count, size, place);
    return (struct muster_step_totals){.rounds = up.rounds + back.rounds};
}

/* All three ------------------------------------------------------------------------------------ */

typedef void (*add_steps)(const struct muster_plan *plan, const struct muster_rooted *rooted,
                          struct muster_builder *builder);

static muster_status generate(const struct muster_plan *plan, struct muster_builder *builder,
                              add_steps add)
{
    AUTO_FREE uint32_t *ranks = calloc(muster_rooted_room(plan->topology), sizeof *ranks);
    if (ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "schedule: no memory for the leaders of hosts");
    }
    const struct muster_rooted rooted = muster_rooted_of(plan, ranks);
    add(plan, &rooted, builder);
    return MUSTER_OK;
}

static void find_formula(const struct muster_plan *plan, muster_rooted_totals between,
                         muster_rooted_totals within, struct muster_formula *ret_formula)
{
    const muster_rooted_totals level_totals[MUSTER_ROOTED_LEVELS] = {between, between, within};
    muster_rooted_formula(plan, level_totals, ret_formula);
}

#define GENERATOR(name, between, within, rounds, elements)                                         \
    static muster_status generate_##name(const struct muster_plan *plan,                           \
                                         struct muster_builder *builder)                           \
    {                                                                                              \
        return plan->memory != NULL                                                                \
                   ? generate(plan, builder, add_##name)                                           \
                   : muster_##name##_hierarchical_generator.generate(plan, builder);               \
    }                                                                                              \
    static void formula_##name(const struct muster_plan *plan, struct muster_formula *ret_formula) \
    {                                                                                              \
        if (plan->memory != NULL) {                                                                \
            find_formula(plan, between, within, ret_formula);                                      \
        } else {                                                                                   \
            muster_##name##_hierarchical_generator.formula(plan, ret_formula);                     \
        }                                                                                          \
    }                                                                                              \
    extern const struct muster_generator muster_##name##_group_generator;                          \
    const struct muster_generator muster_##name##_group_generator = {.rounds_text = (rounds),      \
                                                                     .elements_text = (elements),  \
                                                                     .generate = generate_##name,  \
                                                                     .formula = formula_##name}

GENERATOR(broadcast, muster_broadcast_binomial_totals, one_step, "ceil(log2 H) + 1",
          "n ceil(log2 H)");
GENERATOR(reduce, muster_reduce_binomial_totals, one_step, "ceil(log2 H) + 1", "n");
GENERATOR(barrier, up_and_back, two_steps, "2 ceil(log2 H) + 2", "0");
