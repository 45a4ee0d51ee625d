/* muster bench step: the work of one rank. */
#include "worker/cli/bench/step/step_parts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

enum {
    /* In the first calls of each size the fastest algorithm is found out. */
    WARM_UP_SMALL = 100,
    WARM_UP_LARGE = 20,
    SMALL_ELEMENTS = 1 << 20,
    TIMED = 5, /* of the warm-up turns: those that the number of iterations is chosen by */
};

/* Opening ------------------------------------------------------------------------------------- */

static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    struct muster_bench_step_rank *rank = user_data;
    if (size_bytes > MUSTER_BENCH_STEP_BLOB_BYTES) {
        return 1;
    }
    memcpy(rank->slot->blob, mine, size_bytes);
    if (muster_bench_rank_end_phase(rank->channel) != MUSTER_OK) {
        return 1;
    }
    for (uint32_t i = 0; i < rank->shared->options.ranks; i++) {
        memcpy((char *)all + i * size_bytes, rank->shared->slots[i].blob, size_bytes);
    }
    return 0;
}

/* The options of the command replace those of the environment. Ranks are spread evenly. */
static muster_status open_session(struct muster_bench_step_rank *rank)
{
    const struct muster_bench_step_options *given = &rank->shared->options;
    uint32_t host = (uint32_t)((uint64_t)rank->rank * given->hosts / given->ranks);
    char address[MUSTER_BENCH_ADDRESS_SIZE] = "127.0.0.1";
    char host_name[32];
    if (rank->shared->network != NULL) {
        TRY(muster_bench_network_enter(rank->shared->network, host, address));
    }
    (void)snprintf(host_name, sizeof host_name, "host%u", host);
    muster_options options;
    muster_options_init(&options);
    options.host = host_name;
    options.listen = address;
    options.interface = NULL;
    options.shared_memory = strcmp(given->transport, "shm") == 0;
    options.verbs = strcmp(given->transport, "verbs") == 0;
    return muster_open_with(&options, rank->rank, given->ranks, exchange, rank, &rank->session);
}

/* Steps --------------------------------------------------------------------------------------- */

static muster_status run_step(struct muster_bench_step_rank *rank, size_t side,
                              struct muster_bench_step_times *ret_times)
{
    muster_bench_step_data_next_order(rank);
    TRY(muster_barrier(rank->session, MUSTER_GLOBAL, NULL));
    rank->begin_ns = muster_clock_ns();
    TRY(muster_bench_step_sides[rank->shared->options.sides[side]].run(rank, ret_times));
    ret_times->step_us = (double)(muster_clock_ns() - rank->begin_ns) / 1000;
    return MUSTER_OK;
}

/* One step of each side, whose results are checked. */
static muster_status check_sides(struct muster_bench_step_rank *rank)
{
    const struct muster_bench_step_options *options = &rank->shared->options;
    struct muster_bench_step_times times;
    for (size_t side = 0; side < options->side_count; side++) {
        muster_bench_step_data_fill(rank);
        TRY(run_step(rank, side, &times));
        TRY(muster_bench_step_data_check(rank, muster_bench_step_sides[options->sides[side]].name));
    }
    muster_bench_step_data_settle(rank);
    return MUSTER_OK;
}

/* A turn: one step of each side, so that all see the same noise. */
static muster_status run_turn(struct muster_bench_step_rank *rank, uint32_t iteration)
{
    for (size_t side = 0; side < rank->shared->options.side_count; side++) {
        TRY(run_step(rank, side, &rank->slot->times[side][iteration]));
    }
    return MUSTER_OK;
}

static muster_status warm_up(struct muster_bench_step_rank *rank)
{
    bool brief =
        rank->shared->model->elements < SMALL_ELEMENTS && rank->shared->options.backward_ms == 0;
    uint32_t turns = brief ? WARM_UP_SMALL : WARM_UP_LARGE;
    int64_t start_ns = 0;
    for (uint32_t i = 0; i < turns; i++) {
        start_ns = i == turns - TIMED ? muster_clock_ns() : start_ns;
        TRY(run_turn(rank, i));
    }
    rank->slot->warm_us = (double)(muster_clock_ns() - start_ns) / 1000 / TIMED;
    return muster_bench_rank_end_phase(rank->channel);
}

/* Counts what the engine does in the measured steps. */
static muster_status measure(struct muster_bench_step_rank *rank)
{
    muster_engine_counters before = {.size = sizeof before};
    muster_engine_counters after = {.size = sizeof after};
    const char *trace = rank->shared->options.trace;
    TRY(muster_engine_count(rank->session, MUSTER_GLOBAL, &before));
    if (trace != NULL) {
        TRY(muster_trace_start(rank->session, trace));
    }
    for (uint32_t i = 0; i < rank->shared->iterations; i++) {
        TRY(run_turn(rank, i));
    }
    if (trace != NULL) {
        TRY(muster_trace_stop(rank->session));
    }
    TRY(muster_engine_count(rank->session, MUSTER_GLOBAL, &after));
    rank->slot->engine.agreements = after.agreements - before.agreements;
    rank->slot->engine.operations = after.operations - before.operations;
    rank->slot->engine.deviations = after.deviations - before.deviations;
    return MUSTER_OK;
}

static double cpu_seconds(void)
{
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* Nothing is submitted for a while. */
static muster_status measure_idle(struct muster_bench_step_rank *rank)
{
    muster_engine_counters before = {.size = sizeof before};
    muster_engine_counters after = {.size = sizeof after};
    const struct timespec pause = {.tv_sec = rank->shared->options.idle_seconds};
    if (pause.tv_sec == 0) {
        return MUSTER_OK;
    }
    TRY(muster_barrier(rank->session, MUSTER_GLOBAL, NULL));
    TRY(muster_engine_count(rank->session, MUSTER_GLOBAL, &before));
    double used_before_s = cpu_seconds();
    (void)nanosleep(&pause, NULL);
    rank->slot->idle_cpu_share = (cpu_seconds() - used_before_s) / (double)pause.tv_sec;
    TRY(muster_engine_count(rank->session, MUSTER_GLOBAL, &after));
    rank->slot->idle_wake_ups = after.wake_ups - before.wake_ups;
    return MUSTER_OK;
}

static muster_status run_all_phases(struct muster_bench_step_rank *rank)
{
    TRY(muster_bench_step_data_init(rank));
    TRY(open_session(rank));
    TRY(check_sides(rank));
    TRY(warm_up(rank));
    TRY(measure(rank));
    TRY(check_sides(rank));
    TRY(measure_idle(rank));
    return muster_bench_rank_end_phase(rank->channel);
}

muster_status muster_bench_step_rank_run(void *argument, uint32_t number, int channel)
{
    struct muster_bench_step_shared *shared = argument;
    struct muster_bench_step_rank rank = {
        .shared = shared, .slot = &shared->slots[number], .rank = number, .channel = channel};
    muster_status status = run_all_phases(&rank);
    muster_bench_outcome_set(&shared->outcomes[number], status);
    muster_close(rank.session);
    muster_bench_step_data_finish(&rank);
    return status;
}
