/*
 * What muster_schedule_generate() does for the promises of a plan, for any algorithm.
 *
 * Input kept: collectives/schedule/keep_input.h.
 *
 * Nobody finishes before all have started: roots of broadcast and scatter, senders of reduce and
 * gather, and ranks without data may finish early. A closing round, which is a dissemination
 * barrier, is added in lane 0, and the data go in the lanes behind it, so that its messages travel
 * beside the data. (Not the other way round: ranks may have different numbers of lanes.)
 *
 * In an alltoall or a pairwise_exchange in place that keeps its input, OUTPUT must not be written
 * before all have started. There the closing round comes behind the data, and then the copies.
 *
 * Private to algorithms/.
 */
#ifndef MUSTER_COLLECTIVES_ALGORITHMS_PROMISES_H
#define MUSTER_COLLECTIVES_ALGORITHMS_PROMISES_H

#include "collectives/algorithms/algorithm.h"

/* The plan as the generator gets it. */
struct muster_plan muster_promise_plan(const struct muster_plan *plan);

/* The same on all ranks. */
bool muster_promise_needs_closing(const struct muster_plan *plan);
/* Before and after the generator has added its steps. */
void muster_promise_begin(const struct muster_plan *plan, struct muster_builder *builder);
void muster_promise_end(const struct muster_plan *plan, struct muster_builder *builder);
void muster_promise_add_closing_formula(const struct muster_plan *plan,
                                        struct muster_formula *formula);

/* Does nothing out of place, or if the promise is not asked for. MUSTER_FATAL: no memory. */
MUSTER_CHECKED muster_status muster_promise_keep(const struct muster_plan *plan,
                                                 struct muster_schedule *schedule);

#endif
