/*
 * The work of ranks on cores, which they have for themselves or share. A core is a clock: the time
 * at which it is free.
 */
#include "collectives/simulate/simulate_parts.h"

#include <stdlib.h>

#include "worker/base/status.h"

/* Hosts with more ranks than cores get a clock for each core. On one machine all hosts use those of
 * the first one. */
muster_status muster_sim_cores_init(struct muster_simulation *sim)
{
    uint32_t cores = sim->model.core.cores;
    if (cores == 0) {
        return MUSTER_OK;
    }
    const struct muster_topology *topology = sim->topology;
    sim->cores_us = calloc(topology->hosts, sizeof *sim->cores_us);
    bool one_machine = sim->model.core.one_machine != 0;
    uint32_t machines = one_machine ? 1 : topology->hosts;
    for (uint32_t host = 0; sim->cores_us != NULL && host < machines; host++) {
        if ((one_machine ? topology->ranks : topology->host_sizes[host]) > cores) {
            sim->cores_us[host] = calloc((size_t)cores + 1, sizeof *sim->cores_us[host]);
            if (sim->cores_us[host] == NULL) {
                return muster_error_set(MUSTER_FATAL, "simulation: no memory for cores");
            }
        }
    }
    return sim->cores_us != NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_FATAL, "simulation: no memory for cores");
}

void muster_sim_cores_finish(struct muster_simulation *sim)
{
    for (uint32_t host = 0; sim->cores_us != NULL && host < sim->topology->hosts; host++) {
        free(sim->cores_us[host]);
    }
    free(sim->cores_us);
}

/* The clocks of the cores that the rank shares; NULL: it has its own core. */
static double *shared_cores_us(const struct muster_simulation *sim, uint32_t rank)
{
    uint32_t machine = sim->model.core.one_machine != 0 ? 0 : sim->ranks[rank].host;
    return sim->cores_us == NULL ? NULL : sim->cores_us[machine];
}

bool muster_sim_is_crowded(const struct muster_simulation *sim, uint32_t rank)
{
    return shared_cores_us(sim, rank) != NULL;
}

static void add_busy(struct muster_simulation *sim, uint32_t rank, double work_us)
{
    double *cores_us = shared_cores_us(sim, rank);
    sim->ranks[rank].busy_us += work_us;
    if (cores_us != NULL) {
        cores_us[sim->model.core.cores] += work_us;
    }
}

/* On shared cores the one that is free first does the work. */
double muster_sim_work(struct muster_simulation *sim, uint32_t rank, double from_us, double work_us)
{
    struct muster_sim_rank *working = &sim->ranks[rank];
    if (work_us <= 0) {
        return from_us;
    }
    double start_us = from_us > working->core_free_us ? from_us : working->core_free_us;
    double *core_us = &working->core_free_us;
    double *cores_us = shared_cores_us(sim, rank);
    if (cores_us != NULL) {
        core_us = cores_us;
        for (uint32_t i = 1; i < sim->model.core.cores; i++) {
            core_us = cores_us[i] < *core_us ? &cores_us[i] : core_us;
        }
        start_us = *core_us > start_us ? *core_us : start_us;
    }
    double end_us = start_us + work_us * working->core_factor;
    *core_us = end_us;
    working->core_free_us = end_us;
    add_busy(sim, rank, end_us - start_us);
    return end_us;
}

struct muster_sim_busy muster_sim_busy(const struct muster_simulation *sim, uint32_t rank)
{
    const double *cores_us = shared_cores_us(sim, rank);
    return (struct muster_sim_busy){.rank_us = sim->ranks[rank].busy_us,
                                    .host_us =
                                        cores_us == NULL ? 0 : cores_us[sim->model.core.cores]};
}

double muster_sim_work_before(struct muster_simulation *sim, uint32_t rank, double span_us,
                              const struct muster_sim_busy *since, double work_us)
{
    struct muster_sim_busy busy = muster_sim_busy(sim, rank);
    double factor = sim->ranks[rank].core_factor;
    double idle_us = span_us - (busy.rank_us - since->rank_us);
    if (shared_cores_us(sim, rank) != NULL) {
        double host_us = sim->model.core.cores * span_us - (busy.host_us - since->host_us);
        idle_us = host_us < idle_us ? host_us : idle_us;
    }
    double done_us = idle_us < work_us * factor ? idle_us : work_us * factor;
    if (done_us <= 0) {
        return 0;
    }
    add_busy(sim, rank, done_us);
    return done_us / factor;
}
