/*
 * The simulator: adds schedules, runs the event loop, and makes the result. simulate.h describes
 * the model; cost.h has LogGP and its source. Fair sharing of resources is as in H. Casanova, A.
 * Giersch, A. Legrand, M. Quinson, F. Suter: Versatile, scalable, and accurate simulation of
 * distributed applications and platforms, J. Parallel Distrib. Comput. 74, 2014.
 */
#include "collectives/simulate/simulate_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/status.h"

/* Creating ------------------------------------------------------------------------------------ */

/* Prepares ranks, links, cores and faults. On an error the caller frees what was prepared. */
static muster_status init(struct muster_simulation *sim,
                          const struct muster_simulation_options *options)
{
    TRY(muster_cost_model_check(options->model));
    uint32_t ranks = options->topology->ranks;
    sim->topology = options->topology;
    sim->model = *options->model;
    sim->reach = muster_sim_default_reach;
    sim->element_size_bytes = options->element_size_bytes;
    sim->trace = options->trace;
    sim->unfinished = ranks;
    sim->free_node = MUSTER_NOTHING;
    sim->ranks = calloc(ranks, sizeof *sim->ranks);
    if (sim->ranks == NULL) {
        return muster_error_set(MUSTER_FATAL, "simulation: no memory for %" PRIu32 " ranks", ranks);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sim->ranks[rank].core_factor = 1;
        sim->ranks[rank].dead_us = INFINITY;
        sim->ranks[rank].finish_us = -1;
    }
    TRY(muster_sim_network_init(sim));
    TRY(muster_sim_cores_init(sim));
    return muster_sim_faults_init(sim, options->faults, options->fault_count);
}

muster_status muster_simulation_create(const struct muster_simulation_options *options,
                                       struct muster_simulation **ret_simulation)
{
    struct muster_simulation *sim = calloc(1, sizeof *sim);
    if (sim == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a simulation");
    }
    muster_status status = init(sim, options);
    if (status != MUSTER_OK) {
        muster_simulation_destroy(sim);
        return status;
    }
    *ret_simulation = sim;
    return MUSTER_OK;
}

void muster_simulation_destroy(struct muster_simulation *simulation)
{
    if (simulation == NULL) {
        return;
    }
    const struct muster_topology *topology = simulation->topology;
    for (uint32_t rank = 0; simulation->ranks != NULL && rank < topology->ranks; rank++) {
        free(simulation->ranks[rank].steps);
        free(simulation->ranks[rank].lanes);
        free(simulation->ranks[rank].times);
        free(simulation->ranks[rank].group_steps);
    }
    muster_sim_cores_finish(simulation);
    muster_sim_network_finish(simulation);
    free(simulation->ranks);
    free(simulation->faults);
    free(simulation->nodes);
    free(simulation->queue);
    free(simulation->channels);
    free(simulation);
}

/* Schedules ----------------------------------------------------------------------------------- */

static bool is_message(uint8_t kind)
{
    return kind <= MUSTER_STEP_RECV_REDUCE;
}

/* The checks without which a schedule could not be stored: its rank, its lanes and its peers. */
static muster_status check_schedule(const struct muster_simulation *sim,
                                    const struct muster_schedule *schedule)
{
    if (schedule->ranks != sim->topology->ranks || schedule->rank >= schedule->ranks) {
        return muster_error_set(MUSTER_INVALID,
                                "simulation: rank %" PRIu32 " of %" PRIu32 " in a job of %" PRIu32,
                                schedule->rank, schedule->ranks, sim->topology->ranks);
    }
    if (sim->ranks[schedule->rank].added) {
        return muster_error_set(MUSTER_INVALID, "simulation: a second schedule for rank %" PRIu32,
                                schedule->rank);
    }
    if (schedule->step_count >= MUSTER_NOTHING) {
        return muster_error_set(MUSTER_INVALID, "simulation: rank %" PRIu32 " has %zu steps",
                                schedule->rank, schedule->step_count);
    }
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->lane >= schedule->lanes || step->lane > UINT8_MAX ||
            (is_message(step->kind) &&
             (step->peer >= schedule->ranks || step->peer == schedule->rank))) {
            return muster_error_set(MUSTER_INVALID,
                                    "simulation: rank %" PRIu32 " step %zu: peer %" PRIu32
                                    " or lane %u out of range",
                                    schedule->rank, i, step->peer, step->lane);
        }
    }
    return MUSTER_OK;
}

static void store_steps(struct muster_sim_rank *rank, const struct muster_schedule *schedule)
{
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        bool begins = i == 0 || step[-1].lane != step->lane || step[-1].round != step->round;
        rank->steps[i] =
            (struct muster_sim_step){.count = step->span.count,
                                     .peer = is_message(step->kind) ? step->peer : step->scope,
                                     .kind = step->kind,
                                     .lane = (uint8_t)step->lane,
                                     .begins_round = begins,
                                     .early = muster_schedule_receives_early(schedule, i)};
        struct muster_sim_lane *lane = &rank->lanes[step->lane];
        if (lane->end == 0) {
            lane->start = lane->next = (uint32_t)i;
        }
        lane->end = (uint32_t)i + 1;
    }
}

muster_status muster_simulation_add(struct muster_simulation *simulation,
                                    const struct muster_schedule *schedule)
{
    TRY(check_schedule(simulation, schedule));
    struct muster_sim_rank *rank = &simulation->ranks[schedule->rank];
    AUTO_FREE struct muster_sim_step *steps = calloc(schedule->step_count + 1, sizeof *steps);
    AUTO_FREE struct muster_sim_lane *lanes = calloc((size_t)schedule->lanes + 1, sizeof *lanes);
    AUTO_FREE struct muster_step_times *times = NULL;
    if (simulation->trace) {
        times = calloc(schedule->step_count + 1, sizeof *times);
    }
    if (steps == NULL || lanes == NULL || (simulation->trace && times == NULL)) {
        return muster_error_set(MUSTER_FATAL,
                                "simulation: no memory for the %zu steps of rank %" PRIu32,
                                schedule->step_count, schedule->rank);
    }
    for (size_t i = 0; times != NULL && i < schedule->step_count; i++) {
        times[i] = (struct muster_step_times){.start_us = -1, .end_us = -1};
    }
    rank->steps = TAKE(steps);
    rank->lanes = TAKE(lanes);
    rank->times = TAKE(times);
    rank->step_count = (uint32_t)schedule->step_count;
    rank->lane_count = schedule->lanes;
    rank->lanes_left = schedule->lanes;
    rank->added = true;
    store_steps(rank, schedule);
    return muster_sim_groups_add(rank, schedule);
}

muster_status muster_simulation_add_all(struct muster_simulation *simulation, size_t algorithm,
                                        const struct muster_plan *plan)
{
    if (plan->memory != NULL) {
        simulation->reach = *plan->memory;
    }
    simulation->keep_input = plan->keep_input;
    for (uint32_t rank = 0; rank < plan->topology->ranks; rank++) {
        struct muster_plan mine = *plan;
        mine.rank = rank;
        struct muster_schedule schedule = {0};
        TRY(muster_schedule_generate(algorithm, &mine, &schedule));
        muster_status status = muster_simulation_add(simulation, &schedule);
        muster_schedule_finish(&schedule);
        TRY(status);
    }
    return MUSTER_OK;
}

/* True if the two ranks have the same list of steps. */
static bool have_same_steps(const struct muster_simulation *one, uint32_t rank,
                            const struct muster_simulation *other, uint32_t other_rank)
{
    const struct muster_sim_rank *left = &one->ranks[rank];
    const struct muster_sim_rank *right = &other->ranks[other_rank];
    if (left->step_count != right->step_count) {
        return false;
    }
    for (uint32_t i = 0; i < left->step_count; i++) {
        const struct muster_sim_step *step = &left->steps[i];
        const struct muster_sim_step *counterpart = &right->steps[i];
        if (step->kind != counterpart->kind || step->count != counterpart->count ||
            step->lane != counterpart->lane || step->begins_round != counterpart->begins_round ||
            step->early != counterpart->early ||
            (is_message(step->kind) &&
             muster_sim_level(one, rank, step->peer) !=
                 muster_sim_level(other, other_rank, counterpart->peer))) {
            return false;
        }
    }
    return true;
}

/* How many ranks of the other simulation have the same list of steps as this rank. */
static uint32_t count_same(const struct muster_simulation *one, uint32_t rank,
                           const struct muster_simulation *other)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < other->topology->ranks; i++) {
        count += have_same_steps(one, rank, other, i) ? 1 : 0;
    }
    return count;
}

bool muster_simulation_is_alike(const struct muster_simulation *one,
                                const struct muster_simulation *other)
{
    for (uint32_t rank = 0; rank < one->topology->ranks; rank++) {
        if (count_same(one, rank, one) != count_same(one, rank, other)) {
            return false;
        }
    }
    return true;
}

/* Rounds -------------------------------------------------------------------------------------- */

static void post(struct muster_simulation *sim, uint32_t rank, uint32_t step)
{
    const struct muster_sim_step *posted = &sim->ranks[rank].steps[step];
    if (posted->kind == MUSTER_STEP_SEND) {
        muster_sim_post_send(sim, rank, step);
    } else if (is_message(posted->kind)) {
        muster_sim_post_receive(sim, rank, step);
    } else if (muster_sim_is_group(posted)) {
        muster_sim_try_group(sim, rank);
    } else {
        const struct muster_core_figures *core = &sim->model.core;
        double rate_GBps = posted->kind == MUSTER_STEP_COPY ? core->copy_GBps : core->reduce_GBps;
        double work_us = muster_cost_bytes_us(posted->count, sim->element_size_bytes, rate_GBps);
        muster_sim_finish_step(sim, rank, step, muster_sim_work(sim, rank, sim->now_us, work_us));
    }
}

static void post_now(struct muster_simulation *sim, uint32_t rank, uint32_t step)
{
    struct muster_sim_rank *own = &sim->ranks[rank];
    if (own->times != NULL) {
        own->times[step].start_us = sim->now_us;
    }
    post(sim, rank, step);
}

/* Moves the window [start, next) to the next round. */
static void enter_round(const struct muster_sim_rank *rank, struct muster_sim_lane *lane)
{
    lane->start = lane->next;
    lane->waiting = 0;
    do {
        lane->waiting += rank->steps[lane->next++].done ? 0 : 1;
    } while (lane->next < lane->end && !rank->steps[lane->next].begins_round);
}

/* Posts the next round: messages first, so that they are in flight while the core works, and with
 * them the early receives of the round after it; then local steps. */
static void start_round(struct muster_simulation *sim, uint32_t rank, struct muster_sim_lane *lane)
{
    const struct muster_sim_rank *own = &sim->ranks[rank];
    enter_round(own, lane);
    for (uint32_t i = lane->start; i < lane->next; i++) {
        if (is_message(own->steps[i].kind) && !own->steps[i].early) {
            post_now(sim, rank, i);
        }
    }
    for (uint32_t i = lane->next; i < lane->end && (i == lane->next || !own->steps[i].begins_round);
         i++) {
        if (own->steps[i].early) {
            post_now(sim, rank, i);
        }
    }
    for (uint32_t i = lane->start; i < lane->next; i++) {
        if (!is_message(own->steps[i].kind)) {
            post_now(sim, rank, i);
        }
    }
}

static void end_lane(struct muster_simulation *sim, struct muster_sim_rank *rank)
{
    if (--rank->lanes_left == 0) {
        rank->finish_us = sim->now_us;
        sim->unfinished--;
    }
}

void muster_sim_step_done(struct muster_simulation *sim, uint32_t rank, uint32_t step)
{
    struct muster_sim_rank *own = &sim->ranks[rank];
    if (own->dead_us <= sim->now_us) {
        return;
    }
    own->steps[step].done = true;
    if (own->times != NULL) {
        own->times[step].end_us = sim->now_us;
    }
    bool group = muster_sim_is_group(&own->steps[step]);
    if (group) {
        muster_sim_group_done(sim, rank);
    }
    struct muster_sim_lane *lane = &own->lanes[own->steps[step].lane];
    if (step >= lane->next) {
        return; /* an early receive: its round has not begun */
    }
    lane->waiting--;
    while (lane->waiting == 0) {
        lane->round++;
        if (lane->next == lane->end) {
            end_lane(sim, own);
            break;
        }
        start_round(sim, rank, lane);
    }
    if (group) {
        muster_sim_try_group(sim, rank); /* one of another lane may have waited for this one */
    }
}

static void begin(struct muster_simulation *sim, uint32_t rank)
{
    struct muster_sim_rank *own = &sim->ranks[rank];
    if (own->dead_us <= sim->now_us) {
        return;
    }
    if (own->lane_count == 0) {
        own->finish_us = sim->now_us;
        sim->unfinished--;
    }
    for (uint32_t i = 0; i < own->lane_count; i++) {
        start_round(sim, rank, &own->lanes[i]);
    }
}

/* The loop ------------------------------------------------------------------------------------ */

static void schedule_new(struct muster_simulation *sim, uint32_t rank, uint8_t event, double at_us)
{
    uint32_t node = muster_sim_node_allocate(sim);
    if (node != MUSTER_NOTHING) {
        sim->nodes[node].rank = rank;
        muster_sim_schedule(sim, node, event, at_us);
    }
}

/* Schedules the beginnings of all ranks, and all deaths. */
static muster_status schedule_beginnings(struct muster_simulation *sim)
{
    for (size_t i = 0; i < sim->fault_count; i++) {
        if (sim->faults[i].kind == MUSTER_FAULT_DEAD_LINK) {
            schedule_new(sim, 0, MUSTER_SIM_DEATH, sim->faults[i].at_us);
        }
    }
    for (uint32_t rank = 0; rank < sim->topology->ranks; rank++) {
        if (!sim->ranks[rank].added) {
            return muster_error_set(MUSTER_INVALID, "simulation: no schedule for rank %" PRIu32,
                                    rank);
        }
        if (isfinite(sim->ranks[rank].dead_us)) {
            schedule_new(sim, rank, MUSTER_SIM_DEATH, sim->ranks[rank].dead_us);
        }
        schedule_new(sim, rank, MUSTER_SIM_BEGIN, sim->ranks[rank].begins_us);
    }
    return sim->status;
}

/* Handles one event. Frees its node, or passes it to a function that frees it or uses it again. */
static void handle(struct muster_simulation *sim, uint32_t node)
{
    uint32_t rank = sim->nodes[node].rank;
    uint32_t step = sim->nodes[node].step;
    switch (sim->nodes[node].event) {
    case MUSTER_SIM_BEGIN:
        muster_sim_node_free(sim, node);
        begin(sim, rank);
        break;
    case MUSTER_SIM_WORK_DONE:
        muster_sim_node_free(sim, node);
        muster_sim_step_done(sim, rank, step);
        break;
    case MUSTER_SIM_FLOW_START:
        muster_sim_start_flow(sim, node);
        break;
    case MUSTER_SIM_FLOW_END:
        muster_sim_end_flow(sim, node);
        break;
    case MUSTER_SIM_ARRIVAL:
        muster_sim_arrive(sim, node);
        break;
    case MUSTER_SIM_BUCKET_EMPTY:
        muster_sim_close_uplink(sim, sim->nodes[node].peer);
        break;
    default: /* MUSTER_SIM_DEATH */
        muster_sim_node_free(sim, node);
        muster_sim_stop_dead_flows(sim);
        break;
    }
}

/* Runs until no event is left. Rates are computed when all events of one time have been handled.
 * False: the limit has passed. */
static bool run_events(struct muster_simulation *sim)
{
    while (sim->status == MUSTER_OK && sim->unfinished > 0) {
        bool later = sim->queue_count == 0 || sim->queue[0].at_us > sim->now_us;
        if (later && muster_sim_share(sim)) {
            continue;
        }
        if (sim->queue_count == 0) {
            break;
        }
        if (sim->limit_us > 0 && sim->queue[0].at_us > sim->limit_us) {
            return false;
        }
        sim->now_us = sim->queue[0].at_us;
        handle(sim, muster_sim_pop(sim));
    }
    return true;
}

static double last_finish_us(const struct muster_simulation *sim)
{
    double last_us = 0;
    for (uint32_t rank = 0; rank < sim->topology->ranks; rank++) {
        double finish_us = sim->ranks[rank].finish_us;
        last_us = finish_us > last_us ? finish_us : last_us;
    }
    return last_us;
}

void muster_simulation_limit(struct muster_simulation *simulation, double limit_us)
{
    simulation->limit_us = limit_us;
}

muster_status muster_simulation_run(struct muster_simulation *simulation,
                                    struct muster_simulation_result *ret_result)
{
    TRY(schedule_beginnings(simulation));
    bool within_limit = run_events(simulation);
    TRY(simulation->status);
    struct muster_simulation_result result = {
        .finished = simulation->unfinished == 0,
        .unfinished = simulation->unfinished,
    };
    result.beyond_limit = !result.finished && !within_limit;
    result.total_us = result.finished ? last_finish_us(simulation) : simulation->now_us;
    for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
        result.bytes[level] = simulation->bytes[level];
        result.messages[level] = simulation->messages[level];
    }
    if (!result.finished && within_limit) {
        muster_sim_explain(simulation, result.verdict, sizeof result.verdict);
    }
    *ret_result = result;
    return MUSTER_OK;
}

double muster_simulation_finish_us(const struct muster_simulation *simulation, uint32_t rank)
{
    return simulation->ranks[rank].finish_us;
}

const struct muster_step_times *muster_simulation_times(const struct muster_simulation *simulation,
                                                        uint32_t rank)
{
    return simulation->ranks[rank].times;
}

muster_status muster_simulate_us(size_t algorithm, const struct muster_plan *plan,
                                 size_t element_size_bytes, const struct muster_cost_model *model,
                                 double limit_us, double *ret_us)
{
    const struct muster_simulation_options options = {
        .topology = plan->topology, .model = model, .element_size_bytes = element_size_bytes};
    struct muster_simulation *simulation = NULL;
    muster_status created = muster_simulation_create(&options, &simulation);
    if (simulation == NULL) {
        return created;
    }
    struct muster_simulation_result result = {0};
    muster_status status = muster_simulation_add_all(simulation, algorithm, plan);
    if (status == MUSTER_OK) {
        muster_simulation_limit(simulation, limit_us);
        status = muster_simulation_run(simulation, &result);
    }
    muster_simulation_destroy(simulation);
    TRY(status);
    if (!result.finished && !result.beyond_limit) {
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        muster_algorithm_print(algorithm, name, sizeof name);
        return muster_error_set(MUSTER_FATAL, "%s: %s", name, result.verdict);
    }
    *ret_us = result.beyond_limit ? 2 * limit_us : result.total_us;
    return MUSTER_OK;
}
