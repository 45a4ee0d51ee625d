/* The cost model: default figures, their check, and the estimate by formulas. */
#include "collectives/select/cost.h"

#include <math.h>

#include "worker/base/status.h"

const struct muster_cost_model muster_cost_model_default = {
    .core = {.reduce_GBps = 10, .copy_GBps = 10},
    .links =
        {
            [MUSTER_LEVEL_HOST] = {10, 5, 4, 32},
            [MUSTER_LEVEL_RACK] = {30, 5, 1.2, 1.2},
            [MUSTER_LEVEL_WORLD] = {60, 5, 1.2, 10},
        },
    .eager_bytes = 16 << 10,
};

const char *muster_level_name(unsigned level)
{
    static const char *const names[] = {"host", "rack", "world"};
    return level < MUSTER_LEVEL_COUNT ? names[level] : "unknown";
}

static muster_status check_time(const char *where, const char *what, double time_us)
{
    if (isfinite(time_us) && time_us >= 0) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID, "cost model: %s %s is %g, not a time", where, what,
                            time_us);
}

static muster_status check_rate(const char *where, const char *what, double rate_GBps)
{
    if (isfinite(rate_GBps) && rate_GBps > 0) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID, "cost model: %s %s is %g, not a rate", where, what,
                            rate_GBps);
}

muster_status muster_cost_model_check(const struct muster_cost_model *model)
{
    TRY(check_rate("core", "reduce_GBps", model->core.reduce_GBps));
    TRY(check_rate("core", "copy_GBps", model->core.copy_GBps));
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        const struct muster_link_figures *link = &model->links[level];
        const char *where = muster_level_name(level);
        TRY(check_time(where, "latency_us", link->latency_us));
        TRY(check_time(where, "posting_us", link->posting_us));
        TRY(check_rate(where, "bandwidth_GBps", link->bandwidth_GBps));
        TRY(check_rate(where, "shared_GBps", link->shared_GBps));
    }
    return MUSTER_OK;
}

double muster_cost_bytes_us(uint64_t elements, size_t element_size_bytes, double rate_GBps)
{
    return (double)elements * (double)element_size_bytes / (rate_GBps * 1e3);
}

/* The messages of a path follow each other. One that is not eager costs a second latency. */
static double path_us(const struct muster_path *path, const struct muster_cost_model *model,
                      enum muster_link_level level, double rate_GBps, size_t element_size_bytes)
{
    double latency_us = (double)path->messages * model->links[level].latency_us;
    bool eager = path->messages == 0 ||
                 path->elements / path->messages * element_size_bytes <= model->eager_bytes;
    return (eager ? 1 : 2) * latency_us +
           muster_cost_bytes_us(path->elements, element_size_bytes, rate_GBps);
}

static double smaller(double one, double other)
{
    return one < other ? one : other;
}

/* Between racks: limited by a host's uplink, whose elements the formula has added up, or by the
 * rack's uplink, whose elements are rack_elements. */
static double world_us(const struct muster_formula *formula, const struct muster_cost_model *model,
                       size_t element_size_bytes)
{
    const struct muster_link_figures *world = &model->links[MUSTER_LEVEL_WORLD];
    double host_GBps = smaller(world->bandwidth_GBps, model->links[MUSTER_LEVEL_RACK].shared_GBps);
    double hosts_us =
        path_us(&formula->world, model, MUSTER_LEVEL_WORLD, host_GBps, element_size_bytes);
    const struct muster_path all = {.messages = formula->world.messages,
                                    .elements = formula->rack_elements};
    double racks_us =
        path_us(&all, model, MUSTER_LEVEL_WORLD, world->shared_GBps, element_size_bytes);
    return hosts_us > racks_us ? hosts_us : racks_us;
}

double muster_cost_formula_us(size_t algorithm, const struct muster_plan *plan,
                              size_t element_size_bytes, const struct muster_cost_model *model)
{
    struct muster_formula formula = {0};
    muster_algorithm_formula(algorithm, plan, &formula);
    const struct muster_link_figures *host = &model->links[MUSTER_LEVEL_HOST];
    const struct muster_link_figures *net = &model->links[MUSTER_LEVEL_RACK];
    double host_GBps = smaller(host->shared_GBps / muster_topology_largest_host(plan->topology),
                               host->bandwidth_GBps);
    double net_GBps = smaller(net->shared_GBps, net->bandwidth_GBps);
    return path_us(&formula.local, model, MUSTER_LEVEL_HOST, host_GBps, element_size_bytes) +
           path_us(&formula.cross, model, MUSTER_LEVEL_RACK, net_GBps, element_size_bytes) +
           world_us(&formula, model, element_size_bytes) +
           muster_cost_bytes_us(formula.reduced, element_size_bytes, model->core.reduce_GBps);
}
