/*
 * 16-bit floats to float32 and back, without branches, so that loops over them become vectors.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, and goes to infinity beyond the
 * largest number; denormals are kept. Every NaN narrows to the one quiet NaN with a clear sign.
 *
 * Also compiled for GPUs, without a C library.
 */
#ifndef MUSTER_COLLECTIVES_CALL_FLOATS16_H
#define MUSTER_COLLECTIVES_CALL_FLOATS16_H

#include <stdint.h>

static inline uint32_t muster_float_bits(float value)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float muster_float_from_bits(uint32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/* binary16: 1 sign, 5 exponent (bias 15) and 10 fraction bits. */
static inline float muster_float16_widen(uint16_t half)
{
    const uint32_t rebias = (uint32_t)(127 - 15) << 23;
    uint32_t magnitude = half & 0x7fffU;
    uint32_t normal = (magnitude << 13) + rebias;
    uint32_t special = normal + rebias; /* infinite or NaN: the exponent becomes all ones */
    uint32_t denormal = muster_float_bits((float)(int32_t)magnitude * 0x1p-24F);
    uint32_t bits = magnitude < 0x0400U ? denormal : magnitude < 0x7c00U ? normal : special;
    return muster_float_from_bits(bits | (uint32_t)(half & 0x8000U) << 16);
}

static inline uint16_t muster_float16_narrow(float value)
{
    uint32_t bits = muster_float_bits(value);
    uint32_t magnitude = bits & 0x7fffffffU;
    /* Beside 0.5 the last bit of a float32 weighs as much as that of a denormal binary16. */
    uint32_t denormal =
        muster_float_bits(muster_float_from_bits(magnitude) + 0.5F) - muster_float_bits(0.5F);
    uint32_t odd = (magnitude >> 13) & 1U;
    uint32_t normal = (magnitude - ((uint32_t)(127 - 15) << 23) + 0xfffU + odd) >> 13;
    uint32_t half = magnitude < 0x38800000U ? denormal : magnitude < 0x47800000U ? normal : 0x7c00U;
    half |= (bits & 0x80000000U) >> 16;
    return (uint16_t)(magnitude > 0x7f800000U ? 0x7e00U : half);
}

static inline float muster_bfloat16_widen(uint16_t half)
{
    return muster_float_from_bits((uint32_t)half << 16);
}

static inline uint16_t muster_bfloat16_narrow(float value)
{
    uint32_t bits = muster_float_bits(value);
    uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return (uint16_t)((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}

#endif
