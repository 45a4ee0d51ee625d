/* muster bench step: computes medians from the times of the ranks, and prints them. */
#include "worker/cli/bench/step/step_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "worker/base/cleanup.h"
#include "worker/base/statistics.h"
#include "worker/cli/print.h"

/* The medians of one side; each time is that of the slowest rank. */
struct side_result {
    const char *name;
    double p50_us, p99_us, exposed_us, first_needed_us;
};

/* Sorts the slowest rank's times of one kind, which stands at `offset` in muster_bench_step_times.
 */
static void sort_slowest(const struct muster_bench_step_shared *shared, size_t side, size_t offset,
                         double *ret_slowest_us)
{
    for (uint32_t i = 0; i < shared->iterations; i++) {
        ret_slowest_us[i] = 0;
        for (uint32_t rank = 0; rank < shared->options.ranks; rank++) {
            const char *times = (const char *)&shared->slots[rank].times[side][i];
            ret_slowest_us[i] =
                fmax(ret_slowest_us[i], *(const double *)(const void *)(times + offset));
        }
    }
    muster_statistics_sort(ret_slowest_us, shared->iterations);
}

static muster_status compute(const struct muster_bench_step_shared *shared, size_t side,
                             struct side_result *ret_result)
{
    AUTO_FREE double *us = calloc(shared->iterations, sizeof *us);
    if (us == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %" PRIu32 " times",
                                shared->iterations);
    }
    struct side_result result = {.name = muster_bench_step_sides[shared->options.sides[side]].name};
    sort_slowest(shared, side, offsetof(struct muster_bench_step_times, step_us), us);
    result.p50_us = muster_statistics_percentile(us, shared->iterations, 0.5);
    result.p99_us = muster_statistics_percentile(us, shared->iterations, 0.99);
    sort_slowest(shared, side, offsetof(struct muster_bench_step_times, exposed_us), us);
    result.exposed_us = muster_statistics_percentile(us, shared->iterations, 0.5);
    sort_slowest(shared, side, offsetof(struct muster_bench_step_times, first_needed_us), us);
    result.first_needed_us = muster_statistics_percentile(us, shared->iterations, 0.5);
    *ret_result = result;
    return MUSTER_OK;
}

static void add_number(json_t *object, const char *side, const char *what, double value)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s_%s", side, what);
    (void)json_object_set_new(object, key, json_real(value));
}

/* Of the rank that had the most. Per step of a side with the engine. */
struct engine_result {
    double agreements, operations, deviations;
    double idle_cpu_percent;
    uint64_t idle_wake_ups;
};

static struct engine_result compute_engine(const struct muster_bench_step_shared *shared)
{
    struct engine_result result = {.agreements = 0};
    double steps =
        (double)shared->iterations * (double)muster_bench_step_engine_sides(&shared->options);
    for (uint32_t rank = 0; rank < shared->options.ranks && steps > 0; rank++) {
        const struct muster_bench_step_slot *slot = &shared->slots[rank];
        result.agreements = fmax(result.agreements, (double)slot->engine.agreements / steps);
        result.operations = fmax(result.operations, (double)slot->engine.operations / steps);
        result.deviations = fmax(result.deviations, (double)slot->engine.deviations / steps);
        result.idle_cpu_percent = fmax(result.idle_cpu_percent, 100 * slot->idle_cpu_share);
        result.idle_wake_ups =
            slot->idle_wake_ups > result.idle_wake_ups ? slot->idle_wake_ups : result.idle_wake_ups;
    }
    return result;
}

static void add_engine(json_t *object, const struct muster_bench_step_shared *shared)
{
    const struct engine_result result = compute_engine(shared);
    if (muster_bench_step_engine_sides(&shared->options) == 0) {
        return;
    }
    (void)json_object_set_new(object, "agreement_messages", json_real(result.agreements));
    (void)json_object_set_new(object, "operations", json_real(result.operations));
    (void)json_object_set_new(object, "deviations", json_real(result.deviations));
    if (shared->options.idle_seconds > 0) {
        (void)json_object_set_new(object, "idle_cpu_percent", json_real(result.idle_cpu_percent));
        (void)json_object_set_new(object, "idle_wake_ups",
                                  json_integer((json_int_t)result.idle_wake_ups));
    }
}

static muster_status print_json(const struct muster_bench_step_shared *shared,
                                const struct side_result *results)
{
    const struct muster_bench_step_options *options = &shared->options;
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:s?, s:s, s:I, s:I, s:b, s:I}", "model",
                  options->model, "tensors", (json_int_t)shared->model->count, "elements",
                  (json_int_t)shared->model->elements, "bytes",
                  (json_int_t)shared->model->elements * (json_int_t)sizeof(float), "transport",
                  options->transport, "ranks", (json_int_t)options->ranks, "hosts",
                  (json_int_t)options->hosts, "shape", options->shape, "order",
                  muster_bench_step_order_name(options->order), "seed", (json_int_t)options->seed,
                  "backward_ms", (json_int_t)options->backward_ms, "in_place", options->in_place,
                  "iterations", (json_int_t)shared->iterations);
    for (size_t i = 0; i < options->side_count; i++) {
        add_number(object, results[i].name, "p50_us", results[i].p50_us);
        add_number(object, results[i].name, "p99_us", results[i].p99_us);
        add_number(object, results[i].name, "exposed_us", results[i].exposed_us);
        add_number(object, results[i].name, "first_needed_us", results[i].first_needed_us);
    }
    add_engine(object, shared);
    return muster_cli_print_json(object, MUSTER_CLI_TIME_DIGITS);
}

static void print_head(const struct muster_bench_step_shared *shared)
{
    const struct muster_bench_step_options *options = &shared->options;
    char bytes[MUSTER_CLI_UNIT_TEXT_SIZE];
    char when[64] = "all ready at once";
    if (options->backward_ms > 0) {
        (void)snprintf(when, sizeof when, "ready over %" PRIu32 " ms", options->backward_ms);
    }
    (void)printf("a step of %s: %zu tensors, %s of float32%s, %" PRIu32 " ranks on %" PRIu32
                 " host%s over %s%s%s\n",
                 options->model, shared->model->count,
                 muster_cli_format_bytes(shared->model->elements * sizeof(float), bytes),
                 options->in_place ? " in place" : "", options->ranks, options->hosts,
                 muster_cli_plural(options->hosts), options->transport,
                 options->shape != NULL ? " at " : "",
                 options->shape != NULL ? options->shape : "");
    (void)printf("%s, order %s, seed %" PRIu32 ", %" PRIu32 " iterations\n", when,
                 muster_bench_step_order_name(options->order), options->seed, shared->iterations);
    (void)printf("%-8s %12s %12s %8s %12s %16s\n", "side", "p50", "p99", "ratio", "exposed",
                 "first needed");
}

static void print_engine(const struct muster_bench_step_shared *shared)
{
    const struct engine_result result = compute_engine(shared);
    if (muster_bench_step_engine_sides(&shared->options) == 0) {
        return;
    }
    (void)printf("engine: a step has %.2f operations, %.2f agreements and %.2f deviations\n",
                 result.operations, result.agreements, result.deviations);
    if (shared->options.idle_seconds > 0) {
        (void)printf("idle: %.3f%% of a core, %" PRIu64
                     " wake-ups of the engine's thread in %" PRIu32 " s\n",
                     result.idle_cpu_percent, result.idle_wake_ups, shared->options.idle_seconds);
    }
}

/* The ratio is that to the first side. */
static void print_text(const struct muster_bench_step_shared *shared,
                       const struct side_result *results)
{
    print_head(shared);
    for (size_t i = 0; i < shared->options.side_count; i++) {
        char p50[MUSTER_CLI_UNIT_TEXT_SIZE];
        char p99[MUSTER_CLI_UNIT_TEXT_SIZE];
        char exposed[MUSTER_CLI_UNIT_TEXT_SIZE];
        char first_needed[MUSTER_CLI_UNIT_TEXT_SIZE];
        (void)printf("%-8s %12s %12s %8.3f %12s %16s\n", results[i].name,
                     muster_cli_format_us(results[i].p50_us, p50),
                     muster_cli_format_us(results[i].p99_us, p99),
                     results[i].p50_us / results[0].p50_us,
                     muster_cli_format_us(results[i].exposed_us, exposed),
                     muster_cli_format_us(results[i].first_needed_us, first_needed));
    }
}

muster_status muster_bench_step_print(const struct muster_bench_step_shared *shared)
{
    struct side_result results[MUSTER_BENCH_STEP_SIDES_MAX] = {{.name = NULL}};
    for (size_t i = 0; i < shared->options.side_count; i++) {
        TRY(compute(shared, i, &results[i]));
    }
    if (shared->options.json) {
        return print_json(shared, results);
    }
    print_text(shared, results);
    print_engine(shared);
    return muster_cli_flush();
}
