/* muster bench: leads the ranks through the phases of each size. */
#include "worker/cli/bench/bench_parts.h"

#include <stdlib.h>

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"
#include "worker/base/status.h"

enum {
    START_TIMEOUT_MS = 30000,
    CALL_TIMEOUT_MS = 60000, /* of one call in a rank */
    ITERATIONS_MIN = 5,      /* with --seconds */
};

/* The number of timed calls, limited by the room for their times. */
static uint32_t choose_iterations(const struct muster_bench_options *options,
                                  const struct muster_bench_candidate *candidate)
{
    uint32_t most = MUSTER_BENCH_ITERATIONS_MAX / (uint32_t)options->algorithm_count;
    double wanted = options->iterations;
    if (options->iterations == 0) {
        wanted = options->seconds * 1e6 / (candidate->warm_us + 1);
        wanted = wanted < ITERATIONS_MIN ? ITERATIONS_MIN : wanted;
    }
    return wanted > most ? most : (uint32_t)wanted;
}

/* When this many calls must have ended, if each may take CALL_TIMEOUT_MS. */
static int64_t deadline_of_calls(uint64_t calls)
{
    return muster_clock_ns() + (int64_t)calls * CALL_TIMEOUT_MS * 1000000;
}

/* Leads the ranks through the two phases of a size. Between them the leader chooses how often each
 * algorithm is called, from the times of the warm calls. */
static muster_status run_size(struct muster_bench_ranks *ranks, struct muster_bench_shared *shared,
                              size_t size_index, struct muster_bench_result *ret_results)
{
    size_t algorithms = shared->options.algorithm_count;
    TRY(muster_bench_ranks_wait(ranks, "fill their buffers, check the first results and warm up",
                                deadline_of_calls(algorithms * (2 + MUSTER_BENCH_WARM_UP))));
    if (size_index == 0) {
        TRY(muster_bench_print_head(shared));
    }
    uint64_t calls = 0;
    for (size_t i = 0; i < algorithms; i++) {
        struct muster_bench_candidate *candidate = &shared->candidates[i];
        candidate->iterations =
            candidate->fits ? choose_iterations(&shared->options, candidate) : 0;
        calls += 2 * (uint64_t)candidate->iterations; /* with barriers between them */
    }
    TRY(muster_bench_ranks_release(ranks));
    TRY(muster_bench_ranks_wait(ranks, NULL, deadline_of_calls(1 + calls)));
    TRY(muster_bench_compute_results(shared, size_index, ret_results));
    TRY(muster_bench_print(shared, ret_results));
    return muster_bench_ranks_release(ranks);
}

static muster_status run_phases(struct muster_bench_ranks *ranks, void *argument)
{
    struct muster_bench_shared *shared = argument;
    const struct muster_bench_options *options = &shared->options;
    AUTO_FREE struct muster_bench_result *results =
        calloc(options->size_count * options->algorithm_count, sizeof *results);
    if (results == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for results");
    }
    TRY(muster_bench_ranks_wait(ranks, "start", muster_clock_after_ms(START_TIMEOUT_MS)));
    TRY(muster_bench_ranks_release(ranks));
    for (size_t i = 0; i < options->size_count; i++) {
        TRY(run_size(ranks, shared, i, results + i * options->algorithm_count));
    }
    return options->svg != NULL ? muster_bench_draw(options, results) : MUSTER_OK;
}

static muster_status run_rank(void *argument, uint32_t rank, int channel)
{
    return muster_bench_rank_main(argument, rank, channel);
}

int muster_bench_run(struct muster_bench_shared *shared)
{
    const struct muster_bench_ranks_options options = {.count = shared->options.ranks,
                                                       .threads = shared->options.transport ==
                                                                  MUSTER_BENCH_INPROC,
                                                       .run = run_rank,
                                                       .argument = shared,
                                                       .outcomes = shared->outcomes};
    return muster_bench_ranks_lead(&options, run_phases, shared);
}
