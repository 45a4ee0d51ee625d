/* A plan: one call on one rank. */
#include "collectives/call/call_plan.h"

struct muster_shape muster_plan_shape(const struct muster_plan *plan)
{
    return (struct muster_shape){
        .collective = plan->collective,
        .rank = plan->rank,
        .ranks = plan->topology->ranks,
        .root = plan->root,
        .count = plan->count,
        .input_bounds = plan->input_bounds,
        .output_bounds = plan->output_bounds,
        .reduction_order = plan->reduction_order,
        .steps = plan->collective == MUSTER_PAIRWISE_EXCHANGE ? plan->variant : 0};
}
