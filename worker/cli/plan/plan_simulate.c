/* muster plan: generates and checks the schedules of all ranks, and predicts their times. */
#include "worker/cli/plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"

static muster_status fill(const struct muster_plan_request *request, struct muster_plan_set *set)
{
    for (uint32_t rank = 0; rank < set->ranks; rank++) {
        struct muster_plan plan = muster_plan_for_rank(request, rank);
        set->shapes[rank] = muster_algorithm_shape(request->algorithm, &plan);
        TRY(muster_schedule_generate(request->algorithm, &plan, &set->schedules[rank]));
    }
    unsigned promises = (request->plan.keep_input ? MUSTER_CHECK_INPUT_KEPT : 0U) |
                        (request->plan.finish_together ? MUSTER_CHECK_FINISH_TOGETHER : 0U);
    return muster_check_promises(set->shapes, set->schedules, set->ranks, request->plan.in_place,
                                 promises, &set->verdict);
}

/* A set that is only half made is finished here, so that the caller has nothing to release. */
muster_status muster_plan_set_create(const struct muster_plan_request *request,
                                     struct muster_plan_set *ret_set)
{
    uint32_t ranks = request->topology.ranks;
    if (ranks > MUSTER_PLAN_RANKS_MAX) {
        return muster_error_set(MUSTER_INVALID,
                                "%" PRIu32
                                " ranks: the schedules of at most %d ranks can be shown or "
                                "checked; --simulate and --table take more",
                                ranks, MUSTER_PLAN_RANKS_MAX);
    }
    struct muster_plan_set set = {.ranks = ranks};
    set.shapes = calloc((size_t)ranks + 1, sizeof *set.shapes);
    set.schedules = calloc((size_t)ranks + 1, sizeof *set.schedules);
    muster_status status = MUSTER_OK;
    if (set.shapes == NULL || set.schedules == NULL) {
        status = muster_error_set(MUSTER_FATAL, "no memory for %" PRIu32 " schedules", ranks);
    } else {
        status = fill(request, &set);
    }
    if (status != MUSTER_OK) {
        muster_plan_set_finish(&set);
        return status;
    }
    *ret_set = set;
    return MUSTER_OK;
}

void muster_plan_set_finish(struct muster_plan_set *set)
{
    for (uint32_t rank = 0; set->schedules != NULL && rank < set->ranks; rank++) {
        muster_schedule_finish(&set->schedules[rank]);
    }
    free(set->schedules);
    free(set->shapes);
    *set = (struct muster_plan_set){0};
}

/* Adds the schedules of the set. Without a set they are generated one after another, so that only
 * one is in memory. */
static muster_status add_all(const struct muster_plan_request *request,
                             const struct muster_plan_set *set,
                             struct muster_simulation *simulation)
{
    for (uint32_t rank = 0; rank < request->topology.ranks; rank++) {
        if (set != NULL) {
            TRY(muster_simulation_add(simulation, &set->schedules[rank]));
            continue;
        }
        struct muster_plan plan = muster_plan_for_rank(request, rank);
        struct muster_schedule schedule = {0};
        TRY(muster_schedule_generate(request->algorithm, &plan, &schedule));
        muster_status status = muster_simulation_add(simulation, &schedule);
        muster_schedule_finish(&schedule);
        TRY(status);
    }
    return MUSTER_OK;
}

/* Times of each step are recorded only if there is a set to draw. */
muster_status muster_plan_times_create(const struct muster_plan_request *request,
                                       const struct muster_plan_set *set,
                                       struct muster_plan_times *ret_times)
{
    const struct muster_simulation_options options = {
        .topology = &request->topology,
        .model = &muster_cost_model_default,
        .element_size_bytes = MUSTER_PLAN_ELEMENT_SIZE_BYTES,
        .trace = set != NULL,
    };
    struct muster_plan_times times = {0};
    TRY(muster_simulation_create(&options, &times.simulation));
    muster_status status = add_all(request, set, times.simulation);
    if (status == MUSTER_OK) {
        status = muster_simulation_run(times.simulation, &times.result);
    }
    if (status == MUSTER_OK && !times.result.finished) {
        status = muster_error_set(MUSTER_INVALID, "the simulation: %s", times.result.verdict);
    }
    if (status != MUSTER_OK) {
        muster_plan_times_finish(&times);
        return status;
    }
    *ret_times = times;
    return MUSTER_OK;
}

void muster_plan_times_finish(struct muster_plan_times *times)
{
    muster_simulation_destroy(times->simulation);
    *times = (struct muster_plan_times){0};
}

struct muster_step_times muster_plan_times_of(const struct muster_plan_times *times,
                                              const struct muster_drawing *drawing, size_t number)
{
    uint32_t rank = drawing->steps[number].rank;
    return muster_simulation_times(times->simulation, rank)[number - drawing->first_step[rank]];
}
