#include "collectives/algorithms/algorithm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/algorithms/generators.h"
#include "worker/base/status.h"

static bool fits_always(const struct muster_plan *plan, char *ret_why, size_t size)
{
    (void)plan;
    if (size > 0) {
        ret_why[0] = '\0';
    }
    return true;
}

const struct muster_algorithm muster_algorithms[] = {
    {.name = "ring_two_phase",
     .what = "reduce-scatter and allgather around a ring (Patarasuk, Yuan 2009)",
     .rounds_text = "2(P-1)",
     .elements_text = "2n(P-1)/P",
     .best_for = "large calls",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_ring_two_phase_generate,
     .formula = muster_ring_two_phase_formula},
    {.name = "ring",
     .what = "whole buffers around a ring in P-1 steps (Gloo's allreduce_ring)",
     .rounds_text = "P + ceil(log2 P) - 2; P = 2: 2",
     .elements_text = "n(P-1)",
     .best_for = "small calls on 3 ranks",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_ring_generate,
     .formula = muster_ring_formula},
    {.name = "ring_chunked",
     .what = "two rings of half the data in two lanes, so that reducing and sending overlap",
     .rounds_text = "2(P-1), two lanes",
     .elements_text = "2n(P-1)/P",
     .best_for = "large calls: reducing overlaps sending",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_ring_chunked_generate,
     .formula = muster_ring_chunked_formula},
    {.name = "bidirectional_ring",
     .what = "two rings of half the data in opposite directions (Jain, Sabharwal 2010)",
     .rounds_text = "2(P-1), two lanes",
     .elements_text = "2n(P-1)/P",
     .best_for = "large calls where neighbours have links of their own",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_bidirectional_ring_generate,
     .formula = muster_bidirectional_ring_formula},
    {.name = "halving_doubling",
     .what = "recursive halving, recursive doubling, binary blocks (Thakur et al. 2005)",
     .rounds_text = "2 log2 P; other P: 2 floor(log2 P) + 1",
     .elements_text = "2n(P-1)/P; other P: up to 2n",
     .best_for = "middle and large calls",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_halving_doubling_generate,
     .formula = muster_halving_doubling_formula},
    {.name = "swing",
     .what = "halving and doubling with partners on alternating sides (De Sensi et al. 2024)",
     .rounds_text = "2 log2 P; other P: 2 floor(log2 P) + 1",
     .elements_text = "2n(P-1)/P; other P: up to 2n",
     .best_for = "middle and large calls on rings and tori",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_swing_generate,
     .formula = muster_swing_formula},
    {.name = "recursive_doubling",
     .what = "all the data in log2 P exchanges, for small calls (Thakur et al. 2005)",
     .rounds_text = "log2 P; other P: floor(log2 P) + 2; P = 2: 2",
     .elements_text = "n log2 P; other P: n (floor(log2 P) + 1)",
     .best_for = "small calls",
     .collective = MUSTER_ALLREDUCE,
     .fits = fits_always,
     .generate = muster_recursive_doubling_generate,
     .formula = muster_recursive_doubling_formula},
    {.name = "hierarchical",
     .what = "within hosts, then halving_doubling between them, then within hosts",
     .rounds_text = "2(L-1) + those of halving_doubling on H",
     .elements_text = "2n(L-1)/L + its on n/L",
     .best_for = "slow networks",
     .collective = MUSTER_ALLREDUCE,
     .fits = muster_hierarchical_fits,
     .generate = muster_hierarchical_generate,
     .formula = muster_hierarchical_formula},
    {.name = "hierarchical_ring",
     .what = "within hosts, then ring between them, then within hosts",
     .rounds_text = "2(L-1) + 2(H-1)",
     .elements_text = "2n(L-1)/L + 2(n/L)(H-1)/H",
     .best_for = "slow networks, large calls",
     .collective = MUSTER_ALLREDUCE,
     .fits = muster_hierarchical_fits,
     .generate = muster_hierarchical_ring_generate,
     .formula = muster_hierarchical_ring_formula},
    {.name = "ring",
     .what = "every block once around a ring (Thakur et al. 2005)",
     .rounds_text = "P-1",
     .elements_text = "n(P-1)",
     .best_for = "large calls between hosts",
     .collective = MUSTER_ALLGATHER,
     .fits = fits_always,
     .generate = muster_allgather_ring_generate,
     .formula = muster_allgather_ring_formula},
    {.name = "ring",
     .what = "every block collects its sum around a ring (Thakur et al. 2005)",
     .rounds_text = "P-1",
     .elements_text = "n(P-1)",
     .best_for = "all calls",
     .collective = MUSTER_REDUCE_SCATTER,
     .fits = fits_always,
     .generate = muster_reduce_scatter_ring_generate,
     .formula = muster_reduce_scatter_ring_formula},
    {.name = "binomial",
     .what = "whole messages down a binomial tree (Thakur et al. 2005)",
     .rounds_text = "ceil(log2 P)",
     .elements_text = "n ceil(log2 P)",
     .best_for = "small calls",
     .collective = MUSTER_BROADCAST,
     .fits = fits_always,
     .generate = muster_broadcast_binomial_generate,
     .formula = muster_broadcast_binomial_formula},
    {.name = "pipelined",
     .what = "segments along a chain (Traeff, Ripke 2008)",
     .rounds_text = "S + 1; P = 2: S",
     .elements_text = "n",
     .best_for = "large calls",
     .collective = MUSTER_BROADCAST,
     .fits = fits_always,
     .generate = muster_broadcast_pipelined_generate,
     .formula = muster_broadcast_pipelined_formula},
    {.name = "dissemination",
     .what = "in round k everyone tells the rank 2^k further on (Hensgen et al. 1988)",
     .rounds_text = "ceil(log2 P)",
     .elements_text = "0",
     .best_for = "all calls",
     .collective = MUSTER_BARRIER,
     .fits = fits_always,
     .generate = muster_barrier_dissemination_generate,
     .formula = muster_barrier_dissemination_formula},
    {.name = "dissemination",
     .what = "blocks double in log2 P rounds (Bruck et al. 1997)",
     .rounds_text = "ceil(log2 P)",
     .elements_text = "n(P-1)",
     .best_for = "everything else",
     .collective = MUSTER_ALLGATHER,
     .fits = fits_always,
     .generate = muster_allgather_dissemination_generate,
     .formula = muster_allgather_dissemination_formula},
};

const size_t muster_algorithm_count = sizeof muster_algorithms / sizeof muster_algorithms[0];

_Static_assert(sizeof muster_algorithms / sizeof muster_algorithms[0] <= UINT8_MAX,
               "the index travels in one byte");

/* ", "-separated names of a collective's algorithms that fit the plan; all of them without one. */
static void list_names(enum muster_collective collective, const struct muster_plan *plan,
                       char *ret_names, size_t size)
{
    size_t used = 0;
    ret_names[0] = '\0';
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        char why[MUSTER_ERROR_MAX];
        if (row->collective != collective || (plan != NULL && !row->fits(plan, why, sizeof why)) ||
            used >= size) {
            continue;
        }
        used += (size_t)snprintf(ret_names + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                 row->name);
    }
}

muster_status muster_algorithm_find(enum muster_collective collective, const char *name,
                                    size_t *ret_index)
{
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        if (muster_algorithms[i].collective == collective &&
            strcmp(muster_algorithms[i].name, name) == 0) {
            *ret_index = i;
            return MUSTER_OK;
        }
    }
    char names[256];
    list_names(collective, NULL, names, sizeof names);
    return muster_error_set(MUSTER_INVALID, "%s has no algorithm \"%.64s\": there are %s",
                            muster_collective_name(collective), name, names);
}

struct muster_shape muster_plan_shape(const struct muster_plan *plan)
{
    return (struct muster_shape){.collective = plan->collective,
                                 .rank = plan->rank,
                                 .ranks = plan->topology->ranks,
                                 .root = plan->root,
                                 .count = plan->count,
                                 .input_bounds = plan->input_bounds,
                                 .output_bounds = plan->output_bounds};
}

muster_status muster_plan_check(size_t algorithm, const struct muster_plan *plan)
{
    if (algorithm >= muster_algorithm_count) {
        return muster_error_set(MUSTER_INVALID, "there is no algorithm number %zu", algorithm);
    }
    const struct muster_algorithm *row = &muster_algorithms[algorithm];
    if (row->collective != plan->collective) {
        return muster_error_set(MUSTER_INVALID, "algorithm %s does %s, not %s", row->name,
                                muster_collective_name(row->collective),
                                muster_collective_name(plan->collective));
    }
    const struct muster_shape shape = muster_plan_shape(plan);
    TRY(muster_shape_check(&shape));
    char why[MUSTER_ERROR_MAX];
    if (!row->fits(plan, why, sizeof why)) {
        char names[256];
        list_names(plan->collective, plan, names, sizeof names);
        return muster_error_set(MUSTER_INVALID, "algorithm %s does not fit: %s; these do: %s",
                                row->name, why, names);
    }
    return MUSTER_OK;
}

muster_status muster_schedule_generate(size_t algorithm, const struct muster_plan *plan,
                                       struct muster_schedule *ret_schedule)
{
    TRY(muster_plan_check(algorithm, plan));
    const struct muster_algorithm *row = &muster_algorithms[algorithm];
    struct muster_builder builder;
    muster_builder_init(plan, &builder);
    muster_status status = row->generate(plan, &builder);
    if (status != MUSTER_OK && builder.status == MUSTER_OK) {
        builder.status = status;
    }
    return muster_builder_finish(&builder, ret_schedule);
}
