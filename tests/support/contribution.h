/*
 * The inputs of a reduction, and its result, bit for bit, when it is reduced in the order of the
 * members' contribution numbers. Written from the documentation only, not from the library's code.
 */
#ifndef MUSTER_TESTS_SUPPORT_CONTRIBUTION_H
#define MUSTER_TESTS_SUPPORT_CONTRIBUTION_H

#include "worker/context/context.h"

/* One reduction, whatever the ranks and hosts of its members. The type is a float. */
struct contributions {
    uint64_t seed;
    muster_type type;
    muster_op op; /* SUM to MAX */
    uint32_t contributors, buffers;
    uint64_t count; /* elements of each buffer */
    double prescale, postscale;
};

/* The input: numbers of close magnitudes, so that the order of additions matters; some are NaNs of
 * any payload, infinities, zeros of both signs, denormals. */
void contribution_fill(const struct contributions *all, uint32_t contributor, uint32_t buffer,
                       void *ret_data);

/* The expected results [count]. */
void contributions_reduce(const struct contributions *all, void *ret_results);

#endif
