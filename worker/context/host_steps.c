/* How the group steps of a call on several hosts are performed: by the method that the cost model
 * finds the fastest for each, which all ranks of a host find alike. */
#include <stdlib.h>

#include "collectives/schedule/group_step.h"
#include "collectives/select/host_memory.h"
#include "worker/context/context_parts.h"

/* Shares that are blocks of the call may differ: the largest one counts, which all ranks know. */
static struct muster_memory_call call_of(const struct muster_plan *plan,
                                         const struct muster_schedule *schedule,
                                         const struct muster_step *step, size_t element_size_bytes)
{
    const struct muster_step_group *group = &schedule->groups[step->scope];
    const struct muster_shape shape = muster_plan_shape(plan);
    struct muster_memory_call call = muster_memory_call_of(step, group->count, element_size_bytes);
    bool gathers_blocks = step->blocks != 0 && step->kind == MUSTER_STEP_GROUP_ALLGATHER;
    for (uint32_t i = 0; i < group->count && gathers_blocks; i++) {
        uint64_t count = muster_step_share(&shape, group, step, i).count;
        call.largest_input = count > call.largest_input ? count : call.largest_input;
    }
    call.keep_input = plan->keep_input;
    return call;
}

muster_status muster_context_find_methods(const struct muster_context *context,
                                          const struct muster_plan *plan,
                                          const struct muster_schedule *schedule,
                                          size_t element_size_bytes, bool *ret_possible,
                                          uint8_t **ret_methods)
{
    bool possible = true;
    uint8_t *methods = NULL;
    for (size_t i = 0; i < schedule->step_count && possible; i++) {
        const struct muster_step *step = &schedule->steps[i];
        struct muster_memory_cost cost;
        if (!muster_step_is_group(step)) {
            continue;
        }
        methods = methods != NULL ? methods : calloc(schedule->step_count, sizeof *methods);
        if (methods == NULL) {
            return muster_error_set(MUSTER_FATAL, "no memory for %zu steps", schedule->step_count);
        }
        const struct muster_memory_call call = call_of(plan, schedule, step, element_size_bytes);
        possible = context->host.memory != NULL && step->scope == MUSTER_STEP_OVER_HOST &&
                   muster_memory_find(&call, &context->host.reach, &context->choices.model, &cost);
        methods[i] = possible ? (uint8_t)cost.method : 0;
    }
    *ret_methods = possible ? methods : NULL;
    *ret_possible = possible;
    if (!possible) {
        free(methods);
    }
    return MUSTER_OK;
}
