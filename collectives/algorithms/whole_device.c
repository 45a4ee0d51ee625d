/*
 * A call on memory of a device as one group step of all ranks: the rows `nccl`, where all ranks
 * have a group of the device. What the device runs for a step may wait for the other ranks and
 * cannot be taken back, so the step begins only when all ranks have come to it: first empty
 * messages go round (barrier_dissemination.c), in which each rank compares its call with those of
 * others. Four ranks, of an allreduce:
 *
 *   round 0    0 -> 1 -> 2 -> 3 -> 0                        that the rank has come
 *   round 1    0 -> 2, 1 -> 3, 2 -> 0, 3 -> 1
 *   round 2    input of all -> the same sum in the outputs of all
 */
#include "collectives/algorithms/generators.h"

bool muster_device_plan_fits(const struct muster_plan *plan)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    bool empty = muster_shape_input_count(&shape) == 0 && muster_shape_output_count(&shape) == 0;
    return plan->device != NULL && plan->topology->ranks > 1 && plan->reduction_order == NULL &&
           !plan->keep_input && !empty && plan->device->GBps[plan->collective] > 0;
}

static void arrive(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    muster_barrier_dissemination_part(builder, &all);
}

void muster_device_group_generate(const struct muster_plan *plan, struct muster_builder *builder)
{
    enum muster_step_kind kind = muster_whole_group_kind(plan->collective);
    const struct muster_schedule *schedule = &builder->schedule;
    bool gathers = kind == MUSTER_STEP_GROUP_ALLGATHER;
    const struct muster_group_call call = {
        .kind = kind,
        .scope = MUSTER_STEP_OVER_ALL,
        .root = plan->root,
        .source = MUSTER_INPUT,
        .target = MUSTER_OUTPUT,
        .span = {.count = gathers ? schedule->output_count : schedule->input_count},
        .blocks = plan->input_bounds != NULL || plan->output_bounds != NULL};
    arrive(plan, builder);
    muster_builder_group(builder, &call);
}
