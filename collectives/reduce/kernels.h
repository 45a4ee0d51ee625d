/*
 * The kernels' loops. Each file that includes this is compiled for another instruction set and
 * gives one table; MUSTER_KERNELS is the table's name.
 *
 * Integers wrap around. For floats, whatever the order of the operands the result has the same
 * bits: a NaN on either side gives the one quiet NaN with a clear sign; the smaller of -0 and +0 is
 * -0, the larger is +0. That is what lets two ranks that each reduce the other's data into their
 * own end up equal.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "collectives/reduce/tables.h"

/* target may be left or right itself, so no pointer is `restrict`; but elements never depend on
 * other elements, which the compiler cannot know. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define KERNEL(name, type, expression)                                                \
    static void name(void *target, const void *left, const void *right, size_t count) \
    {                                                                                 \
        __typeof__(type) *out = target;                                               \
        const type *as = left;                                                        \
        const type *bs = right;                                                       \
        INDEPENDENT                                                                   \
        for (size_t i = 0; i < count; i++) {                                          \
            type a = as[i];                                                           \
            type b = bs[i];                                                           \
            out[i] = (expression);                                                    \
        }                                                                             \
    }

#define FLOAT_KERNELS(name, type, bits_type)                                       \
    static inline type name##_quiet(type value)                                    \
    {                                                                              \
        return value != value ? (type)NAN : value;                                 \
    }                                                                              \
    static inline type name##_or(type a, type b)                                   \
    {                                                                              \
        bits_type x;                                                               \
        bits_type y;                                                               \
        memcpy(&x, &a, sizeof x);                                                  \
        memcpy(&y, &b, sizeof y);                                                  \
        x |= y;                                                                    \
        memcpy(&a, &x, sizeof a);                                                  \
        return a;                                                                  \
    }                                                                              \
    static inline type name##_lesser(type a, type b)                               \
    {                                                                              \
        /* Equal or unordered: the OR is -0 if either is, and NaN if either is. */ \
        return name##_quiet(a < b ? a : b < a ? b : name##_or(a, b));              \
    }                                                                              \
    KERNEL(name##_sum, type, name##_quiet(a + b))                                  \
    KERNEL(name##_prod, type, name##_quiet(a *b))                                  \
    KERNEL(name##_min, type, name##_lesser(a, b))                                  \
    KERNEL(name##_max, type, name##_quiet(-name##_lesser(-a, -b)))

#define INTEGER_KERNELS(name, type, unsigned_type)             \
    KERNEL(name##_sum, unsigned_type, (unsigned_type)(a + b))  \
    KERNEL(name##_prod, unsigned_type, (unsigned_type)(a * b)) \
    KERNEL(name##_min, type, a < b ? a : b)                    \
    KERNEL(name##_max, type, a > b ? a : b)

FLOAT_KERNELS(float32, float, uint32_t)
FLOAT_KERNELS(float64, double, uint64_t)
INTEGER_KERNELS(int32, int32_t, uint32_t)
INTEGER_KERNELS(int64, int64_t, uint64_t)
INTEGER_KERNELS(uint8, uint8_t, uint8_t)

#define ROW(name)                                                   \
    {                                                               \
        name##_sum, name##_sum, name##_prod, name##_min, name##_max \
    }

const muster_reduce_function MUSTER_KERNELS[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT] = {
    ROW(float32), ROW(float64), ROW(int32), ROW(int64), ROW(uint8)};
