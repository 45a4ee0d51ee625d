/* Algorithms that somebody forces, instead of those with the lowest predicted time: "ring" for all
 * collectives that have one of this name, or "allreduce=ring,broadcast=binomial". Pure. */
#ifndef MUSTER_COLLECTIVES_SELECT_ALGORITHM_OVERRIDE_H
#define MUSTER_COLLECTIVES_SELECT_ALGORITHM_OVERRIDE_H

#include "collectives/algorithms/algorithm.h"

struct muster_algorithm_override {
    uint32_t plus_one[MUSTER_COLLECTIVE_END]; /* 1 + the algorithm's number; 0: by cost */
};

/* Later words count more than earlier ones. MUSTER_INVALID: a name that is not there; the text
 * lists those that are. */
MUSTER_CHECKED muster_status
muster_algorithm_override_parse(const char *text, struct muster_algorithm_override *ret_forced);

/* True if an algorithm is forced for this plan's collective, and fits. */
bool muster_algorithm_override_find(const struct muster_algorithm_override *forced,
                                    const struct muster_plan *plan, size_t *ret_algorithm);

#endif
