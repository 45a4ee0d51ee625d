/*
 * A whole call as one group step: the schedules of the rows `host_memory` where the ranks of a host
 * share memory. The device of the host performs it, in one exchange where the data is small
 * (worker/device/host/). Four ranks, of an allreduce:
 *
 *   round    0
 *            input of all -> the same sum in the outputs of all
 */
#include "collectives/algorithms/generators.h"

enum muster_step_kind muster_whole_group_kind(enum muster_collective collective)
{
    switch (collective) {
    case MUSTER_ALLREDUCE:
        return MUSTER_STEP_GROUP_ALLREDUCE;
    case MUSTER_REDUCE_SCATTER:
        return MUSTER_STEP_GROUP_REDUCE_SCATTER;
    case MUSTER_REDUCE:
        return MUSTER_STEP_GROUP_REDUCE;
    case MUSTER_BROADCAST:
        return MUSTER_STEP_GROUP_BROADCAST;
    case MUSTER_BARRIER:
        return MUSTER_STEP_GROUP_BARRIER;
    default:
        return MUSTER_STEP_GROUP_ALLGATHER;
    }
}

bool muster_whole_group_fits(const struct muster_plan *plan)
{
    return plan->memory != NULL && plan->topology->hosts == 1 && plan->topology->ranks > 1;
}

void muster_whole_group_generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    enum muster_step_kind kind = muster_whole_group_kind(plan->collective);
    const struct muster_schedule *schedule = &builder->schedule;
    bool gathers = kind == MUSTER_STEP_GROUP_ALLGATHER;
    const struct muster_group_call call = {
        .kind = kind,
        .scope = MUSTER_STEP_OVER_HOST,
        .root = plan->root,
        .source = MUSTER_INPUT,
        .target = MUSTER_OUTPUT,
        .span = {.count = gathers ? schedule->output_count : schedule->input_count},
        .blocks = plan->input_bounds != NULL || plan->output_bounds != NULL,
        .together = plan->finish_together};
    muster_builder_group(builder, &call);
}
