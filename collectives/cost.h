/* Predicted time of schedules. Private to selection and the tests. */
#ifndef MUSTER_COLLECTIVES_COST_H
#define MUSTER_COLLECTIVES_COST_H

#include "collectives/select.h"

/* Jobs up to this size are predicted by walking through all ranks' schedules. */
enum { MUSTER_COST_WALK_RANKS_MAX = 32 };

/* By a walk through the schedules of all ranks. The plan must pass muster_plan_check(). */
MUSTER_CHECKED muster_status muster_cost_walk_us(size_t algorithm, const struct muster_plan *plan,
                                                 size_t element_size_bytes,
                                                 const struct muster_cost_model *model,
                                                 double *ret_us);

/* By the algorithm's formula. */
double muster_cost_formula_us(size_t algorithm, const struct muster_plan *plan,
                              size_t element_size_bytes, const struct muster_cost_model *model);

/* Bytes at this rate take so long; 1 GB/s is 1000 bytes in a microsecond. */
double muster_cost_bytes_us(uint64_t elements, size_t element_size_bytes, double rate_GBps);

#endif
