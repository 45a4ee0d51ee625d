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

/* One step for each owner, all in one round. `share`: where this member's own is. */
static void add_for_each_owner(struct muster_builder *builder, const struct muster_level *level,
                               struct muster_group_call call, bool reduces,
                               const struct muster_group_ends *ends)
{
    for (uint32_t owner = 0; owner < level->owners; owner++) {
        const struct muster_span share = muster_level_share(level, owner);
        uint64_t in_span = ends->whole + (share.offset - level->span.offset);
        uint64_t own = owner == level->group.index ? ends->share : 0;
        call.root = muster_group_rank(&level->group, owner);
        call.span = (struct muster_span){.offset = reduces ? in_span : own, .count = share.count};
        call.at = reduces ? own : in_span;
        muster_builder_group(builder, &call);
    }
}

void muster_group_level_reduce(struct muster_builder *builder, const struct muster_level *level,
                               const struct muster_group_ends *ends)
{
    struct muster_group_call call = {.kind = MUSTER_STEP_GROUP_REDUCE_SCATTER,
                                     .scope = MUSTER_STEP_OVER_HOST,
                                     .source = ends->span_buffer,
                                     .target = ends->share_buffer,
                                     .span = {.offset = ends->whole, .count = level->span.count},
                                     .at = ends->share};
    if (all_own(level)) {
        muster_builder_group(builder, &call);
    } else {
        call.kind = MUSTER_STEP_GROUP_REDUCE;
        add_for_each_owner(builder, level, call, true, ends);
    }
}

void muster_group_level_spread(struct muster_builder *builder, const struct muster_level *level,
                               const struct muster_group_ends *ends)
{
    struct muster_group_call call = {.kind = MUSTER_STEP_GROUP_ALLGATHER,
                                     .scope = MUSTER_STEP_OVER_HOST,
                                     .source = ends->share_buffer,
                                     .target = ends->span_buffer,
                                     .span = {.offset = ends->share, .count = level->span.count},
                                     .at = ends->whole};
    if (all_own(level)) {
        muster_builder_group(builder, &call);
    } else {
        call.kind = MUSTER_STEP_GROUP_BROADCAST;
        add_for_each_owner(builder, level, call, false, ends);
    }
}

static struct muster_group_ends in_output(const struct muster_level *level,
                                          enum muster_buffer span_buffer)
{
    return (struct muster_group_ends){.span_buffer = span_buffer,
                                      .share_buffer = MUSTER_OUTPUT,
                                      .whole = level->span.offset,
                                      .share =
                                          muster_level_share(level, level->group.index).offset};
}

static enum muster_buffer reduce_scatter(struct muster_builder *builder,
                                         const struct muster_level *level,
                                         enum muster_buffer source)
{
    const struct muster_group_ends ends = in_output(level, source);
    if (level->group.size == 1) {
        return source;
    }
    muster_group_level_reduce(builder, level, &ends);
    return MUSTER_OUTPUT;
}

static void allgather(struct muster_builder *builder, const struct muster_level *level)
{
    const struct muster_group_ends ends = in_output(level, MUSTER_OUTPUT);
    if (level->group.size > 1) {
        muster_group_level_spread(builder, level, &ends);
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
