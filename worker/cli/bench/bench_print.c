/* muster bench: computes results from the times of the ranks, and prints them. */
#include "worker/cli/bench/bench_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "worker/base/cleanup.h"
#include "worker/base/statistics.h"
#include "worker/base/status.h"
#include "worker/cli/print.h"
#include "worker/cli/report.h"

/* Bytes through the busiest port, relative to the bytes of the vector: the definition of busbw. */
static double bus_factor(const struct muster_bench_options *options)
{
    double ranks = options->ranks;
    switch (options->collective) {
    case MUSTER_ALLREDUCE:
        return 2 * (ranks - 1) / ranks;
    case MUSTER_BROADCAST:
    case MUSTER_REDUCE:
    case MUSTER_PAIRWISE_EXCHANGE:
    case MUSTER_BARRIER:
        return 1;
    default:
        return (ranks - 1) / ranks;
    }
}

static uint64_t peak_memory_bytes(const struct muster_bench_shared *shared)
{
    uint64_t peak_bytes = 0;
    for (uint32_t rank = 0; rank < shared->options.ranks; rank++) {
        const struct muster_bench_rank_slot *slot = &shared->rank_slots[rank];
        peak_bytes = slot->memory_bytes > peak_bytes ? slot->memory_bytes : peak_bytes;
    }
    return peak_bytes;
}

/* `slowest_us` has room for the times of the algorithm, which begin at `offset` in those of each
 * rank. */
static void compute_result(const struct muster_bench_shared *shared, size_t algorithm,
                           uint32_t offset, double *slowest_us,
                           struct muster_bench_result *ret_result)
{
    const struct muster_bench_candidate *candidate = &shared->candidates[algorithm];
    uint32_t count = candidate->iterations;
    for (uint32_t rank = 0; rank < shared->options.ranks; rank++) {
        ret_result->first_us =
            fmax(ret_result->first_us, shared->rank_slots[rank].first_us[algorithm]);
    }
    for (uint32_t i = 0; i < count; i++) {
        slowest_us[i] = 0;
        for (uint32_t rank = 0; rank < shared->options.ranks; rank++) {
            slowest_us[i] = fmax(slowest_us[i], shared->rank_slots[rank].times_us[offset + i]);
        }
    }
    muster_statistics_sort(slowest_us, count);
    ret_result->iterations = count;
    ret_result->p50_us = muster_statistics_percentile(slowest_us, count, 0.5);
    ret_result->p99_us = muster_statistics_percentile(slowest_us, count, 0.99);
    ret_result->min_us = slowest_us[0];
    ret_result->max_us = slowest_us[count - 1];
    double p10_us = muster_statistics_percentile(slowest_us, count, 0.1);
    double p90_us = muster_statistics_percentile(slowest_us, count, 0.9);
    ret_result->spread = (p90_us - p10_us) / ret_result->p50_us;
    ret_result->predicted_us = candidate->predicted_us;
    ret_result->algbw_GBps = (double)ret_result->bytes / (ret_result->p50_us * 1000);
    ret_result->busbw_GBps = ret_result->algbw_GBps * bus_factor(&shared->options);
}

muster_status muster_bench_compute_results(const struct muster_bench_shared *shared,
                                           size_t size_index,
                                           struct muster_bench_result *ret_results)
{
    const struct muster_bench_options *options = &shared->options;
    AUTO_FREE double *slowest_us = calloc(MUSTER_BENCH_ITERATIONS_MAX, sizeof *slowest_us);
    if (slowest_us == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %d times",
                                MUSTER_BENCH_ITERATIONS_MAX);
    }
    uint32_t offset = 0;
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct muster_bench_candidate *candidate = &shared->candidates[i];
        struct muster_bench_result *result = &ret_results[i];
        memcpy(result->algorithm, candidate->algorithm, sizeof result->algorithm);
        result->memory_bytes = peak_memory_bytes(shared);
        (void)muster_bench_count(options, options->sizes_bytes[size_index], &result->bytes);
        if (candidate->iterations > 0) {
            compute_result(shared, i, offset, slowest_us, result);
        }
        offset += candidate->iterations;
    }
    return MUSTER_OK;
}

static muster_status print_json(const struct muster_bench_shared *shared,
                                const struct muster_bench_result *result)
{
    const struct muster_bench_options *options = &shared->options;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s?, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:o}",
        "collective", muster_collective_name(options->collective), "algorithm", result->algorithm,
        "transport", muster_bench_transport_name(options->transport), "ranks",
        (json_int_t)options->ranks, "hosts", (json_int_t)options->hosts, "shape", options->shape,
        "bytes", (json_int_t)result->bytes, "iterations", (json_int_t)result->iterations, "p50_us",
        result->p50_us, "p99_us", result->p99_us, "min_us", result->min_us, "max_us",
        result->max_us, "first_us", result->first_us, "spread", result->spread, "algbw_GBps",
        result->algbw_GBps, "busbw_GBps", result->busbw_GBps, "predicted_us", result->predicted_us,
        "memory_bytes",
        result->memory_bytes > 0 ? json_integer((json_int_t)result->memory_bytes) : json_null());
    return muster_cli_print_json(object, MUSTER_CLI_TIME_DIGITS);
}

void muster_bench_describe(const struct muster_bench_options *options, char *ret_text, size_t size)
{
    bool reduces = muster_collective_reduces(options->collective);
    (void)snprintf(
        ret_text, size, "%s, %u rank%s on %u host%s over %s%s%s, %s%s%s%s%s%s%s%s%s%s",
        muster_collective_name(options->collective), options->ranks,
        muster_cli_plural(options->ranks), options->hosts, muster_cli_plural(options->hosts),
        muster_bench_transport_name(options->transport), options->shape != NULL ? " at " : "",
        options->shape != NULL ? options->shape : "", muster_type_name(options->type),
        reduces ? " " : "", reduces ? muster_op_name(options->op) : "",
        options->on_stream   ? ", memory of GPUs, on a stream"
        : options->on_device ? ", memory of GPUs"
                             : "",
        options->in_place ? ", in place" : "", options->keep_input ? ", input kept" : "",
        options->finish_together ? ", finishing together" : "",
        options->reproducible ? ", reproducible" : "",
        muster_compresses(options->compression) ? ", compressed to " : "",
        muster_compresses(options->compression) ? muster_compression_name(options->compression)
                                                : "");
}

muster_status muster_bench_print_head(const struct muster_bench_shared *shared)
{
    const struct muster_bench_options *options = &shared->options;
    if (options->json) {
        if (!options->figures) {
            return MUSTER_OK;
        }
        json_t *figures = muster_figures_encode(&shared->link_figures);
        return muster_cli_print_json(json_pack("{s:o}", "figures", figures),
                                     MUSTER_CLI_TIME_DIGITS);
    }
    if (options->figures) {
        muster_report_figures(&shared->link_figures);
    }
    char text[256];
    muster_bench_describe(options, text, sizeof text);
    (void)printf("%s\n%12s %10s %12s %12s %12s %12s %12s %8s %10s %10s %12s  %s\n", text, "bytes",
                 "iterations", "p50 us", "p99 us", "min us", "max us", "first us", "spread",
                 "algbw GB/s", "busbw GB/s", "predicted us", "algorithm");
    return muster_cli_flush();
}

static double best_us(const struct muster_bench_options *options,
                      const struct muster_bench_result *results)
{
    double best = INFINITY;
    for (size_t i = 0; i < options->algorithm_count; i++) {
        best = results[i].iterations > 0 ? fmin(best, results[i].p50_us) : best;
    }
    return best;
}

/* Why this algorithm is measured; `requested` is its text in the options. */
static const char *origin_of(const char *requested)
{
    return requested[0] == '\0'                         ? "  chosen"
           : strcmp(requested, MUSTER_BENCH_TUNED) == 0 ? "  tuned"
                                                        : "";
}

muster_status muster_bench_print(const struct muster_bench_shared *shared,
                                 const struct muster_bench_result *results)
{
    const struct muster_bench_options *options = &shared->options;
    double best = best_us(options, results);
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct muster_bench_result *one = &results[i];
        if (one->iterations == 0) {
            continue;
        }
        if (options->json) {
            TRY(print_json(shared, one));
            continue;
        }
        bool several = options->algorithm_count > 1;
        bool fastest = several && !(one->p50_us > best);
        /* Names have any length, so they are the last column. */
        (void)printf("%12" PRIu64
                     " %10u %12.1f %12.1f %12.1f %12.1f %12.1f %8.3f %10.3f %10.3f "
                     "%12.1f  %s%s%s\n",
                     one->bytes, one->iterations, one->p50_us, one->p99_us, one->min_us,
                     one->max_us, one->first_us, one->spread, one->algbw_GBps, one->busbw_GBps,
                     one->predicted_us, one->algorithm,
                     several ? origin_of(options->algorithms[i]) : "", fastest ? "  fastest" : "");
    }
    return muster_cli_flush();
}
