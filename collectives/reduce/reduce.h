/* Reductions on the CPU, element by element: kernels for each type, chosen for the processor at run
 * time; factors, averages, and many inputs. */
#ifndef MUSTER_COLLECTIVES_REDUCE_REDUCE_H
#define MUSTER_COLLECTIVES_REDUCE_REDUCE_H

#include "collectives/call/collective.h"
#include "collectives/call/reduction.h"

/* target[i] = left[i] op right[i] for i in [0, count). The target may be left or right (the very
 * same address), or must not overlap them. Any alignment of the element type is allowed. */
typedef void (*muster_reduce_function)(void *target, const void *left, const void *right,
                                       size_t count);

/* The kernel of a type and an operation other than USER that have passed muster_op_check(). AVERAGE
 * reduces like SUM. */
muster_reduce_function muster_reduce_kernel(muster_type type, muster_op op);

/* target[i] = left[i] op right[i], with the rules of a kernel. */
void muster_reduction_combine(const struct muster_reduction *reduction, void *target,
                              const void *left, const void *right, size_t count);

/* target[i] = inputs[0][i] x prescale op inputs[1][i] x prescale op ..., from the first input to
 * the last. The target may be inputs[0], or must not overlap the inputs. 16-bit floats are scaled
 * and reduced as float32, and rounded once. */
void muster_reduction_gather(const struct muster_reduction *reduction, void *target,
                             const void *const *inputs, size_t input_count, size_t count);

/* identity.c: target[i] = what changes nothing when it is reduced with another element. `finite`:
 * of MIN and MAX of floats the largest finite magnitude in place of infinity. Not for USER. */
void muster_reduction_fill_identity(muster_type type, muster_op op, bool finite, void *target,
                                    size_t count);

/* True if muster_reduction_finish() would change anything. */
bool muster_reduction_has_finish(const struct muster_reduction *reduction, uint64_t inputs);

/* True if values that were never reduced may be true without being 1: then the last stage is
 * LOGICAL_OR with themselves. */
bool muster_reduction_is_raw_truth(const struct muster_reduction *reduction, uint64_t inputs);

/* The last stage, in place: divides the sum of so many inputs to get their average, applies
 * postscale, and sets values that are true to 1 if they were never reduced. 16-bit floats are
 * rounded once. */
void muster_reduction_finish(const struct muster_reduction *reduction, void *data, size_t count,
                             uint64_t inputs);

#endif
