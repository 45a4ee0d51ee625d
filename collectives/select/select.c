/* Selection: lists the candidates, predicts their times, picks the fastest one or several. */
#include "collectives/select/select.h"

#include <math.h>
#include <stdlib.h>

#include "collectives/select/host_memory.h"
#include "collectives/simulate/simulate.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* True if the whole call is a group step: the algorithm uses shared memory, or is of a device, and
 * the plan can be carried out in it; ret_us is the predicted time then. */
static bool is_in_group(size_t algorithm, const struct muster_plan *plan, size_t element_size_bytes,
                        const struct muster_cost_model *model, double *ret_us)
{
    enum muster_memory_method method;
    return (muster_algorithm_uses_memory(algorithm) &&
            muster_memory_choose(plan, element_size_bytes, model, &method, ret_us)) ||
           muster_device_choose(algorithm, plan, element_size_bytes, model, ret_us);
}

/* It is selected as a group step only. */
static bool needs_group(size_t algorithm)
{
    return muster_algorithm_uses_memory(algorithm) || muster_algorithm_is_of_device(algorithm);
}

/* What the algorithm costs beside its prediction. */
static double staging_us(size_t algorithm, const struct muster_plan *plan,
                         size_t element_size_bytes)
{
    return muster_device_group_fits(algorithm, plan)
               ? 0
               : muster_device_staging_us(plan, element_size_bytes);
}

bool muster_select_considers(size_t algorithm, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model)
{
    char why[MUSTER_ERROR_MAX];
    double unused_us;
    return muster_algorithm_fits(algorithm, plan, why, sizeof why) &&
           (!needs_group(algorithm) ||
            is_in_group(algorithm, plan, element_size_bytes, model, &unused_us));
}

muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                    size_t element_size_bytes,
                                    const struct muster_cost_model *model, double *ret_us)
{
    struct muster_plan any = *plan;
    any.rank = 0;
    TRY(muster_plan_check(algorithm, &any));
    double us = 0;
    if (!is_in_group(algorithm, &any, element_size_bytes, model, &us)) {
        if (plan->topology->ranks <= MUSTER_SELECT_SIMULATED_RANKS_MAX) {
            TRY(muster_simulate_us(algorithm, &any, element_size_bytes, model, 0, &us));
        } else {
            us = muster_cost_formula_us(algorithm, &any, element_size_bytes, model);
        }
    }
    *ret_us = us + staging_us(algorithm, &any, element_size_bytes);
    return MUSTER_OK;
}

/* Candidates whose formula gives more than so many times the lowest time are dropped without
 * simulation: no formula is wrong by as much. */
static const double formula_factor = 8;

/* A candidate is simulated only if it can be faster than the best one so far by this share. The
 * model is not more exact than that, and it lets the lower bounds rule out most candidates. */
static const double tolerance = 0.03;

/* An algorithm that fits the plan. */
struct candidate {
    size_t algorithm;
    double estimate_us;                   /* by the formula; not below the bound */
    double bound_us;                      /* no run takes less */
    bool favourite;                       /* sorts before others of the same estimate */
    bool in_group;                        /* it is a group step: the estimate is the prediction */
    double staging_us;                    /* part of the estimate and of the bound */
    struct muster_simulation *simulation; /* owned; NULL: not made */
};

/* By the estimate, then the favourite, then by the index. */
static int compare_candidates(const void *left_candidate, const void *right_candidate)
{
    const struct candidate *left = left_candidate;
    const struct candidate *right = right_candidate;
    if (left->estimate_us != right->estimate_us) {
        return left->estimate_us < right->estimate_us ? -1 : 1;
    }
    if (left->favourite != right->favourite) {
        return left->favourite ? -1 : 1;
    }
    return left->algorithm < right->algorithm ? -1 : 1;
}

/* False if the algorithm is no candidate. */
static bool is_candidate(size_t algorithm, const struct muster_plan *plan,
                         size_t element_size_bytes, const struct muster_cost_model *model,
                         struct candidate *ret_candidate)
{
    char why[MUSTER_ERROR_MAX];
    if (muster_algorithms[algorithm].collective != plan->collective ||
        muster_algorithms[algorithm].only_named ||
        !muster_algorithm_fits(algorithm, plan, why, sizeof why)) {
        return false;
    }
    *ret_candidate = (struct candidate){
        .algorithm = algorithm, .staging_us = staging_us(algorithm, plan, element_size_bytes)};
    if (is_in_group(algorithm, plan, element_size_bytes, model, &ret_candidate->estimate_us)) {
        ret_candidate->in_group = true;
        ret_candidate->estimate_us += ret_candidate->staging_us;
        ret_candidate->bound_us = ret_candidate->estimate_us;
        return true;
    }
    ret_candidate->estimate_us =
        muster_cost_formula_us(algorithm, plan, element_size_bytes, model) +
        ret_candidate->staging_us;
    return !needs_group(algorithm);
}

/* Returns the number of candidates; sorts them, and drops those with a hopeless formula. */
static size_t list_candidates(const struct muster_plan *plan, size_t element_size_bytes,
                              const struct muster_cost_model *model, struct candidate *candidates)
{
    size_t count = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        if (is_candidate(i, plan, element_size_bytes, model, &candidates[count])) {
            count++;
        }
    }
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    while (count > 1 &&
           candidates[count - 1].estimate_us > formula_factor * candidates[0].estimate_us) {
        count--;
    }
    return count;
}

/* Generates all ranks' schedules, and finds their lower bound. */
static muster_status prepare(struct candidate *candidate, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model)
{
    const struct muster_simulation_options options = {
        .topology = plan->topology, .model = model, .element_size_bytes = element_size_bytes};
    TRY(muster_plan_check(candidate->algorithm, plan));
    if (candidate->in_group) {
        return MUSTER_OK;
    }
    TRY(muster_simulation_create(&options, &candidate->simulation));
    TRY(muster_simulation_add_all(candidate->simulation, candidate->algorithm, plan));
    TRY(muster_simulation_bound_us(candidate->simulation, &candidate->bound_us));
    candidate->bound_us += candidate->staging_us;
    if (candidate->estimate_us < candidate->bound_us) {
        candidate->estimate_us = candidate->bound_us;
    }
    return MUSTER_OK;
}

/* Simulates. INFINITY: it takes longer than the limit; 0: no limit. */
static muster_status predict(const struct candidate *candidate, double limit_us, double *ret_us)
{
    if (candidate->in_group) {
        *ret_us = candidate->estimate_us;
        return MUSTER_OK;
    }
    struct muster_simulation_result result;
    muster_simulation_limit(candidate->simulation,
                            limit_us > 0 ? fmax(limit_us - candidate->staging_us, 1e-3) : 0);
    TRY(muster_simulation_run(candidate->simulation, &result));
    if (!result.finished && !result.beyond_limit) {
        return muster_error_set(MUSTER_FATAL, "%s: %s",
                                muster_algorithms[candidate->algorithm].name, result.verdict);
    }
    *ret_us = result.finished ? result.total_us + candidate->staging_us : INFINITY;
    return MUSTER_OK;
}

/* Simulates the candidate with the lowest estimate, and then the others as far as they can still be
 * faster than the best one so far. */
static muster_status find_fastest(const struct candidate *candidates, size_t count,
                                  size_t *ret_algorithm)
{
    size_t best = 0;
    double best_us = 0;
    TRY(predict(&candidates[0], 0, &best_us));
    for (size_t i = 1; i < count; i++) {
        double limit_us = best_us * (1 - tolerance);
        double time_us = limit_us;
        if (candidates[i].bound_us >= limit_us) {
            continue;
        }
        TRY(predict(&candidates[i], limit_us, &time_us));
        if (time_us < best_us) {
            best = i;
            best_us = time_us;
        }
    }
    *ret_algorithm = candidates[best].algorithm;
    return MUSTER_OK;
}

static muster_status select_simulated(const struct muster_plan *plan, size_t element_size_bytes,
                                      const struct muster_cost_model *model,
                                      struct candidate *candidates, size_t count,
                                      size_t *ret_algorithm)
{
    for (size_t i = 0; i < count; i++) {
        TRY(prepare(&candidates[i], plan, element_size_bytes, model));
    }
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    return find_fastest(candidates, count, ret_algorithm);
}

/* In small jobs by simulation; in large ones, and where there is one candidate, by the formulas. */
muster_status muster_select(const struct muster_plan *plan, size_t element_size_bytes,
                            const struct muster_cost_model *model, size_t *ret_algorithm)
{
    AUTO_FREE struct candidate *candidates = calloc(muster_algorithm_count, sizeof *candidates);
    if (candidates == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to select an algorithm");
    }
    size_t count = list_candidates(plan, element_size_bytes, model, candidates);
    if (count == 0) {
        return muster_error_set(MUSTER_INVALID, "%s has no algorithm that fits",
                                muster_collective_name(plan->collective));
    }
    struct muster_plan any = *plan;
    any.rank = 0;
    /* A single candidate is not simulated either: of an alltoallv this rank knows its own sizes
     * only, which are not enough to generate all schedules. */
    if (count == 1 || plan->topology->ranks > MUSTER_SELECT_SIMULATED_RANKS_MAX) {
        TRY(muster_plan_check(candidates[0].algorithm, &any));
        *ret_algorithm = candidates[0].algorithm;
        return MUSTER_OK;
    }
    muster_status status =
        select_simulated(&any, element_size_bytes, model, candidates, count, ret_algorithm);
    for (size_t i = 0; i < count; i++) {
        muster_simulation_destroy(candidates[i].simulation);
    }
    return status;
}

/* Several ------------------------------------------------------------------------------------- */

/* Candidates are listed up to this factor of the lowest predicted time. */
static const double listed_factor = 1.25;

static double limit_of(double lowest_us, double slack_us)
{
    return fmax(listed_factor * lowest_us, lowest_us + slack_us);
}

/* Replaces the estimates by predictions: INFINITY for candidates that will not be listed. */
static muster_status predict_all(const struct muster_plan *plan, size_t element_size_bytes,
                                 const struct muster_cost_model *model, double slack_us,
                                 struct candidate *candidates, size_t count)
{
    double lowest_us = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double limit_us = limit_of(lowest_us, slack_us);
        double time_us = INFINITY;
        TRY(prepare(&candidates[i], plan, element_size_bytes, model));
        if (candidates[i].bound_us <= limit_us) {
            TRY(predict(&candidates[i], isinf(limit_us) ? 0 : limit_us, &time_us));
        }
        lowest_us = fmin(lowest_us, time_us);
        candidates[i].estimate_us = time_us;
    }
    return MUSTER_OK;
}

/* True if the two do the same for this plan. Equal predicted times alone do not show it: where
 * waking a rank is expensive, quite different algorithms have equal times. */
static bool is_same(const struct candidate *one, const struct candidate *other,
                    const struct muster_plan *plan)
{
    struct muster_formula left = {0};
    struct muster_formula right = {0};
    if (one->estimate_us != other->estimate_us || one->in_group || other->in_group) {
        return false;
    }
    if (one->simulation != NULL) {
        return muster_simulation_is_alike(one->simulation, other->simulation);
    }
    muster_algorithm_formula(one->algorithm, plan, &left);
    muster_algorithm_formula(other->algorithm, plan, &right);
    return left.rounds == right.rounds && left.elements == right.elements;
}

/* True if an earlier candidate does the same. */
static bool is_duplicate(const struct candidate *candidates, size_t index,
                         const struct muster_plan *plan)
{
    for (size_t i = 0; i < index; i++) {
        if (is_same(&candidates[i], &candidates[index], plan)) {
            return true;
        }
    }
    return false;
}

static uint32_t list_fastest(const struct candidate *candidates, size_t count,
                             const struct muster_plan *plan, double slack_us, uint32_t most,
                             struct muster_prediction *ret_list)
{
    uint32_t listed = 0;
    for (size_t i = 0; i < count && listed < most; i++) {
        double us = candidates[i].estimate_us;
        if (us > limit_of(candidates[0].estimate_us, slack_us)) {
            break;
        }
        if (!is_duplicate(candidates, i, plan)) {
            ret_list[listed++] =
                (struct muster_prediction){.algorithm = candidates[i].algorithm, .us = us};
        }
    }
    return listed;
}

/* Predicts the times of all candidates, sorts them with the favourite before others of the same
 * time, and lists the fastest ones. */
muster_status muster_select_several(const struct muster_plan *plan, size_t element_size_bytes,
                                    const struct muster_cost_model *model, double slack_us,
                                    size_t favourite, uint32_t most,
                                    struct muster_prediction *ret_list, uint32_t *ret_count)
{
    AUTO_FREE struct candidate *candidates = calloc(muster_algorithm_count, sizeof *candidates);
    if (candidates == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to select an algorithm");
    }
    struct muster_plan any = *plan;
    any.rank = 0;
    size_t count = list_candidates(&any, element_size_bytes, model, candidates);
    muster_status status = MUSTER_OK;
    if (plan->topology->ranks <= MUSTER_SELECT_LISTED_RANKS_MAX) {
        status = predict_all(&any, element_size_bytes, model, slack_us, candidates, count);
    }
    for (size_t i = 0; i < count; i++) {
        candidates[i].favourite = candidates[i].algorithm == favourite;
    }
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    if (status == MUSTER_OK) {
        *ret_count = list_fastest(candidates, count, &any, slack_us, most, ret_list);
    }
    for (size_t i = 0; i < count; i++) {
        muster_simulation_destroy(candidates[i].simulation);
    }
    return status;
}
