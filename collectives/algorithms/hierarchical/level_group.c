/*
 * A host whose ranks reduce and spread their data by group steps
 * (collectives/schedule/group_step.h), which the device of the host performs in the memory that its
 * ranks share. If every rank owns a share, there is one step each way, else one for each owner.
 *
 * Source: group steps in place of the levels within hosts in X. Luo et al.: HAN: a hierarchical
 * autotuned collective communication framework. CLUSTER 2020.
 *
 * Two members that both own a share of ab, and three of which one does:
 *
 *   to owners    reduce_scatter: a at 0, b at 1        reduce: ab at 0
 *   back         allgather: ab at both                 broadcast: ab from 0 to all
 */
#include "collectives/algorithms/hierarchical/exchange.h"

static bool all_own(const struct muster_level *level)
{
    return level->owners == level->group.size;
}

/* One step for each owner, all in one round. */
static void add_for_each_owner(struct muster_builder *builder, const struct muster_level *level,
                               enum muster_step_kind kind, enum muster_buffer source)
{
    for (uint32_t owner = 0; owner < level->owners; owner++) {
        const struct muster_span share = muster_level_share(level, owner);
        const struct muster_group_call call = {.kind = kind,
                                               .scope = MUSTER_STEP_OVER_HOST,
                                               .root = muster_group_rank(&level->group, owner),
                                               .source = source,
                                               .target = MUSTER_OUTPUT,
                                               .span = share,
                                               .at = share.offset};
        muster_builder_group(builder, &call);
    }
}

static enum muster_buffer reduce_scatter(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    const struct muster_group_call call = {
        .kind = MUSTER_STEP_GROUP_REDUCE_SCATTER,
        .scope = MUSTER_STEP_OVER_HOST,
        .source = source,
        .target = MUSTER_OUTPUT,
        .span = level->span,
        .at = muster_level_share(level, level->group.index).offset};
    if (level->group.size == 1) {
        return source;
    }
    if (all_own(level)) {
        muster_builder_group(builder, &call);
    } else {
        add_for_each_owner(builder, level, MUSTER_STEP_GROUP_REDUCE, source);
    }
    return MUSTER_OUTPUT;
}

static void allgather(struct muster_builder *builder, const struct muster_level *level)
{
    const struct muster_group_call call = {
        .kind = MUSTER_STEP_GROUP_ALLGATHER,
        .scope = MUSTER_STEP_OVER_HOST,
        .source = MUSTER_OUTPUT,
        .target = MUSTER_OUTPUT,
        .span = {.offset = muster_level_share(level, level->group.index).offset,
                 .count = level->span.count},
        .at = level->span.offset};
    if (level->group.size == 1) {
        return;
    }
    if (all_own(level)) {
        muster_builder_group(builder, &call);
    } else {
        add_for_each_owner(builder, level, MUSTER_STEP_GROUP_BROADCAST, MUSTER_OUTPUT);
    }
}

/* No messages. A rank copies its data for the others, reduces what it owns, and copies the results:
 * about as much work as to reduce twice the data. */
static struct muster_step_totals totals(const struct muster_level *level)
{
    if (level->group.size == 1) {
        return (struct muster_step_totals){0};
    }
    return (struct muster_step_totals){.rounds = 2, .reduced = 2 * level->span.count};
}

const struct muster_exchange muster_exchange_group = {
    .name = "group",
    .steady = true,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .totals = totals,
};
