/* CPU kernels: element-wise reductions for each type, chosen for the processor at run time. */
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_H
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_H

#include "collectives/collective.h"

/* target[i] = left[i] op right[i] for i in [0, count). target may be left or right (the very same
 * address), or not overlap them at all. Any alignment of the element type is fine. */
typedef void (*muster_reduce_function)(void *target, const void *left, const void *right,
                                       size_t count);

/* The kernel of a pair that muster_op_check() has passed. AVERAGE reduces like SUM. */
muster_reduce_function muster_reduce_kernel(muster_type type, muster_op op);

/* The last touch of AVERAGE: data[i] /= ranks; integers are truncated toward zero. */
void muster_reduce_divide(void *data, size_t count, muster_type type, uint32_t ranks);

#endif
