/* Selection: the algorithm with the lowest predicted time. Pure; every rank has the same inputs
 * (the link figures are agreed at join), so every rank chooses alike. No size thresholds. */
#ifndef MUSTER_COLLECTIVES_SELECT_SELECT_H
#define MUSTER_COLLECTIVES_SELECT_SELECT_H

#include "collectives/select/cost.h"

/* Jobs up to this size are simulated when a call waits; larger ones go by the formulas. */
enum { MUSTER_SELECT_SIMULATED_RANKS_MAX = 32 };

/* Predicted time of one algorithm for this plan (its rank is ignored). */
MUSTER_CHECKED muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                                   size_t element_size_bytes,
                                                   const struct muster_cost_model *model,
                                                   double *ret_us);

/* Whether it is one of those that are selected from for this plan: it fits, and if it is for memory
 * that the ranks share, they do, and it has room for the call. */
bool muster_select_considers(size_t algorithm, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model);

/* The cheapest of those. */
MUSTER_CHECKED muster_status muster_select(const struct muster_plan *plan,
                                           size_t element_size_bytes,
                                           const struct muster_cost_model *model,
                                           size_t *ret_algorithm);

/* An algorithm and its predicted time. */
struct muster_priced {
    size_t algorithm;
    double us;
};

/* The cheapest ones, at most `most`, cheapest first: those that are not a quarter slower than the
 * first, or not slower by more than slack_us. Where several do alike in the same time for this
 * plan, one algorithm by several names, one stands for them, the favourite if it is one. In jobs of
 * more than MUSTER_SELECT_LISTED_RANKS_MAX ranks by the formulas, which cost nothing. The plan's
 * rank is ignored. */
enum { MUSTER_SELECT_LISTED_RANKS_MAX = 16 };
MUSTER_CHECKED muster_status muster_select_several(const struct muster_plan *plan,
                                                   size_t element_size_bytes,
                                                   const struct muster_cost_model *model,
                                                   double slack_us, size_t favourite, uint32_t most,
                                                   struct muster_priced *ret_list,
                                                   uint32_t *ret_count);

#endif
