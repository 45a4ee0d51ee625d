#include "collectives/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "collectives/walk.h"
#include "worker/base/cleanup.h"
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

static double path_us(const struct muster_path *path, const struct muster_link_figures *link,
                      size_t element_size_bytes)
{
    return (double)path->messages * link->latency_us +
           muster_cost_bytes_us(path->elements, element_size_bytes, link->bandwidth_GBps);
}

double muster_cost_formula_us(size_t algorithm, const struct muster_plan *plan,
                              size_t element_size_bytes, const struct muster_cost_model *model)
{
    struct muster_formula formula = {0};
    muster_algorithms[algorithm].formula(plan, &formula);
    return path_us(&formula.local, &model->links[MUSTER_LEVEL_HOST], element_size_bytes) +
           path_us(&formula.cross, &model->links[MUSTER_LEVEL_RACK], element_size_bytes) +
           muster_cost_bytes_us(formula.reduced, element_size_bytes, model->core.reduce_GBps);
}

/* When what is free again, in microseconds from the start. */
struct port {
    double out_us, in_us;
};

struct clocks {
    const struct muster_cost_model *model;
    size_t element_size_bytes;
    uint32_t *hosts;      /* [ranks] of each rank */
    double *rounds_us;    /* [lanes] when the current round began */
    double *ends_us;      /* [lanes] when the steps done so far were done */
    struct port *ports;   /* [ranks] within the host */
    struct port *uplinks; /* [hosts] */
    double *cores_us;     /* [ranks] reducing and copying */
};

static double later(double one_us, double other_us)
{
    return one_us > other_us ? one_us : other_us;
}

/* One core of a rank copies or reduces; returns when it is done. */
static double work(struct clocks *clocks, uint32_t rank, double from_us, uint64_t elements)
{
    double start_us = later(from_us, clocks->cores_us[rank]);
    clocks->cores_us[rank] = start_us + muster_cost_bytes_us(elements, clocks->element_size_bytes,
                                                             clocks->model->core.reduce_GBps);
    return clocks->cores_us[rank];
}

static muster_status visit_local(void *user, const struct muster_walk_step *local)
{
    struct clocks *clocks = user;
    size_t lane = local->lane_number;
    double end_us = work(clocks, local->rank, clocks->rounds_us[lane], local->step->span.count);
    clocks->ends_us[lane] = later(clocks->ends_us[lane], end_us);
    return MUSTER_OK;
}

/* Pieces in which a message comes out of the fabric, roughly. */
enum { SEGMENT_BYTES = 64 << 10 };

static muster_status visit_message(void *user, const struct muster_walk_step *send,
                                   const struct muster_walk_step *receive)
{
    struct clocks *clocks = user;
    uint32_t from_host = clocks->hosts[send->rank];
    uint32_t to_host = clocks->hosts[receive->rank];
    bool local = from_host == to_host;
    const struct muster_link_figures *link =
        &clocks->model->links[local ? MUSTER_LEVEL_HOST : MUSTER_LEVEL_RACK];
    double *out_us = local ? &clocks->ports[send->rank].out_us : &clocks->uplinks[from_host].out_us;
    double *in_us = local ? &clocks->ports[receive->rank].in_us : &clocks->uplinks[to_host].in_us;
    uint64_t elements = send->step->span.count;
    double wire_us =
        muster_cost_bytes_us(elements, clocks->element_size_bytes, link->bandwidth_GBps);
    double start_us = later(later(*out_us, *in_us), later(clocks->rounds_us[send->lane_number],
                                                          clocks->rounds_us[receive->lane_number]));
    *out_us = start_us + link->posting_us + wire_us;
    *in_us = *out_us;
    double arrived_us = start_us + link->latency_us + wire_us;
    clocks->ends_us[send->lane_number] = later(clocks->ends_us[send->lane_number], arrived_us);
    if (receive->step->kind == MUSTER_STEP_RECV_REDUCE) {
        /* Reduced as it arrives: one segment behind, unless reducing is the slower of the two. */
        uint64_t segment = SEGMENT_BYTES / clocks->element_size_bytes;
        segment = segment < elements ? segment : elements;
        double first_us =
            arrived_us - wire_us +
            muster_cost_bytes_us(segment, clocks->element_size_bytes, link->bandwidth_GBps);
        double last_us = muster_cost_bytes_us(segment, clocks->element_size_bytes,
                                              clocks->model->core.reduce_GBps);
        arrived_us = later(work(clocks, receive->rank, first_us, elements), arrived_us + last_us);
    }
    clocks->ends_us[receive->lane_number] =
        later(clocks->ends_us[receive->lane_number], arrived_us);
    return MUSTER_OK;
}

static muster_status visit_round_end(void *user, uint32_t rank, size_t lane_number)
{
    (void)rank;
    struct clocks *clocks = user;
    clocks->rounds_us[lane_number] = clocks->ends_us[lane_number];
    return MUSTER_OK;
}

static muster_status time_walk(const struct muster_walk *walk,
                               const struct muster_topology *topology, size_t element_size_bytes,
                               const struct muster_cost_model *model, double *ret_us)
{
    size_t lanes = walk->first_lane[walk->ranks];
    AUTO_FREE uint32_t *hosts = calloc(walk->ranks, sizeof *hosts);
    AUTO_FREE double *rounds_us = calloc(lanes + 1, sizeof *rounds_us);
    AUTO_FREE double *ends_us = calloc(lanes + 1, sizeof *ends_us);
    AUTO_FREE struct port *ports = calloc(walk->ranks, sizeof *ports);
    AUTO_FREE struct port *uplinks = calloc(topology->hosts, sizeof *uplinks);
    AUTO_FREE double *cores_us = calloc(walk->ranks, sizeof *cores_us);
    if (hosts == NULL || rounds_us == NULL || ends_us == NULL || ports == NULL || uplinks == NULL ||
        cores_us == NULL) {
        return muster_error_set(MUSTER_FATAL, "cost: no memory for %" PRIu32 " ranks", walk->ranks);
    }
    for (uint32_t host = 0; host < topology->hosts; host++) {
        for (uint32_t i = 0; i < topology->host_sizes[host]; i++) {
            hosts[topology->host_first[host] + i] = host;
        }
    }
    struct clocks clocks = {.model = model,
                            .element_size_bytes = element_size_bytes,
                            .hosts = hosts,
                            .rounds_us = rounds_us,
                            .ends_us = ends_us,
                            .ports = ports,
                            .uplinks = uplinks,
                            .cores_us = cores_us};
    const struct muster_walk_visitor visitor = {.user = &clocks,
                                                .visit_local = visit_local,
                                                .visit_message = visit_message,
                                                .visit_round_end = visit_round_end};
    TRY(muster_walk_run(walk, &visitor));
    double last_us = 0;
    for (size_t lane = 0; lane < lanes; lane++) {
        last_us = later(last_us, ends_us[lane]);
    }
    *ret_us = last_us;
    return MUSTER_OK;
}

static muster_status time_schedules(const struct muster_schedule *schedules,
                                    const struct muster_topology *topology,
                                    size_t element_size_bytes,
                                    const struct muster_cost_model *model, double *ret_us)
{
    struct muster_walk walk;
    TRY(muster_walk_init(schedules, topology->ranks, &walk));
    muster_status status = time_walk(&walk, topology, element_size_bytes, model, ret_us);
    muster_walk_finish(&walk);
    return status;
}

muster_status muster_cost_walk_us(size_t algorithm, const struct muster_plan *plan,
                                  size_t element_size_bytes, const struct muster_cost_model *model,
                                  double *ret_us)
{
    uint32_t ranks = plan->topology->ranks;
    AUTO_FREE struct muster_schedule *schedules = calloc(ranks, sizeof *schedules);
    if (schedules == NULL) {
        return muster_error_set(MUSTER_FATAL, "cost: no memory for %" PRIu32 " ranks", ranks);
    }
    muster_status status = MUSTER_OK;
    for (uint32_t rank = 0; rank < ranks && status == MUSTER_OK; rank++) {
        struct muster_plan mine = *plan;
        mine.rank = rank;
        status = muster_schedule_generate(algorithm, &mine, &schedules[rank]);
    }
    if (status == MUSTER_OK) {
        status = time_schedules(schedules, plan->topology, element_size_bytes, model, ret_us);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        muster_schedule_finish(&schedules[rank]);
    }
    return status;
}
