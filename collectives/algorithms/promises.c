/* The promises of a plan: when a closing round is needed, and how schedules come to keep their
 * input. */
#include "collectives/algorithms/promises.h"

#include "collectives/algorithms/generators.h"
#include "collectives/schedule/keep_input.h"

/* In place OUTPUT is all of INPUT, and each of its elements needs one other rank only. The same on
 * all ranks, although only some may be in place. */
static bool closes_behind(const struct muster_plan *plan)
{
    return plan->keep_input && muster_collective_in_place_counts(plan->collective);
}

struct muster_plan muster_promise_plan(const struct muster_plan *plan)
{
    struct muster_plan bare = *plan;
    /* What keeps the input also keeps it from being overwritten while it is sent. */
    bare.in_place = plan->in_place && !closes_behind(plan);
    return bare;
}

bool muster_promise_needs_closing(const struct muster_plan *plan)
{
    return (plan->finish_together || closes_behind(plan)) && plan->topology->ranks > 1 &&
           !muster_collective_synchronizes(plan->collective);
}

static void close_group(const struct muster_plan *plan, struct muster_builder *builder)
{
    const struct muster_group all = {.size = plan->topology->ranks, .index = plan->rank};
    muster_barrier_dissemination_part(builder, &all);
}

void muster_promise_begin(const struct muster_plan *plan, struct muster_builder *builder)
{
    if (muster_promise_needs_closing(plan) && !closes_behind(plan)) {
        close_group(plan, builder);
        builder->first_lane = 1;
        muster_builder_set_lane(builder, 0);
    }
}

void muster_promise_end(const struct muster_plan *plan, struct muster_builder *builder)
{
    if (muster_promise_needs_closing(plan) && closes_behind(plan)) {
        muster_builder_set_lane(builder, 0);
        muster_builder_next_round(builder);
        close_group(plan, builder);
    }
}

void muster_promise_add_closing_formula(const struct muster_plan *plan,
                                        struct muster_formula *formula)
{
    uint32_t rounds = muster_log2_up(plan->topology->ranks);
    bool behind = closes_behind(plan);
    for (uint32_t round = 0; round < rounds; round++) {
        muster_formula_add(formula, plan->topology, UINT64_C(2) << round, 1, 0);
    }
    formula->rounds = behind                     ? formula->rounds + rounds
                      : formula->rounds > rounds ? formula->rounds
                                                 : rounds;
}

muster_status muster_promise_keep(const struct muster_plan *plan, struct muster_schedule *schedule)
{
    const struct muster_shape shape = muster_plan_shape(plan);
    return plan->keep_input && plan->in_place
               ? muster_schedule_keep_input(&shape, schedule, closes_behind(plan))
               : MUSTER_OK;
}
