#include "collectives/select.h"

#include <inttypes.h>

#include "worker/base/status.h"

const struct muster_cost_model muster_cost_model_default = {
    .local = {.latency_us = 5, .bandwidth_GBps = 4},
    .cross = {.latency_us = 30, .bandwidth_GBps = 1.2},
    .reduce_GBps = 6,
};

/* Bytes at this rate take so long; 1 GB/s is 1000 bytes in a microsecond. */
static double bytes_us(uint64_t elements, size_t element_size_bytes, double rate_GBps)
{
    return (double)elements * (double)element_size_bytes / (rate_GBps * 1e3);
}

static double path_us(const struct muster_path *path, const struct muster_link_figures *link,
                      size_t element_size_bytes)
{
    return (double)path->messages * link->latency_us +
           bytes_us(path->elements, element_size_bytes, link->bandwidth_GBps);
}

static double formula_us(const struct muster_algorithm *row, const struct muster_plan *plan,
                         size_t element_size_bytes, const struct muster_cost_model *model)
{
    struct muster_formula formula = {0};
    row->formula(plan, &formula);
    return path_us(&formula.local, &model->local, element_size_bytes) +
           path_us(&formula.cross, &model->cross, element_size_bytes) +
           bytes_us(formula.reduced, element_size_bytes, model->reduce_GBps);
}

muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                    size_t element_size_bytes,
                                    const struct muster_cost_model *model, double *ret_us)
{
    struct muster_plan any = *plan;
    any.rank = 0;
    TRY(muster_plan_check(algorithm, &any));
    *ret_us = formula_us(&muster_algorithms[algorithm], &any, element_size_bytes, model);
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
