/*
 * The loops of the kernels. Each file that includes this one is compiled for another instruction
 * set and defines one table. MUSTER_KERNELS is the table's name, and MUSTER_LANES is the number of
 * float32 in a vector of that instruction set, for vectors16.h.
 *
 * Integers wrap around. For floats the result has the same bits for either order of the operands: a
 * NaN in either operand gives the quiet NaN with a clear sign; the minimum of -0 and +0 is -0, the
 * maximum is +0. So two ranks that each reduce the other's data with their own get equal results.
 */
#if defined(__NVPTX__) || defined(MUSTER_GPU_PRETENDED)
#define MUSTER_GPU_KERNELS
#endif

#include <stddef.h>
#include <stdint.h>

#include "collectives/call/floats16.h"

#ifdef MUSTER_GPU_KERNELS
#include "collectives/reduce/kernels_gpu.h"
#define KERNEL GPU_KERNEL
#define SCALE_KERNEL GPU_SCALE_KERNEL
#define DIVIDE_KERNEL GPU_DIVIDE_KERNEL
#else
#include <math.h>
#include <string.h>

#include "collectives/reduce/rows.h"
#include "collectives/reduce/tables.h"

/* The target may be the left or the right operand, so no pointer is `restrict`. But no element
 * depends on another one, which the compiler cannot know. */
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

/* target[i] = expression of value = source[i] and factor. */
#define SCALE_KERNEL(name, type, factor_type, expression)                               \
    static void name##_scale(void *target, const void *source, size_t count, double by) \
    {                                                                                   \
        __typeof__(type) *out = target;                                                 \
        const type *values = source;                                                    \
        const factor_type factor = (factor_type)by;                                     \
        INDEPENDENT                                                                     \
        for (size_t i = 0; i < count; i++) {                                            \
            type value = values[i];                                                     \
            out[i] = (expression);                                                      \
        }                                                                               \
    }

/* target[i] = expression of value = source[i] and divisor. */
#define DIVIDE_KERNEL(name, type, divisor_type, expression)                                \
    static void name##_divide(void *target, const void *source, size_t count, uint64_t by) \
    {                                                                                      \
        __typeof__(type) *out = target;                                                    \
        const type *values = source;                                                       \
        const divisor_type divisor = (divisor_type)by;                                     \
        INDEPENDENT                                                                        \
        for (size_t i = 0; i < count; i++) {                                               \
            type value = values[i];                                                        \
            out[i] = (expression);                                                         \
        }                                                                                  \
    }

#endif

/* Floats ------------------------------------------------------------------------------------- */

/* Positive floats are ordered like the integers with the same bits, negative ones in the opposite
 * order; -0 comes before +0. A float's rank is an integer in this order; the rank of a rank is the
 * float again. (Shifting the sign instead of masking it: clang 14 takes a wrong bit field of a
 * masked one on a GPU.) */
#define ORDER_KERNELS(name, bits_type, signed_type, infinity, not_a_number)                   \
    static inline signed_type name##_rank(signed_type bits)                                   \
    {                                                                                         \
        const bits_type sign = (bits_type)(0 - ((bits_type)bits >> (8 * sizeof bits - 1)));   \
        return (signed_type)((bits_type)bits ^ (bits_type)(sign >> 1));                       \
    }                                                                                         \
    static inline signed_type name##_or_nan(signed_type a, signed_type b, signed_type picked) \
    {                                                                                         \
        const signed_type all = (signed_type)((bits_type)-1 >> 1);                            \
        const signed_type limit = (infinity);                                                 \
        const signed_type first = (signed_type)(a & all);                                     \
        const signed_type second = (signed_type)(b & all);                                    \
        const signed_type larger = first > second ? first : second;                           \
        return larger > limit ? (signed_type)(not_a_number) : name##_rank(picked);            \
    }                                                                                         \
    static inline signed_type name##_lesser(signed_type a, signed_type b)                     \
    {                                                                                         \
        return a < b ? a : b;                                                                 \
    }                                                                                         \
    static inline signed_type name##_greater(signed_type a, signed_type b)                    \
    {                                                                                         \
        return a > b ? a : b;                                                                 \
    }                                                                                         \
    KERNEL(name##_min, signed_type,                                                           \
           name##_or_nan(a, b, name##_lesser(name##_rank(a), name##_rank(b))))                \
    KERNEL(name##_max, signed_type,                                                           \
           name##_or_nan(a, b, name##_greater(name##_rank(a), name##_rank(b))))

#define FLOAT_KERNELS(name, type)                               \
    static inline type name##_quiet(type value)                 \
    {                                                           \
        return value != value ? (type)NAN : value;              \
    }                                                           \
    KERNEL(name##_sum, type, name##_quiet(a + b))               \
    KERNEL(name##_prod, type, name##_quiet(a *b))               \
    SCALE_KERNEL(name, type, type, name##_quiet(value *factor)) \
    DIVIDE_KERNEL(name, type, type, name##_quiet(value / divisor))

FLOAT_KERNELS(float32, float)
FLOAT_KERNELS(float64, double)
ORDER_KERNELS(float32, uint32_t, int32_t, 0x7f800000, 0x7fc00000)
ORDER_KERNELS(float64, uint64_t, int64_t, 0x7ff0000000000000, 0x7ff8000000000000)
ORDER_KERNELS(float16, uint16_t, int16_t, 0x7c00, 0x7e00)
ORDER_KERNELS(bfloat16, uint16_t, int16_t, 0x7f80, 0x7fc0)

#ifdef MUSTER_GPU_KERNELS
SHORT_FLOAT_KERNELS(float16)
SHORT_FLOAT_KERNELS(bfloat16)
#else
#include "collectives/reduce/packs.h"
#include "collectives/reduce/vectors16.h"
#endif

/* Integers ----------------------------------------------------------------------------------- */

#define LOGICAL_KERNELS(name, type)                               \
    KERNEL(name##_logical_and, type, (type)((a != 0) & (b != 0))) \
    KERNEL(name##_logical_or, type, (type)((a | b) != 0))

/* 1U: types narrower than int would be promoted to int, and could overflow. */
#define INTEGER_KERNELS(name, type, unsigned_type)                    \
    KERNEL(name##_sum, unsigned_type, (unsigned_type)(a + b))         \
    KERNEL(name##_prod, unsigned_type, (unsigned_type)(1U * a * b))   \
    KERNEL(name##_min, type, a < b ? a : b)                           \
    KERNEL(name##_max, type, a > b ? a : b)                           \
    KERNEL(name##_bitwise_and, unsigned_type, (unsigned_type)(a & b)) \
    KERNEL(name##_bitwise_or, unsigned_type, (unsigned_type)(a | b))  \
    KERNEL(name##_bitwise_xor, unsigned_type, (unsigned_type)(a ^ b)) \
    LOGICAL_KERNELS(name, unsigned_type)

/* Results are truncated toward zero, and limited to the range of the type. A quotient of the
 * quotient type is exact if it is an integer, and else precise enough to be truncated correctly: it
 * differs from the next integer by more than one part in the type's largest value. */
#define SMALL_INTEGER_KERNELS(name, type, unsigned_type, least, most, quotient_type) \
    INTEGER_KERNELS(name, type, unsigned_type)                                       \
    static inline type name##_of(double value)                                       \
    {                                                                                \
        value = value > (double)(most) ? (double)(most) : value;                     \
        return (type)(value < (double)(least) ? (double)(least) : value);            \
    }                                                                                \
    SCALE_KERNEL(name, type, double, name##_of((double)value *factor))               \
    DIVIDE_KERNEL(name, type, quotient_type, (type)((quotient_type)value / divisor))

/* A double does not hold all 64-bit values: above 2^53 scaling uses the nearest double. `beyond` is
 * one more than the type's largest value. */
#define LARGE_INTEGER_KERNELS(name, type, unsigned_type, least, most, beyond)                 \
    INTEGER_KERNELS(name, type, unsigned_type)                                                \
    static inline type name##_of(double value)                                                \
    {                                                                                         \
        return value >= (beyond) ? (most) : value <= (double)(least) ? (least) : (type)value; \
    }                                                                                         \
    SCALE_KERNEL(name, type, double, name##_of((double)value *factor))                        \
    DIVIDE_KERNEL(name, type, type, (type)(value / divisor))

SMALL_INTEGER_KERNELS(int8, int8_t, uint8_t, INT8_MIN, INT8_MAX, float)
SMALL_INTEGER_KERNELS(uint8, uint8_t, uint8_t, 0, UINT8_MAX, float)
SMALL_INTEGER_KERNELS(int16, int16_t, uint16_t, INT16_MIN, INT16_MAX, float)
SMALL_INTEGER_KERNELS(uint16, uint16_t, uint16_t, 0, UINT16_MAX, float)
SMALL_INTEGER_KERNELS(int32, int32_t, uint32_t, INT32_MIN, INT32_MAX, double)
SMALL_INTEGER_KERNELS(uint32, uint32_t, uint32_t, 0, UINT32_MAX, double)
LARGE_INTEGER_KERNELS(int64, int64_t, uint64_t, INT64_MIN, INT64_MAX, 0x1p63)
LARGE_INTEGER_KERNELS(uint64, uint64_t, uint64_t, 0, UINT64_MAX, 0x1p64)
LOGICAL_KERNELS(bool, uint8_t)
KERNEL(bool_logical_xor, uint8_t, (uint8_t)((a != 0) ^ (b != 0)))

/* The table ---------------------------------------------------------------------------------- */

#ifdef MUSTER_GPU_KERNELS
FINISH_KERNEL(float32, float)
FINISH_KERNEL(float64, double)
FINISH_KERNEL(int32, int32_t)
FINISH_KERNEL(int64, int64_t)
FINISH_KERNEL(uint8, uint8_t)
FINISH_KERNEL(int8, int8_t)
FINISH_KERNEL(int16, int16_t)
FINISH_KERNEL(uint16, uint16_t)
FINISH_KERNEL(uint32, uint32_t)
FINISH_KERNEL(uint64, uint64_t)
#else
#define ENTRY(kernel) kernel
const struct muster_kernels MUSTER_KERNELS = {
    .reduce = REDUCE_ROWS(ENTRY),
    .scale = {float32_scale, float64_scale, int32_scale, int64_scale, uint8_scale, int8_scale,
              int16_scale, uint16_scale, uint32_scale, uint64_scale, NULL, NULL, NULL},
    .divide = {float32_divide, float64_divide, int32_divide, int64_divide, uint8_divide,
               int8_divide, int16_divide, uint16_divide, uint32_divide, uint64_divide, NULL, NULL,
               NULL},
    .widen_float16 = float16_widen,
    .widen_bfloat16 = bfloat16_widen,
    .narrow_float16 = float16_narrow,
    .narrow_bfloat16 = bfloat16_narrow,
    .pack_int8 = int8_pack,
    .unpack_int8 = int8_unpack,
};
#endif
