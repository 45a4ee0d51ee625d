#include "collectives/select/select.h"

#include <math.h>
#include <stdlib.h>

#include "collectives/select/host_memory.h"
#include "collectives/simulate/simulate.h"
#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Carried out in memory, where that is so. */
static bool is_in_memory(size_t algorithm, const struct muster_plan *plan,
                         size_t element_size_bytes, const struct muster_cost_model *model,
                         double *ret_us)
{
    enum muster_memory_method method;
    return muster_algorithm_uses_memory(algorithm) &&
           muster_memory_choose(plan, element_size_bytes, model, &method, ret_us);
}

bool muster_select_considers(size_t algorithm, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model)
{
    char why[MUSTER_ERROR_MAX];
    double unused_us;
    return muster_algorithm_fits(algorithm, plan, why, sizeof why) &&
           (!muster_algorithm_uses_memory(algorithm) ||
            is_in_memory(algorithm, plan, element_size_bytes, model, &unused_us));
}

muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                    size_t element_size_bytes,
                                    const struct muster_cost_model *model, double *ret_us)
{
    struct muster_plan any = *plan;
    any.rank = 0;
    TRY(muster_plan_check(algorithm, &any));
    if (is_in_memory(algorithm, &any, element_size_bytes, model, ret_us)) {
        return MUSTER_OK;
    }
    if (plan->topology->ranks <= MUSTER_SELECT_SIMULATED_RANKS_MAX) {
        return muster_simulate_us(algorithm, &any, element_size_bytes, model, 0, ret_us);
    }
    *ret_us = muster_cost_formula_us(algorithm, &any, element_size_bytes, model);
    return MUSTER_OK;
}

/* Formulas are not off by as much: those that say so many times more than the lowest one need no
 * closer look. */
static const double formula_factor = 8;

/* By so much another algorithm must be faster to be looked for: the model is not as exact as that,
 * and most of those that come close are ruled out by their bounds. */
static const double tolerance = 0.03;

/* An algorithm that fits. */
struct candidate {
    size_t algorithm;
    double estimate_us; /* by the formula; not less than the bound */
    double bound_us;
    bool favourite;                       /* goes before those that are as cheap */
    bool in_memory;                       /* then the estimate is its price */
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

/* False if it does not fit. */
static bool is_candidate(size_t algorithm, const struct muster_plan *plan,
                         size_t element_size_bytes, const struct muster_cost_model *model,
                         struct candidate *ret_candidate)
{
    char why[MUSTER_ERROR_MAX];
    if (muster_algorithms[algorithm].collective != plan->collective ||
        !muster_algorithm_fits(algorithm, plan, why, sizeof why)) {
        return false;
    }
    *ret_candidate = (struct candidate){.algorithm = algorithm};
    if (is_in_memory(algorithm, plan, element_size_bytes, model, &ret_candidate->estimate_us)) {
        ret_candidate->in_memory = true;
        ret_candidate->bound_us = ret_candidate->estimate_us;
        return true;
    }
    ret_candidate->estimate_us = muster_cost_formula_us(algorithm, plan, element_size_bytes, model);
    return !muster_algorithm_uses_memory(algorithm);
}

/* Those whose formula is not out of the question. */
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

/* All schedules, and what they cannot be faster than. */
static muster_status prepare(struct candidate *candidate, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model)
{
    const struct muster_simulation_options options = {
        .topology = plan->topology, .model = model, .element_size_bytes = element_size_bytes};
    TRY(muster_plan_check(candidate->algorithm, plan));
    if (candidate->in_memory) {
        return MUSTER_OK;
    }
    TRY(muster_simulation_create(&options, &candidate->simulation));
    TRY(muster_simulation_add_all(candidate->simulation, candidate->algorithm, plan));
    TRY(muster_simulation_bound_us(candidate->simulation, &candidate->bound_us));
    if (candidate->estimate_us < candidate->bound_us) {
        candidate->estimate_us = candidate->bound_us;
    }
    return MUSTER_OK;
}

/* How long it takes, or INFINITY: the limit has passed. */
static muster_status find_price(const struct candidate *candidate, double limit_us, double *ret_us)
{
    if (candidate->in_memory) {
        *ret_us = candidate->estimate_us;
        return MUSTER_OK;
    }
    struct muster_simulation_result result;
    muster_simulation_limit(candidate->simulation, limit_us);
    TRY(muster_simulation_run(candidate->simulation, &result));
    if (!result.finished && !result.beyond_limit) {
        return muster_error_set(MUSTER_FATAL, "%s: %s",
                                muster_algorithms[candidate->algorithm].name, result.verdict);
    }
    *ret_us = result.finished ? result.total_us : INFINITY;
    return MUSTER_OK;
}

/* The most promising first: the others are simulated only if they can be faster, and until they
 * have taken as long. */
static muster_status find_cheapest(const struct candidate *candidates, size_t count,
                                   size_t *ret_algorithm)
{
    size_t best = 0;
    double best_us = 0;
    TRY(find_price(&candidates[0], 0, &best_us));
    for (size_t i = 1; i < count; i++) {
        double limit_us = best_us * (1 - tolerance);
        double price_us = limit_us;
        if (candidates[i].bound_us >= limit_us) {
            continue;
        }
        TRY(find_price(&candidates[i], limit_us, &price_us));
        if (price_us < best_us) {
            best = i;
            best_us = price_us;
        }
    }
    *ret_algorithm = candidates[best].algorithm;
    return MUSTER_OK;
}

static muster_status choose(const struct muster_plan *plan, size_t element_size_bytes,
                            const struct muster_cost_model *model, struct candidate *candidates,
                            size_t count, size_t *ret_algorithm)
{
    for (size_t i = 0; i < count; i++) {
        TRY(prepare(&candidates[i], plan, element_size_bytes, model));
    }
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    return find_cheapest(candidates, count, ret_algorithm);
}

muster_status muster_select(const struct muster_plan *plan, size_t element_size_bytes,
                            const struct muster_cost_model *model, size_t *ret_algorithm)
{
    AUTO_FREE struct candidate *candidates = calloc(muster_algorithm_count, sizeof *candidates);
    if (candidates == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to choose an algorithm");
    }
    size_t count = list_candidates(plan, element_size_bytes, model, candidates);
    if (count == 0) {
        return muster_error_set(MUSTER_INVALID, "no algorithm does %s",
                                muster_collective_name(plan->collective));
    }
    struct muster_plan any = *plan;
    any.rank = 0;
    /* Also where there is no choice: one rank's sizes may not be enough to simulate. */
    if (count == 1 || plan->topology->ranks > MUSTER_SELECT_SIMULATED_RANKS_MAX) {
        TRY(muster_plan_check(candidates[0].algorithm, &any));
        *ret_algorithm = candidates[0].algorithm;
        return MUSTER_OK;
    }
    muster_status status =
        choose(&any, element_size_bytes, model, candidates, count, ret_algorithm);
    for (size_t i = 0; i < count; i++) {
        muster_simulation_destroy(candidates[i].simulation);
    }
    return status;
}

/* Several ------------------------------------------------------------------------------------- */

/* Of the price of the first one. */
static const double near_by = 1.25;

static double limit_of(double lowest_us, double slack_us)
{
    return fmax(near_by * lowest_us, lowest_us + slack_us);
}

/* Their prices in place of the estimates; INFINITY for what is too dear. */
static muster_status price_all(const struct muster_plan *plan, size_t element_size_bytes,
                               const struct muster_cost_model *model, double slack_us,
                               struct candidate *candidates, size_t count)
{
    double lowest_us = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double limit_us = limit_of(lowest_us, slack_us);
        double price_us = INFINITY;
        TRY(prepare(&candidates[i], plan, element_size_bytes, model));
        if (candidates[i].bound_us <= limit_us) {
            TRY(find_price(&candidates[i], isinf(limit_us) ? 0 : limit_us, &price_us));
        }
        lowest_us = fmin(lowest_us, price_us);
        candidates[i].estimate_us = price_us;
    }
    return MUSTER_OK;
}

/* One algorithm by two names, for this plan. What is predicted to take as long may be quite another
 * one: where waking is dear, many are. */
static bool is_same(const struct candidate *one, const struct candidate *other,
                    const struct muster_plan *plan)
{
    struct muster_formula left = {0};
    struct muster_formula right = {0};
    if (one->estimate_us != other->estimate_us || one->in_memory || other->in_memory) {
        return false;
    }
    if (one->simulation != NULL) {
        return muster_simulation_is_alike(one->simulation, other->simulation);
    }
    muster_algorithm_formula(one->algorithm, plan, &left);
    muster_algorithm_formula(other->algorithm, plan, &right);
    return left.rounds == right.rounds && left.elements == right.elements;
}

/* An earlier one stands for it. */
static bool is_listed(const struct candidate *candidates, size_t index,
                      const struct muster_plan *plan)
{
    for (size_t i = 0; i < index; i++) {
        if (is_same(&candidates[i], &candidates[index], plan)) {
            return true;
        }
    }
    return false;
}

static uint32_t list_cheapest(const struct candidate *candidates, size_t count,
                              const struct muster_plan *plan, double slack_us, uint32_t most,
                              struct muster_priced *ret_list)
{
    uint32_t listed = 0;
    for (size_t i = 0; i < count && listed < most; i++) {
        double us = candidates[i].estimate_us;
        if (us > limit_of(candidates[0].estimate_us, slack_us)) {
            break;
        }
        if (!is_listed(candidates, i, plan)) {
            ret_list[listed++] =
                (struct muster_priced){.algorithm = candidates[i].algorithm, .us = us};
        }
    }
    return listed;
}

muster_status muster_select_several(const struct muster_plan *plan, size_t element_size_bytes,
                                    const struct muster_cost_model *model, double slack_us,
                                    size_t favourite, uint32_t most, struct muster_priced *ret_list,
                                    uint32_t *ret_count)
{
    AUTO_FREE struct candidate *candidates = calloc(muster_algorithm_count, sizeof *candidates);
    if (candidates == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory to choose an algorithm");
    }
    struct muster_plan any = *plan;
    any.rank = 0;
    size_t count = list_candidates(&any, element_size_bytes, model, candidates);
    muster_status status = MUSTER_OK;
    if (plan->topology->ranks <= MUSTER_SELECT_LISTED_RANKS_MAX) {
        status = price_all(&any, element_size_bytes, model, slack_us, candidates, count);
    }
    for (size_t i = 0; i < count; i++) {
        candidates[i].favourite = candidates[i].algorithm == favourite;
    }
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    if (status == MUSTER_OK) {
        *ret_count = list_cheapest(candidates, count, &any, slack_us, most, ret_list);
    }
    for (size_t i = 0; i < count; i++) {
        muster_simulation_destroy(candidates[i].simulation);
    }
    return status;
}
