#include "collectives/select.h"

#include <stdlib.h>

#include "collectives/memory.h"
#include "collectives/simulate.h"
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

/* An algorithm that fits. */
struct candidate {
    size_t algorithm;
    double formula_us;
    bool in_memory; /* then that is its price */
};

/* By the formula, then by the index. */
static int compare_candidates(const void *left_candidate, const void *right_candidate)
{
    const struct candidate *left = left_candidate;
    const struct candidate *right = right_candidate;
    if (left->formula_us != right->formula_us) {
        return left->formula_us < right->formula_us ? -1 : 1;
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
    if (is_in_memory(algorithm, plan, element_size_bytes, model, &ret_candidate->formula_us)) {
        ret_candidate->in_memory = true;
        return true;
    }
    ret_candidate->formula_us = muster_cost_formula_us(algorithm, plan, element_size_bytes, model);
    return !muster_algorithm_uses_memory(algorithm);
}

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
    return count;
}

/* The most promising first: the others are simulated only until they have taken longer. */
static muster_status simulate_candidates(const struct muster_plan *plan, size_t element_size_bytes,
                                         const struct muster_cost_model *model,
                                         const struct candidate *candidates, size_t count,
                                         size_t *ret_algorithm)
{
    struct muster_plan any = *plan;
    any.rank = 0;
    size_t best = candidates[0].algorithm;
    double best_us = 0;
    for (size_t i = 0; i < count; i++) {
        double cost_us = candidates[i].formula_us;
        size_t algorithm = candidates[i].algorithm;
        TRY(muster_plan_check(algorithm, &any));
        if (!candidates[i].in_memory) {
            TRY(muster_simulate_us(algorithm, &any, element_size_bytes, model, best_us, &cost_us));
        }
        if (i == 0 || cost_us < best_us) {
            best = algorithm;
            best_us = cost_us;
        }
    }
    *ret_algorithm = best;
    return MUSTER_OK;
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
    /* Also where there is no choice: one rank's sizes may not be enough to simulate. */
    if (count == 1 || plan->topology->ranks > MUSTER_SELECT_SIMULATED_RANKS_MAX) {
        struct muster_plan any = *plan;
        any.rank = 0;
        TRY(muster_plan_check(candidates[0].algorithm, &any));
        *ret_algorithm = candidates[0].algorithm;
        return MUSTER_OK;
    }
    return simulate_candidates(plan, element_size_bytes, model, candidates, count, ret_algorithm);
}
