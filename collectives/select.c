#include "collectives/select.h"

#include "worker/base/status.h"

muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                    size_t element_size_bytes,
                                    const struct muster_cost_model *model, double *ret_us)
{
    struct muster_plan any = *plan;
    any.rank = 0;
    TRY(muster_plan_check(algorithm, &any));
    if (plan->topology->ranks <= MUSTER_COST_WALK_RANKS_MAX) {
        return muster_cost_walk_us(algorithm, &any, element_size_bytes, model, ret_us);
    }
    *ret_us = muster_cost_formula_us(algorithm, &any, element_size_bytes, model);
    return MUSTER_OK;
}

muster_status muster_select(const struct muster_plan *plan, size_t element_size_bytes,
                            const struct muster_cost_model *model, size_t *ret_algorithm)
{
    size_t best = muster_algorithm_count;
    double best_us = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        char why[MUSTER_ERROR_MAX];
        if (muster_algorithms[i].collective != plan->collective ||
            !muster_algorithms[i].fits(plan, why, sizeof why)) {
            continue;
        }
        double cost_us = 0;
        TRY(muster_select_cost_us(i, plan, element_size_bytes, model, &cost_us));
        if (best == muster_algorithm_count || cost_us < best_us) {
            best = i;
            best_us = cost_us;
        }
    }
    if (best == muster_algorithm_count) {
        return muster_error_set(MUSTER_INVALID, "no algorithm does %s",
                                muster_collective_name(plan->collective));
    }
    *ret_algorithm = best;
    return MUSTER_OK;
}
