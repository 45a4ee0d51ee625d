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
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "collectives/reduce/floats16.h"
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

/* Computed in float32, and rounded once: both sums and products of two 16-bit floats are then the
 * nearest there are. */
#define FLOAT16_KERNELS(name)                                                    \
    static inline uint16_t name##_lesser(uint16_t a, uint16_t b)                 \
    {                                                                            \
        return narrow(name, float32_lesser(widen(name, a), widen(name, b)));     \
    }                                                                            \
    static inline uint16_t name##_greater(uint16_t a, uint16_t b)                \
    {                                                                            \
        return narrow(name, -float32_lesser(-widen(name, a), -widen(name, b)));  \
    }                                                                            \
    KERNEL(name##_sum, uint16_t, narrow(name, widen(name, a) + widen(name, b)))  \
    KERNEL(name##_prod, uint16_t, narrow(name, widen(name, a) * widen(name, b))) \
    KERNEL(name##_min, uint16_t, name##_lesser(a, b))                            \
    KERNEL(name##_max, uint16_t, name##_greater(a, b))
#define widen(name, value) muster_##name##_widen(value)
#define narrow(name, value) muster_##name##_narrow(value)

#define LOGICAL_KERNELS(name, type)                               \
    KERNEL(name##_logical_and, type, (type)((a != 0) & (b != 0))) \
    KERNEL(name##_logical_or, type, (type)((a | b) != 0))

#define INTEGER_KERNELS(name, type, unsigned_type)            \
    KERNEL(name##_sum, unsigned_type, (unsigned_type)(a + b)) \
    KERNEL(name##_min, type, a < b ? a : b)                   \
    KERNEL(name##_max, type, a > b ? a : b)                   \
    KERNEL(name##_bitwise_and, unsigned_type, a &b)           \
    KERNEL(name##_bitwise_or, unsigned_type, a | b)           \
    KERNEL(name##_bitwise_xor, unsigned_type, a ^ b)          \
    LOGICAL_KERNELS(name, unsigned_type)

/* 1U: what is narrower than int would be promoted to int, and overflow there. */
#define PROD_KERNEL(name, unsigned_type) \
    KERNEL(name##_prod, unsigned_type, (unsigned_type)(1U * a * b))

FLOAT_KERNELS(float32, float, uint32_t)
FLOAT_KERNELS(float64, double, uint64_t)
FLOAT16_KERNELS(float16)
FLOAT16_KERNELS(bfloat16)
#define BOTH_SIGNS(bits)                                        \
    INTEGER_KERNELS(int##bits, int##bits##_t, uint##bits##_t)   \
    INTEGER_KERNELS(uint##bits, uint##bits##_t, uint##bits##_t) \
    PROD_KERNEL(int##bits, uint##bits##_t)                      \
    PROD_KERNEL(uint##bits, uint##bits##_t)
BOTH_SIGNS(8)
BOTH_SIGNS(16)
BOTH_SIGNS(32)
BOTH_SIGNS(64)
LOGICAL_KERNELS(bool, uint8_t)
KERNEL(bool_logical_xor, uint8_t, (uint8_t)((a != 0) ^ (b != 0)))

#define NUMBER_ROW(name) name##_sum, name##_sum, name##_prod, name##_min, name##_max
#define FLOAT_ROW(name)                                \
    {                                                  \
        NUMBER_ROW(name), NULL, NULL, NULL, NULL, NULL \
    }
#define INTEGER_ROW(name)                                                            \
    {                                                                                \
        NUMBER_ROW(name), name##_bitwise_and, name##_bitwise_or, name##_bitwise_xor, \
            name##_logical_and, name##_logical_or                                    \
    }
/* Of two truths the lesser is AND, the greater is OR. */
#define BOOL_ROW                                                                                \
    {                                                                                           \
        NULL, NULL, NULL, bool_logical_and, bool_logical_or, bool_logical_and, bool_logical_or, \
            bool_logical_xor, bool_logical_and, bool_logical_or                                 \
    }

const muster_reduce_function MUSTER_KERNELS[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT] = {
    FLOAT_ROW(float32),
    FLOAT_ROW(float64),
    INTEGER_ROW(int32),
    INTEGER_ROW(int64),
    INTEGER_ROW(uint8),
    INTEGER_ROW(int8),
    INTEGER_ROW(int16),
    INTEGER_ROW(uint16),
    INTEGER_ROW(uint32),
    INTEGER_ROW(uint64),
    FLOAT_ROW(float16),
    FLOAT_ROW(bfloat16),
    BOOL_ROW};
