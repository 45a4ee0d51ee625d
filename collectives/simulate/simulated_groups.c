/*
 * Group steps in the simulator: one begins when all members have come to it, and takes what
 * select/host_memory.h predicts for ranks that share memory. Group steps over several hosts take
 * the same: the model has no figures of devices that reach across hosts.
 */
#include <stdlib.h>

#include "collectives/schedule/group_step.h"
#include "collectives/select/host_memory.h"
#include "collectives/simulate/simulate_parts.h"
#include "worker/base/status.h"

/* What worker/device/host/ has where processes may read each other's memory: of schedules without a
 * plan. */
const struct muster_memory_reach muster_sim_default_reach = {.staging_bytes = 256 << 10,
                                                             .buffers = true};

/* A step that the device does not have: such a schedule is not selected. */
static const double IMPOSSIBLE_US = 1e9;

struct scope {
    uint32_t first, count, stride;
};

static struct scope scope_of(const struct muster_simulation *sim, uint32_t rank, uint32_t scope)
{
    const struct muster_topology *topology = sim->topology;
    const struct muster_position own = muster_topology_locate(topology, rank);
    switch (scope) {
    case MUSTER_STEP_OVER_HOST:
        return (struct scope){rank - own.local_rank, own.local_size, 1};
    case MUSTER_STEP_OVER_CROSS:
        return (struct scope){own.local_rank, topology->hosts, own.local_size};
    default:
        return (struct scope){0, topology->ranks, 1};
    }
}

bool muster_sim_is_group(const struct muster_sim_step *step)
{
    return step->kind >= MUSTER_STEP_GROUP_ALLREDUCE;
}

muster_status muster_sim_groups_add(struct muster_sim_rank *rank,
                                    const struct muster_schedule *schedule)
{
    uint64_t count = muster_schedule_total(schedule).group_steps;
    if (count == 0) {
        return MUSTER_OK;
    }
    rank->group_steps = calloc(count, sizeof *rank->group_steps);
    if (rank->group_steps == NULL) {
        return muster_error_set(MUSTER_FATAL, "simulation: no memory for %llu group steps",
                                (unsigned long long)count);
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        uint32_t at = rank->group_count;
        if (!muster_step_is_group(step)) {
            continue;
        }
        /* By round, then by lane; the schedule is ordered by lane. */
        while (at > 0 && schedule->steps[rank->group_steps[at - 1]].round > step->round) {
            rank->group_steps[at] = rank->group_steps[at - 1];
            at--;
        }
        rank->group_steps[at] = (uint32_t)i;
        rank->group_count++;
    }
    return MUSTER_OK;
}

/* The step that the rank is to perform next, if it has come to it. */
static struct muster_sim_step *next_of(const struct muster_simulation *sim, uint32_t rank,
                                       uint32_t *ret_index)
{
    const struct muster_sim_rank *own = &sim->ranks[rank];
    if (own->in_group || own->group_next == own->group_count) {
        return NULL;
    }
    uint32_t index = own->group_steps[own->group_next];
    const struct muster_sim_lane *lane = &own->lanes[own->steps[index].lane];
    *ret_index = index;
    bool come = index >= lane->start && index < lane->next && own->begins_us <= sim->now_us &&
                own->dead_us > sim->now_us;
    return come ? &own->steps[index] : NULL;
}

uint32_t muster_sim_group_missing(const struct muster_simulation *sim, uint32_t rank)
{
    uint32_t index = 0;
    const struct muster_sim_step *step = next_of(sim, rank, &index);
    if (step == NULL) {
        return MUSTER_NOTHING;
    }
    const struct scope scope = scope_of(sim, rank, step->peer);
    for (uint32_t i = 0; i < scope.count; i++) {
        uint32_t member = scope.first + i * scope.stride;
        const struct muster_sim_step *other = next_of(sim, member, &index);
        if (other == NULL || other->peer != step->peer || other->kind != step->kind) {
            return member;
        }
    }
    return MUSTER_NOTHING;
}

static struct muster_memory_cost cost_of(const struct muster_simulation *sim, uint32_t rank,
                                         const struct muster_sim_step *step)
{
    const struct muster_step whole = {.kind = step->kind, .span = {.count = step->count}};
    uint32_t members = scope_of(sim, rank, step->peer).count;
    struct muster_memory_call call =
        muster_memory_call_of(&whole, members, sim->element_size_bytes);
    struct muster_memory_cost cost = {.wait_us = IMPOSSIBLE_US};
    call.keep_input = sim->keep_input;
    (void)muster_memory_find(&call, &sim->reach, &sim->model, &cost);
    return cost;
}

double muster_sim_group_busy_us(const struct muster_simulation *sim, uint32_t rank,
                                const struct muster_sim_step *step)
{
    return cost_of(sim, rank, step).busy_us;
}

void muster_sim_try_group(struct muster_simulation *sim, uint32_t rank)
{
    uint32_t index = 0;
    const struct muster_sim_step *step = next_of(sim, rank, &index);
    if (step == NULL || muster_sim_group_missing(sim, rank) != MUSTER_NOTHING) {
        return;
    }
    const struct scope scope = scope_of(sim, rank, step->peer);
    for (uint32_t i = 0; i < scope.count; i++) {
        uint32_t member = scope.first + i * scope.stride;
        const struct muster_sim_step *own = next_of(sim, member, &index);
        const struct muster_memory_cost cost = cost_of(sim, member, own);
        double done_us = muster_sim_work(sim, member, sim->now_us, cost.busy_us);
        sim->ranks[member].in_group = true;
        muster_sim_finish_step(sim, member, index, done_us + cost.wait_us);
    }
}

void muster_sim_group_done(struct muster_simulation *sim, uint32_t rank)
{
    sim->ranks[rank].in_group = false;
    sim->ranks[rank].group_next++;
}
