/*
 * What the contributors of a reduction bring, and what must come of it if it is reduced in the
 * order of contributors, bit for bit: written from the documentation, without a look at the
 * library.
 */
#ifndef MUSTER_TESTS_SUPPORT_CONTRIBUTION_H
#define MUSTER_TESTS_SUPPORT_CONTRIBUTION_H

#include "worker/context/context.h"

/* One reduction, apart from who takes part where. The type is one of floats. */
struct contributions {
    uint64_t seed;
    muster_type type;
    muster_op op; /* SUM to MAX */
    uint32_t contributors, buffers;
    uint64_t count; /* elements of each buffer */
    double prescale, postscale;
};

/* Numbers of close magnitudes, so that the order of additions shows; some are NaNs of any payload,
 * infinities, zeros of both signs, denormals. */
void contribution_fill(const struct contributions *all, uint32_t contributor, uint32_t buffer,
                       void *ret_data);

/* [count] results. */
void contributions_reduce(const struct contributions *all, void *ret_results);

#endif
