/*
 * The algorithm override: algorithms that the user names, to be used in place of those with the
 * lowest predicted time. "ring" is for every collective that has an algorithm of this name;
 * "allreduce=ring,broadcast=binomial" names one for each collective. Pure.
 */
#ifndef MUSTER_COLLECTIVES_SELECT_ALGORITHM_OVERRIDE_H
#define MUSTER_COLLECTIVES_SELECT_ALGORITHM_OVERRIDE_H

#include "collectives/algorithms/algorithm.h"

struct muster_algorithm_override {
    struct {
        bool is_set;        /* false: the algorithm is selected by predicted time */
        uint32_t algorithm; /* its number */
    } by_collective[MUSTER_COLLECTIVE_END];
};

/* A later entry replaces an earlier one. MUSTER_INVALID: an unknown name; the text lists the known
 * ones. */
MUSTER_CHECKED muster_status
muster_algorithm_override_parse(const char *text, struct muster_algorithm_override *ret_override);

/* True if an algorithm is set for this plan's collective, and fits the plan. */
bool muster_algorithm_override_find(const struct muster_algorithm_override *override,
                                    const struct muster_plan *plan, size_t *ret_algorithm);

#endif
