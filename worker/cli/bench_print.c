/* muster bench: figures out of times. */
#include "worker/cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "worker/base/status.h"
#include "worker/cli/report.h"

struct figures {
    uint64_t bytes;
    double p50_us, p99_us, min_us;
    double algbw_GBps, busbw_GBps;
    uint64_t memory_bytes; /* of the rank that had most; 0: not known */
};

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double percentile(const double *sorted, uint32_t count, double share)
{
    uint32_t index = (uint32_t)ceil(share * count);
    return sorted[index > 0 ? index - 1 : 0];
}

/* Bytes over the busiest port, relative to the vector's. */
static double bus_factor(const struct muster_bench_options *options)
{
    double ranks = options->ranks;
    switch (options->collective) {
    case MUSTER_ALLREDUCE:
        return 2 * (ranks - 1) / ranks;
    case MUSTER_BROADCAST:
    case MUSTER_REDUCE:
    case MUSTER_BARRIER:
        return 1;
    default:
        return (ranks - 1) / ranks;
    }
}

static muster_status find_figures(const struct muster_bench_board *board, size_t size_index,
                                  struct figures *ret_figures)
{
    const struct muster_bench_options *options = &board->options;
    uint32_t count = board->iterations;
    double *slowest = calloc(count, sizeof *slowest);
    if (slowest == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for %u times", count);
    }
    uint64_t memory_bytes = 0;
    for (uint32_t rank = 0; rank < options->ranks; rank++) {
        const struct muster_bench_seat *seat = &board->seats[rank];
        memory_bytes = seat->memory_bytes > memory_bytes ? seat->memory_bytes : memory_bytes;
        for (uint32_t i = 0; i < count; i++) {
            slowest[i] = fmax(slowest[i], seat->times_us[i]);
        }
    }
    qsort(slowest, count, sizeof *slowest, compare);
    struct figures figures = {
        .p50_us = percentile(slowest, count, 0.5),
        .p99_us = percentile(slowest, count, 0.99),
        .min_us = slowest[0],
        .memory_bytes = memory_bytes,
    };
    free(slowest);
    (void)muster_bench_count(options, options->sizes_bytes[size_index], &figures.bytes);
    figures.algbw_GBps = (double)figures.bytes / (figures.p50_us * 1000);
    figures.busbw_GBps = figures.algbw_GBps * bus_factor(options);
    *ret_figures = figures;
    return MUSTER_OK;
}

static const char *transport_name(enum muster_bench_transport transport)
{
    static const char *const names[] = {
        [MUSTER_BENCH_INPROC] = "inproc", [MUSTER_BENCH_TCP] = "tcp", [MUSTER_BENCH_SHM] = "shm"};
    return names[transport];
}

static muster_status print_object(json_t *object)
{
    if (object == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a line of JSON");
    }
    int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(object);
    return failed != 0 || putchar('\n') == EOF ? muster_error_errno(MUSTER_FATAL, "standard output")
                                               : MUSTER_OK;
}

static muster_status print_json(const struct muster_bench_board *board,
                                const struct figures *figures)
{
    const struct muster_bench_options *options = &board->options;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s?, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
        "collective", muster_collective_name(options->collective), "algorithm", board->algorithm,
        "transport", transport_name(options->transport), "ranks", (json_int_t)options->ranks,
        "hosts", (json_int_t)options->hosts, "shape", options->shape, "bytes",
        (json_int_t)figures->bytes, "iterations", (json_int_t)board->iterations, "p50_us",
        figures->p50_us, "p99_us", figures->p99_us, "min_us", figures->min_us, "algbw_GBps",
        figures->algbw_GBps, "busbw_GBps", figures->busbw_GBps, "predicted_us", board->predicted_us,
        "memory_bytes",
        figures->memory_bytes > 0 ? json_integer((json_int_t)figures->memory_bytes) : json_null());
    return print_object(object);
}

muster_status muster_bench_print_head(const struct muster_bench_board *board)
{
    const struct muster_bench_options *options = &board->options;
    if (options->json) {
        return options->figures ? print_object(json_pack("{s:o}", "figures",
                                                         muster_figures_encode(&board->figures)))
                                : MUSTER_OK;
    }
    if (options->figures) {
        muster_report_figures(&board->figures);
    }
    bool reduces = muster_collective_reduces(options->collective);
    (void)printf("%s, %u rank%s on %u host%s over %s%s%s, %s%s%s%s%s\n",
                 muster_collective_name(options->collective), options->ranks,
                 options->ranks == 1 ? "" : "s", options->hosts, options->hosts == 1 ? "" : "s",
                 transport_name(options->transport), options->shape != NULL ? " at " : "",
                 options->shape != NULL ? options->shape : "", muster_type_name(options->type),
                 reduces ? " " : "", reduces ? muster_op_name(options->op) : "",
                 options->in_place ? ", in place" : "",
                 options->reproducible ? ", reproducible" : "");
    (void)printf("%12s %-18s %10s %12s %12s %12s %10s %10s %12s\n", "bytes", "algorithm",
                 "iterations", "p50 us", "p99 us", "min us", "algbw GB/s", "busbw GB/s",
                 "predicted us");
    return fflush(stdout) == 0 ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "standard output");
}

muster_status muster_bench_print(const struct muster_bench_board *board, size_t size_index)
{
    struct figures figures = {0};
    TRY(find_figures(board, size_index, &figures));
    if (board->options.json) {
        TRY(print_json(board, &figures));
    } else {
        (void)printf("%12llu %-18s %10u %12.1f %12.1f %12.1f %10.3f %10.3f %12.1f\n",
                     (unsigned long long)figures.bytes, board->algorithm, board->iterations,
                     figures.p50_us, figures.p99_us, figures.min_us, figures.algbw_GBps,
                     figures.busbw_GBps, board->predicted_us);
    }
    return fflush(stdout) == 0 ? MUSTER_OK : muster_error_errno(MUSTER_FATAL, "standard output");
}
