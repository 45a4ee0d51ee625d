/* Link figures: defaults, bounds, and for whom they are valid. */
#include "worker/communicator/figures.h"

#include "worker/base/status.h"
#include "worker/communicator/measure_pairs.h"

void muster_figures_init(struct muster_figures *ret_figures)
{
    *ret_figures = (struct muster_figures){.model = muster_cost_model_default};
}

/* Bounds that no machine of today exceeds. Algorithms are simulated with these figures: absurd ones
 * would make the simulation long and the choice useless. */
static const double time_us_max = 60e6;
static const double rate_GBps_min = 1e-6;
static const double rate_GBps_max = 1e6;
static const uint32_t cores_max = 1 << 16;
static const uint64_t size_bytes_max = UINT64_C(1) << 40;

static bool is_time(double time_us)
{
    return time_us >= 0 && time_us <= time_us_max; /* false for NaN */
}

static bool is_rate(double rate_GBps)
{
    return rate_GBps >= rate_GBps_min && rate_GBps <= rate_GBps_max;
}

static muster_status check_link(const char *where, const struct muster_link_figures *link)
{
    if (is_time(link->latency_us) && is_time(link->posting_us) && is_rate(link->bandwidth_GBps) &&
        is_rate(link->shared_GBps)) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_INVALID,
                            "link figures: no %s has a latency of %g us, a posting of %g us, a "
                            "bandwidth of %g GB/s and %g GB/s shared",
                            where, link->latency_us, link->posting_us, link->bandwidth_GBps,
                            link->shared_GBps);
}

muster_status muster_figures_check(const struct muster_figures *figures)
{
    const struct muster_cost_model *model = &figures->model;
    if (figures->levels >= 1U << MUSTER_LEVEL_COUNT) {
        return muster_error_set(MUSTER_INVALID, "link figures: levels %x do not exist",
                                figures->levels);
    }
    if (!is_rate(model->core.reduce_GBps) || !is_rate(model->core.copy_GBps) ||
        model->core.cores > cores_max || model->core.one_machine > 1) {
        return muster_error_set(MUSTER_INVALID,
                                "link figures: no host has %u cores that reduce %g GB/s and copy "
                                "%g GB/s",
                                model->core.cores, model->core.reduce_GBps, model->core.copy_GBps);
    }
    if (model->eager_bytes > size_bytes_max || model->burst_bytes > size_bytes_max) {
        return muster_error_set(
            MUSTER_INVALID, "link figures: %llu bytes at once, bursts of %llu bytes",
            (unsigned long long)model->eager_bytes, (unsigned long long)model->burst_bytes);
    }
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        TRY(check_link(muster_level_name(level), &model->links[level]));
    }
    TRY(muster_tuned_check(&figures->tuned));
    return muster_cost_model_check(model);
}

bool muster_figures_match(const struct muster_figures *figures,
                          const struct muster_topology *topology, uint32_t hosts_digest,
                          uint32_t shape_digest)
{
    unsigned levels = muster_measure_levels(topology);
    return figures->hosts_digest == hosts_digest && figures->shape_digest == shape_digest &&
           (levels & ~figures->levels) == 0;
}
