/* CPU kernels: element-wise reductions for each type, chosen for the processor at run time. */
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_H
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_H

#include "collectives/call/collective.h"
#include "collectives/call/reduction.h"

/* target[i] = left[i] op right[i] for i in [0, count). target may be left or right (the very same
 * address), or not overlap them at all. Any alignment of the element type is fine. */
typedef void (*muster_reduce_function)(void *target, const void *left, const void *right,
                                       size_t count);

/* The kernel of a pair that muster_op_check() has passed, other than USER. AVERAGE reduces like
 * SUM. */
muster_reduce_function muster_reduce_kernel(muster_type type, muster_op op);

/* target[i] = left[i] op right[i], as a kernel does it. */
void muster_reduction_combine(const struct muster_reduction *reduction, void *target,
                              const void *left, const void *right, size_t count);

/* target[i] = inputs[0][i] x prescale op inputs[1][i] x prescale op ..., from the first to the
 * last. target may be inputs[0], or not overlap the inputs. 16-bit floats are scaled and added or
 * multiplied up in float32, and rounded once. */
void muster_reduction_gather(const struct muster_reduction *reduction, void *target,
                             const void *const *inputs, size_t input_count, size_t count);

/* True if muster_reduction_finish() would change anything. */
bool muster_reduction_has_finish(const struct muster_reduction *reduction, uint64_t inputs);

/* The last touch, in place: the sum of so many inputs becomes their average, then comes postscale,
 * and what is true becomes 1 if nothing was there to reduce it with. 16-bit floats are rounded
 * once. */
void muster_reduction_finish(const struct muster_reduction *reduction, void *data, size_t count,
                             uint64_t inputs);

#endif
