/* Elements of every type as the kernels must compute them. Written independently of the kernels. */
#ifndef MUSTER_TESTS_SUPPORT_ELEMENTS_H
#define MUSTER_TESTS_SUPPORT_ELEMENTS_H

#include "collectives/call/collective.h"

/* Random elements. A quarter of them are special: zeros of both signs, denormals, infinities, NaNs,
 * the ends of the range. */
void elements_fill(muster_type type, void *data, size_t count, uint64_t *random);

/* target[i] = left[i] op right[i], bit for bit; target may be left or right. */
void elements_reduce(muster_type type, muster_op op, void *target, const void *left,
                     const void *right, size_t count);

/* The float16 or bfloat16 nearest to a value, ties to even. */
uint16_t elements_nearest16(muster_type type, double value);

/* The value of a float16 or bfloat16. */
double elements_value16(muster_type type, uint16_t bits);

#endif
