/*
 * Selection: the algorithm with the lowest predicted time. Pure. Every rank has the same inputs
 * (the link figures are agreed at join), so every rank selects the same algorithm. There are no
 * fixed size thresholds.
 *
 * In small jobs the simulator predicts. The algorithm with the lowest estimate is simulated first;
 * another one is simulated only if its lower bound says that it can be faster, and only until it
 * has taken as long. Larger jobs use the estimates alone: those of the algorithms' formulas.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_SELECT_H
#define MUSTER_COLLECTIVES_SELECT_SELECT_H

#include "collectives/select/cost.h"

/* Jobs up to this size are simulated while a call waits; for larger ones the formulas are used. */
enum { MUSTER_SELECT_SIMULATED_RANKS_MAX = 32 };

/* Predicted time of one algorithm for this plan (its rank is ignored). */
MUSTER_CHECKED muster_status muster_select_cost_us(size_t algorithm, const struct muster_plan *plan,
                                                   size_t element_size_bytes,
                                                   const struct muster_cost_model *model,
                                                   double *ret_us);

/* True if the algorithm is a candidate for this plan: it fits, and if it is a host_memory
 * algorithm, the ranks share memory and it has room for the call. */
bool muster_select_considers(size_t algorithm, const struct muster_plan *plan,
                             size_t element_size_bytes, const struct muster_cost_model *model);

/* The candidate with the lowest predicted time. MUSTER_INVALID: there is no candidate. */
MUSTER_CHECKED muster_status muster_select(const struct muster_plan *plan,
                                           size_t element_size_bytes,
                                           const struct muster_cost_model *model,
                                           size_t *ret_algorithm);

/* An algorithm and its predicted time. */
struct muster_prediction {
    size_t algorithm;
    double us;
};

/* Lists the candidates with the lowest predicted times, the fastest first, `most` at most: those
 * that are at most a quarter slower than the fastest, or slower by at most slack_us. Some
 * algorithms do the same for a small number of ranks: then one of them is listed, the favourite if
 * it is among them. In jobs of more than MUSTER_SELECT_LISTED_RANKS_MAX ranks the formulas predict,
 * which take no time to evaluate. The plan's rank is ignored. */
enum { MUSTER_SELECT_LISTED_RANKS_MAX = 16 };
MUSTER_CHECKED muster_status muster_select_several(const struct muster_plan *plan,
                                                   size_t element_size_bytes,
                                                   const struct muster_cost_model *model,
                                                   double slack_us, size_t favourite, uint32_t most,
                                                   struct muster_prediction *ret_list,
                                                   uint32_t *ret_count);

#endif
