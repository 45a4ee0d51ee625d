/* Group steps: their groups and shares, and what every kind of step reads and writes. */
#include "collectives/schedule/group_step.h"

const char *muster_step_kind_name(unsigned kind)
{
    static const char *const names[] = {[MUSTER_STEP_SEND] = "send",
                                        [MUSTER_STEP_RECV] = "recv",
                                        [MUSTER_STEP_RECV_REDUCE] = "recv_reduce",
                                        [MUSTER_STEP_COPY] = "copy",
                                        [MUSTER_STEP_REDUCE] = "reduce",
                                        [MUSTER_STEP_GROUP_ALLREDUCE] = "group_allreduce",
                                        [MUSTER_STEP_GROUP_REDUCE_SCATTER] = "group_reduce_scatter",
                                        [MUSTER_STEP_GROUP_ALLGATHER] = "group_allgather",
                                        [MUSTER_STEP_GROUP_REDUCE] = "group_reduce",
                                        [MUSTER_STEP_GROUP_BROADCAST] = "group_broadcast",
                                        [MUSTER_STEP_GROUP_BARRIER] = "group_barrier"};
    bool known = kind < sizeof names / sizeof names[0] && names[kind] != NULL;
    return known ? names[kind] : "unknown";
}

const char *muster_step_scope_name(unsigned scope)
{
    static const char *const names[] = {"host", "cross", "all"};
    return scope < sizeof names / sizeof names[0] ? names[scope] : "unknown";
}

bool muster_step_has_root(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_GROUP_REDUCE || step->kind == MUSTER_STEP_GROUP_BROADCAST;
}

uint32_t muster_step_group_rank(const struct muster_step_group *group, uint32_t index)
{
    return group->first + index * group->stride;
}

uint32_t muster_step_group_index(const struct muster_step_group *group, uint32_t rank)
{
    if (rank < group->first || group->stride == 0 || (rank - group->first) % group->stride != 0) {
        return group->count;
    }
    uint32_t index = (rank - group->first) / group->stride;
    return index < group->count ? index : group->count;
}

struct muster_span muster_step_share(const struct muster_shape *shape,
                                     const struct muster_step_group *group,
                                     const struct muster_step *step, uint32_t index)
{
    if (step->blocks == 0) {
        return muster_span_part((struct muster_span){.count = step->span.count}, group->count,
                                index);
    }
    bool scatters = step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER;
    uint32_t rank = muster_step_group_rank(group, index);
    struct muster_span first = scatters ? muster_shape_input_block(shape, group->first)
                                        : muster_shape_output_block(shape, group->first);
    struct muster_span share =
        scatters ? muster_shape_input_block(shape, rank) : muster_shape_output_block(shape, rank);
    share.offset -= first.offset;
    return share;
}

static struct muster_step_ranges group_ranges(const struct muster_shape *shape,
                                              const struct muster_schedule *schedule,
                                              const struct muster_step *step)
{
    const struct muster_step_group *group = &schedule->groups[step->scope];
    struct muster_step_ranges ranges = {
        .reads = step->kind != MUSTER_STEP_GROUP_BARRIER,
        .writes = step->kind != MUSTER_STEP_GROUP_BARRIER,
        .source = step->span,
        .target = {.offset = step->at, .count = step->span.count},
    };
    bool is_root = step->peer == schedule->rank;
    ranges.reads &= step->kind != MUSTER_STEP_GROUP_BROADCAST || is_root;
    ranges.writes &= step->kind != MUSTER_STEP_GROUP_REDUCE || is_root;
    if (step->kind == MUSTER_STEP_GROUP_REDUCE_SCATTER ||
        step->kind == MUSTER_STEP_GROUP_ALLGATHER) {
        uint32_t index = muster_step_group_index(group, schedule->rank);
        uint64_t count = muster_step_share(shape, group, step, index).count;
        *(step->kind == MUSTER_STEP_GROUP_ALLGATHER ? &ranges.source.count : &ranges.target.count) =
            count;
    }
    return ranges;
}

struct muster_step_ranges muster_step_ranges(const struct muster_shape *shape,
                                             const struct muster_schedule *schedule,
                                             const struct muster_step *step)
{
    if (muster_step_is_group(step)) {
        return group_ranges(shape, schedule, step);
    }
    return (struct muster_step_ranges){.reads = step->kind != MUSTER_STEP_RECV,
                                       .writes = step->kind != MUSTER_STEP_SEND,
                                       .source = step->span,
                                       .target = {.offset = step->at, .count = step->span.count}};
}
