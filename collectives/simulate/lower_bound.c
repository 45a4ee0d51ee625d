/*
 * A lower bound of the simulated time: the longest time that any single resource is busy (a rank's
 * core, ports and lanes; a host's memory, cores and uplink; a rack's uplink), as if it never waited
 * for the others. One pass over all steps computes it, so that most algorithms can be ruled out
 * without being simulated.
 */
#include "collectives/simulate/simulate_parts.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* How long each shared resource is busy. */
struct load {
    double *memory_us; /* [hosts] */
    double *cores_us;  /* [hosts] all cores of a host together, without what is reduced on arrival,
                          which the simulator puts into idle times */
    double *host_us;   /* [hosts x 2] the uplink of a host, out and in */
    double *rack_us;   /* [racks x 2] */
};

/* How long one rank's own resources are busy. */
struct rank_load {
    double core_us;
    double arriving_us;    /* in addition: what is reduced on arrival */
    double ports_us[2][2]; /* within the host and to others; out and in */
    double lane_us;        /* of the current lane, its rounds so far */
    double round_us;       /* of its current round */
    double longest_us;     /* of the earlier lanes */
};

static double larger(double one, double other)
{
    return one > other ? one : other;
}

static void raise(double *most, double value)
{
    *most = larger(*most, value);
}

/* At the rate of a message alone; see bandwidth_sharing.c for bursts. */
static double port_us(const struct muster_simulation *sim, enum muster_link_level level,
                      double bytes)
{
    const struct muster_link_figures *links = sim->model.links;
    double rate_GBps = links[level].bandwidth_GBps;
    if (sim->buckets != NULL) {
        rate_GBps = larger(rate_GBps, links[MUSTER_LEVEL_HOST].bandwidth_GBps);
    }
    return bytes / (rate_GBps * 1e3);
}

/* Adds the message to the shared resources. */
static void load_shared(const struct muster_simulation *sim, const struct muster_sim_rank *rank,
                        enum muster_link_level level, bool sends, double bytes, struct load *load)
{
    const struct muster_link_figures *links = sim->model.links;
    if (level == MUSTER_LEVEL_HOST) {
        load->memory_us[rank->host] +=
            sends ? bytes / (links[MUSTER_LEVEL_HOST].shared_GBps * 1e3) : 0;
        return;
    }
    size_t direction = sends ? 0 : 1;
    load->host_us[2 * rank->host + direction] +=
        bytes / (links[MUSTER_LEVEL_RACK].shared_GBps * 1e3);
    if (level == MUSTER_LEVEL_WORLD) {
        load->rack_us[2 * rank->rack + direction] +=
            bytes / (links[MUSTER_LEVEL_WORLD].shared_GBps * 1e3);
    }
}

/* The shortest time from the posting of a message's step to its end. Where ranks share cores, all
 * latency beyond the postings may be waking, which a rank that is awake saves. */
static double message_us(const struct muster_simulation *sim, const struct muster_sim_step *step,
                         uint32_t rank, enum muster_link_level level, double bytes)
{
    const struct muster_link_figures *link = &sim->model.links[level];
    if (step->early) {
        return 0; /* it may be done in the round before */
    }
    if (bytes <= (double)sim->model.eager_bytes) {
        return link->posting_us; /* the message may have arrived before */
    }
    double flow_us = link->posting_us + port_us(sim, level, bytes);
    if (step->kind == MUSTER_STEP_SEND) {
        return flow_us;
    }
    double flight_us =
        muster_sim_is_crowded(sim, rank) ? 0 : link->latency_us - 2 * link->posting_us;
    return link->latency_us + larger(flight_us, 0) + flow_us;
}

static void load_message(const struct muster_simulation *sim, const struct muster_sim_rank *rank,
                         const struct muster_sim_step *step, uint32_t number, struct rank_load *own,
                         struct load *load)
{
    bool sends = step->kind == MUSTER_STEP_SEND;
    double bytes = (double)step->count * (double)sim->element_size_bytes;
    double byte_us = 1 / (sim->model.core.reduce_GBps * 1e3);
    bool reduces = step->kind == MUSTER_STEP_RECV_REDUCE;
    enum muster_link_level level = muster_sim_level(sim, number, step->peer);
    own->core_us += sim->model.links[level].posting_us;
    own->arriving_us += reduces ? bytes * byte_us : 0;
    own->ports_us[level == MUSTER_LEVEL_HOST ? 0 : 1][sends ? 0 : 1] += port_us(sim, level, bytes);
    load_shared(sim, rank, level, sends, bytes, load);
    raise(&own->round_us, message_us(sim, step, number, level, bytes));
}

static void load_local(const struct muster_simulation *sim, uint32_t rank,
                       const struct muster_sim_step *step, struct rank_load *own)
{
    const struct muster_core_figures *core = &sim->model.core;
    if (muster_sim_is_group(step)) {
        double busy_us = muster_sim_group_busy_us(sim, rank, step);
        own->core_us += busy_us;
        raise(&own->round_us, busy_us);
        return;
    }
    double rate_GBps = step->kind == MUSTER_STEP_COPY ? core->copy_GBps : core->reduce_GBps;
    double work_us = muster_cost_bytes_us(step->count, sim->element_size_bytes, rate_GBps);
    own->core_us += work_us;
    raise(&own->round_us, work_us);
}

static void end_round(struct rank_load *own)
{
    own->lane_us += own->round_us;
    own->round_us = 0;
}

/* The time that the rank needs by itself: its core, its ports, and its longest lane, whose rounds
 * follow each other. */
static double load_rank(const struct muster_simulation *sim, uint32_t number, struct load *load)
{
    const struct muster_sim_rank *rank = &sim->ranks[number];
    struct rank_load own = {0};
    for (uint32_t i = 0; i < rank->step_count; i++) {
        const struct muster_sim_step *step = &rank->steps[i];
        if (step->begins_round) {
            end_round(&own);
        }
        if (i > 0 && step->lane != rank->steps[i - 1].lane) {
            raise(&own.longest_us, own.lane_us);
            own.lane_us = 0;
        }
        if (step->kind <= MUSTER_STEP_RECV_REDUCE) {
            load_message(sim, rank, step, number, &own, load);
        } else {
            load_local(sim, number, step, &own);
        }
    }
    end_round(&own);
    load->cores_us[rank->host] += own.core_us;
    double most_us = larger(larger(own.longest_us, own.lane_us), own.core_us + own.arriving_us);
    for (int i = 0; i < 4; i++) {
        raise(&most_us, own.ports_us[i / 2][i % 2]);
    }
    return most_us;
}

static double most_of(const double *times_us, size_t count)
{
    double most_us = 0;
    for (size_t i = 0; i < count; i++) {
        raise(&most_us, times_us[i]);
    }
    return most_us;
}

/* The ranks of a host may share its cores; on one machine the ranks of all hosts do. */
static double cores_us(const struct muster_simulation *sim, const double *work_us)
{
    uint32_t cores = sim->model.core.cores;
    uint32_t hosts = sim->topology->hosts;
    if (cores == 0) {
        return 0;
    }
    double all_us = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        all_us += work_us[host];
    }
    return (sim->model.core.one_machine != 0 ? all_us : most_of(work_us, hosts)) / cores;
}

muster_status muster_simulation_bound_us(const struct muster_simulation *simulation, double *ret_us)
{
    const struct muster_topology *topology = simulation->topology;
    size_t hosts = topology->hosts;
    size_t count = 4 * hosts + 2 * (size_t)topology->racks;
    AUTO_FREE double *times_us = calloc(count, sizeof *times_us);
    if (times_us == NULL) {
        return muster_error_set(MUSTER_FATAL, "simulation: no memory for %zu loads", count);
    }
    struct load load = {times_us, times_us + hosts, times_us + 2 * hosts, times_us + 4 * hosts};
    double most_us = 0;
    for (uint32_t rank = 0; rank < topology->ranks; rank++) {
        raise(&most_us, load_rank(simulation, rank, &load));
    }
    raise(&most_us, cores_us(simulation, load.cores_us));
    raise(&most_us, most_of(load.memory_us, hosts));
    raise(&most_us, most_of(load.host_us, 2 * hosts + 2 * (size_t)topology->racks));
    *ret_us = most_us;
    return MUSTER_OK;
}
