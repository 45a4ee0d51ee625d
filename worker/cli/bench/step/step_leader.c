/* muster bench step: leads the ranks through the phases. */
#include "worker/cli/bench/step/step_parts.h"

#include "worker/base/cleanup.h"
#include "worker/base/clock.h"

enum {
    START_TIMEOUT_MS = 60000,
    TURN_TIMEOUT_MS = 60000, /* of one turn of all sides, on average */
    CHECKS = 4,              /* turns' worth of time to fill and check */
    WARM_TURNS = 100 + CHECKS,
    ITERATIONS_MIN = 5, /* with --seconds */
};

static int64_t deadline_of_turns(uint32_t turns)
{
    return muster_clock_ns() + (int64_t)turns * TURN_TIMEOUT_MS * MUSTER_NS_PER_MS;
}

static uint32_t choose_iterations(const struct muster_bench_step_shared *shared)
{
    const struct muster_bench_step_options *options = &shared->options;
    double wanted = options->iterations;
    if (options->iterations == 0) {
        wanted = options->seconds * 1e6 / (shared->slots[0].warm_us + 1);
        wanted = wanted < ITERATIONS_MIN ? ITERATIONS_MIN : wanted;
    }
    return wanted > MUSTER_BENCH_STEP_ITERATIONS_MAX ? MUSTER_BENCH_STEP_ITERATIONS_MAX
                                                     : (uint32_t)wanted;
}

static muster_status lead(struct muster_bench_ranks *ranks, void *argument)
{
    struct muster_bench_step_shared *shared = argument;
    TRY(muster_bench_ranks_wait(ranks, "start", muster_clock_after_ms(START_TIMEOUT_MS)));
    TRY(muster_bench_ranks_release(ranks));
    TRY(muster_bench_ranks_wait(ranks, "fill their buffers, check the first results and warm up",
                                deadline_of_turns(WARM_TURNS)));
    shared->iterations = choose_iterations(shared);
    TRY(muster_bench_ranks_release(ranks));
    TRY(muster_bench_ranks_wait(ranks, NULL, deadline_of_turns(shared->iterations + CHECKS)));
    TRY(muster_bench_step_print(shared));
    return muster_bench_ranks_release(ranks);
}

int muster_bench_step_lead(struct muster_bench_step_shared *shared)
{
    const struct muster_bench_ranks_options options = {.count = shared->options.ranks,
                                                       .run = muster_bench_step_rank_run,
                                                       .argument = shared,
                                                       .outcomes = shared->outcomes};
    return muster_bench_ranks_lead(&options, lead, shared);
}
