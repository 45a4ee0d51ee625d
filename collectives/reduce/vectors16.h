/*
 * Kernels for 16-bit floats with whole vectors: values are widened to float32, computed, rounded
 * once and narrowed. Included by kernels.h. A unit is what is handled at a time: 2 x MUSTER_LANES
 * elements, which are two vectors of float32. float16 is converted by the instructions of F16C,
 * AVX-512 or NEON where the processor has them, else by arithmetic on the bits; the results are
 * those of floats16.h.
 *
 * Results have only one kind of NaN, and ensuring this takes time. So several units are first
 * computed without it (careful = false); if a result needs care, they are computed again. Nothing
 * is stored until then, because the target may be one of the operands.
 */
#ifdef __aarch64__
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float floats __attribute__((vector_size(4 * MUSTER_LANES)));
typedef uint32_t words __attribute__((vector_size(4 * MUSTER_LANES)));
typedef int32_t integers __attribute__((vector_size(4 * MUSTER_LANES)));
typedef uint16_t halves __attribute__((vector_size(4 * MUSTER_LANES)));
typedef int16_t shorts __attribute__((vector_size(4 * MUSTER_LANES)));

enum {
    UNIT = 2 * MUSTER_LANES,
    UNITS = 4, /* computed before any is stored */
};

/* NaNs ---------------------------------------------------------------------------------------- */

static inline floats quiet(floats values)
{
#if MUSTER_LANES == 16
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)values, (__m512)values, _CMP_UNORD_Q);
    return (floats)_mm512_mask_mov_ps((__m512)values, is_nan, _mm512_set1_ps(NAN));
#else
    words nan = (words)(values != values); /* NOLINT(misc-redundant-expression): NaN */
    return (floats)(((words)values & ~nan) | (nan & 0x7fc00000U));
#endif
}

/* True if all bits of all lanes are set. */
static inline bool is_full(words lanes)
{
#if MUSTER_LANES == 16
    return _mm512_movepi32_mask((__m512i)lanes) == 0xffff;
#elif MUSTER_LANES == 8
    return _mm256_movemask_ps((__m256)lanes) == 0xff;
#elif defined(__x86_64__)
    return _mm_movemask_ps((__m128)lanes) == 0xf;
#elif defined(__aarch64__)
    return vminvq_u32((uint32x4_t)lanes) != 0;
#else
    return (lanes[0] & lanes[1] & lanes[2] & lanes[3]) != 0;
#endif
}

static inline bool are_numbers(const floats *values, size_t count)
{
#if MUSTER_LANES == 16
    __mmask16 numbers = 0xffff;
    for (size_t i = 0; i < count; i += 2) {
        numbers =
            _mm512_mask_cmp_ps_mask(numbers, (__m512)values[i], (__m512)values[i + 1], _CMP_ORD_Q);
    }
    return numbers == 0xffff;
#elif MUSTER_LANES == 8
    words numbers = (words)_mm256_cmp_ps((__m256)values[0], (__m256)values[1], _CMP_ORD_Q);
    for (size_t i = 2; i < count; i += 2) {
        numbers &= (words)_mm256_cmp_ps((__m256)values[i], (__m256)values[i + 1], _CMP_ORD_Q);
    }
    return is_full(numbers);
#else
    words numbers = ~(words){0};
    for (size_t i = 0; i < count; i++) {
        numbers &= (words)(values[i] == values[i]); /* NOLINT(misc-redundant-expression): NaN */
    }
    return is_full(numbers);
#endif
}

/* bfloat16 ------------------------------------------------------------------------------------ */

/* The two bfloat16 in a 32-bit word are the upper halves of two float32, so that they are separated
 * by a shift and a mask, and nothing moves across lanes. */
static inline void bfloat16_load(floats ret_values[2], const uint16_t *source)
{
    words lanes;
    memcpy(&lanes, source, sizeof lanes);
    ret_values[0] = (floats)(lanes << 16);
    ret_values[1] = (floats)(lanes & 0xffff0000U);
}

static inline bool bfloat16_need_no_care(const floats *values, size_t count)
{
    return are_numbers(values, count);
}

/* Rounds to nearest even: keeps the upper half of each float32, and adds one if the lower half is
 * more than half of the last bit, or exactly half of it and that bit is set. */
static inline void bfloat16_store(uint16_t *target, floats even, floats odd, bool careful)
{
    if (careful) {
        even = quiet(even);
        odd = quiet(odd);
    }
#if MUSTER_LANES == 16
    const __m512i low = (__m512i)even;
    const __m512i high = (__m512i)odd;
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i half = _mm512_set1_epi16(INT16_MIN);
    __m512i kept = _mm512_mask_alignr_epi8(high, 0x3333333333333333, low, low, 2);
    __m512i lost = _mm512_mask_alignr_epi8(low, 0xcccccccccccccccc, high, high, 14);
    __m512i rest = _mm512_ternarylogic_epi32(lost, kept, one, 0xf8); /* lost | (kept & one) */
    __mmask32 up = _mm512_cmpgt_epu16_mask(rest, half);
    halves result = (halves)_mm512_mask_add_epi16(kept, up, kept, one);
#else
    const words low = (words)even;
    const words high = (words)odd;
#if MUSTER_LANES == 8
    halves kept = (halves)_mm256_blend_epi16((__m256i)(low >> 16), (__m256i)high, 0xaa);
    halves lost = (halves)_mm256_blend_epi16((__m256i)low, (__m256i)(high << 16), 0xaa);
#else
    halves kept = (halves)((low >> 16) | (high & 0xffff0000U));
    halves lost = (halves)((low & 0xffffU) | (high << 16));
#endif
    halves rest = lost | (kept & 1);
    /* True above 0x8000: as signed numbers these are negative, and become positive by negation;
     * 0x8000 stays negative. */
    halves result = kept - (halves)((shorts)-rest > 0);
#endif
    memcpy(target, &result, sizeof result);
}

/* float16 ------------------------------------------------------------------------------------- */

#if MUSTER_LANES > 4 || defined(__aarch64__)

static inline void float16_load(floats ret_values[2], const uint16_t *source)
{
    for (size_t i = 0; i < 2; i++) {
        const uint16_t *lanes = source + i * MUSTER_LANES;
#if MUSTER_LANES == 16
        ret_values[i] = (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)lanes));
#elif MUSTER_LANES == 8
        ret_values[i] = (floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)lanes));
#else
        ret_values[i] = (floats)vcvt_f32_f16((float16x4_t)vld1_u16(lanes));
#endif
    }
}

static inline bool float16_need_no_care(const floats *values, size_t count)
{
    return are_numbers(values, count);
}

static inline void float16_store(uint16_t *target, floats first, floats second, bool careful)
{
    const floats values[2] = {careful ? quiet(first) : first, careful ? quiet(second) : second};
    for (size_t i = 0; i < 2; i++) {
        uint16_t *lanes = target + i * MUSTER_LANES;
#if MUSTER_LANES == 16
        __m256i result = _mm512_cvtps_ph((__m512)values[i], _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)lanes, result);
#elif MUSTER_LANES == 8
        __m128i result = _mm256_cvtps_ph((__m256)values[i], _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)lanes, result);
#else
        vst1_u16(lanes, (uint16x4_t)vcvt_f16_f32((float32x4_t)values[i]));
#endif
    }
}

#else

/* Joins halves to words: lanes 0 to 3, or 4 to 7. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WORDS_LOW(upper, lower) \
    ((words)__builtin_shufflevector(lower, upper, 0, 8, 1, 9, 2, 10, 3, 11))
#define WORDS_HIGH(upper, lower) \
    ((words)__builtin_shufflevector(lower, upper, 4, 12, 5, 13, 6, 14, 7, 15))
#else
#define WORDS_LOW(upper, lower) \
    ((words)__builtin_shufflevector(upper, lower, 0, 8, 1, 9, 2, 10, 3, 11))
#define WORDS_HIGH(upper, lower) \
    ((words)__builtin_shufflevector(upper, lower, 4, 12, 5, 13, 6, 14, 7, 15))
#endif

/* A denormal gets the exponent of the smallest normal number, 2^-14, which is then subtracted from
 * it. */
static inline void float16_load(floats ret_values[2], const uint16_t *source)
{
    const uint16_t rebias = (127 - 15) << 7; /* of a float32's upper half */
    const uint16_t smallest = 0x3880;        /* 2^-14 likewise */
    const halves zero = {0};
    halves lanes;
    memcpy(&lanes, source, sizeof lanes);
    halves sign = lanes & 0x8000;
    halves magnitude = lanes ^ sign;
    halves denormal = (halves)((shorts)magnitude < 0x0400);
    halves special = (halves)((shorts)magnitude > 0x7bff); /* the exponent becomes all ones */
    halves upper = (magnitude >> 3) + rebias + (special & rebias) + (denormal & 0x0080);
    halves lower = magnitude << 13;
    halves excess = denormal & smallest;
    floats first = (floats)WORDS_LOW(upper, lower) - (floats)WORDS_LOW(excess, zero);
    floats second = (floats)WORDS_HIGH(upper, lower) - (floats)WORDS_HIGH(excess, zero);
    ret_values[0] = (floats)((words)first | WORDS_LOW(sign, zero));
    ret_values[1] = (floats)((words)second | WORDS_HIGH(sign, zero));
}

enum { BEYOND_FLOAT16 = 0x47800000 }; /* 2^16, as a float32 */

/* Here infinities need care, too. */
static inline bool float16_need_no_care(const floats *values, size_t count)
{
    integers common = ~(integers){0};
    for (size_t i = 0; i < count; i++) {
        common &= (integers)((words)values[i] & 0x7fffffffU) < BEYOND_FLOAT16;
    }
    return is_full((words)common);
}

/* For values without signs. Adding 2^(exponent + 13), at least 2^-1, to a float32 rounds it to the
 * bits that a float16 with this exponent has. The excess of the sum over that power of two is the
 * rounded value, in units of the last of these bits. */
static inline integers float16_round(integers magnitude)
{
    const int32_t smallest = 0x38800000; /* 2^-14 */
    integers exponent = (magnitude & 0x7f800000) - smallest;
    exponent &= exponent > 0;
    integers power = exponent + (126 << 23);
    integers sum = (integers)((floats)magnitude + (floats)power);
    return sum - power + (exponent >> 13);
}

/* Narrows lanes with values from 0 to 2^15 - 1. */
static inline halves join(integers first, integers second)
{
#ifdef __x86_64__
    return (halves)_mm_packs_epi32((__m128i)first, (__m128i)second);
#else
    return __builtin_shufflevector(
        (halves)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? first : first << 16),
        (halves)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? second : second << 16), 0, 2, 4, 6, 8,
        10, 12, 14);
#endif
}

static inline void float16_store(uint16_t *target, floats first, floats second, bool careful)
{
    const integers bits[2] = {(integers)first, (integers)second};
    integers rounded[2];
    integers signs[2];
    for (size_t i = 0; i < 2; i++) {
        integers magnitude = bits[i] & 0x7fffffff;
        integers nan = magnitude > 0x7f800000;
        if (careful) {
            integers beyond = magnitude >= BEYOND_FLOAT16;
            magnitude = (magnitude & ~beyond) | (beyond & BEYOND_FLOAT16);
        }
        rounded[i] = float16_round(magnitude);
        signs[i] = (integers)((words)bits[i] >> 31);
        if (careful) {
            rounded[i] |= nan & 0x0200;
            signs[i] &= ~nan;
        }
    }
    halves result = join(rounded[0], rounded[1]) | (join(signs[0], signs[1]) << 15);
    memcpy(target, &result, sizeof result);
}

#endif

/* Whole arrays -------------------------------------------------------------------------------- */

/* TYPE_NAME_units() computes and stores so many units. False: it was called without `careful`, but
 * a result needs care; then nothing was stored. */
#define UNITS16(type, name, operator)                                                              \
    static inline __attribute__((always_inline)) bool type##_##name##_units(                       \
        uint16_t *target, const uint16_t *left, const uint16_t *right, size_t units, bool careful) \
    {                                                                                              \
        floats results[2 * UNITS];                                                                 \
        for (size_t i = 0; i < units; i++) {                                                       \
            floats a[2];                                                                           \
            floats b[2];                                                                           \
            type##_load(a, left + i * UNIT);                                                       \
            type##_load(b, right + i * UNIT);                                                      \
            results[2 * i] = a[0] operator b[0];                                                   \
            results[2 * i + 1] = a[1] operator b[1];                                               \
        }                                                                                          \
        if (!careful && !type##_need_no_care(results, 2 * units)) {                                \
            return false;                                                                          \
        }                                                                                          \
        for (size_t i = 0; i < units; i++) {                                                       \
            type##_store(target + i * UNIT, results[2 * i], results[2 * i + 1], careful);          \
        }                                                                                          \
        return true;                                                                               \
    }

#define KERNEL16(type, name, operator)                                                         \
    UNITS16(type, name, operator)                                                              \
    static void type##_##name(void *target, const void *left, const void *right, size_t count) \
    {                                                                                          \
        uint16_t *out = target;                                                                \
        const uint16_t *as = left;                                                             \
        const uint16_t *bs = right;                                                            \
        size_t at = 0;                                                                         \
        for (; count - at >= UNITS * UNIT; at += UNITS * UNIT) {                               \
            if (!type##_##name##_units(out + at, as + at, bs + at, UNITS, false)) {            \
                (void)type##_##name##_units(out + at, as + at, bs + at, UNITS, true);          \
            }                                                                                  \
        }                                                                                      \
        for (; count - at >= UNIT; at += UNIT) {                                               \
            (void)type##_##name##_units(out + at, as + at, bs + at, 1, true);                  \
        }                                                                                      \
        if (at < count) {                                                                      \
            uint16_t last[3][UNIT] = {{0}};                                                    \
            memcpy(last[0], as + at, (count - at) * sizeof *as);                               \
            memcpy(last[1], bs + at, (count - at) * sizeof *bs);                               \
            (void)type##_##name##_units(last[2], last[0], last[1], 1, true);                   \
            memcpy(out + at, last[2], (count - at) * sizeof *out);                             \
        }                                                                                      \
    }

#ifdef __AVX512FP16__
/* Computing in float16 gives the same results as rounding to float32 in between, because float32
 * has more than twice the bits of float16 (Figueroa 1995), and denormal results are exact or
 * rounded once. */
#define FLOAT16_KERNEL(name, intrinsic)                                                         \
    static inline void float16_##name##_some(uint16_t *target, const uint16_t *left,            \
                                             const uint16_t *right, __mmask32 some)             \
    {                                                                                           \
        __m512h a = _mm512_castsi512_ph(_mm512_maskz_loadu_epi16(some, left));                  \
        __m512h b = _mm512_castsi512_ph(_mm512_maskz_loadu_epi16(some, right));                 \
        __m512h result = intrinsic(a, b);                                                       \
        __mmask32 is_nan = _mm512_mask_cmp_ph_mask(some, result, result, _CMP_UNORD_Q);         \
        __m512i bits = _mm512_castph_si512(result);                                             \
        bits = _mm512_mask_mov_epi16(bits, is_nan, _mm512_set1_epi16(0x7e00));                  \
        _mm512_mask_storeu_epi16(target, some, bits);                                           \
    }                                                                                           \
    static void float16_##name(void *target, const void *left, const void *right, size_t count) \
    {                                                                                           \
        uint16_t *out = target;                                                                 \
        const uint16_t *as = left;                                                              \
        const uint16_t *bs = right;                                                             \
        size_t at = 0;                                                                          \
        for (; count - at >= UNIT; at += UNIT) {                                                \
            float16_##name##_some(out + at, as + at, bs + at, 0xffffffff);                      \
        }                                                                                       \
        if (at < count) {                                                                       \
            float16_##name##_some(out + at, as + at, bs + at, (1U << (count - at)) - 1);        \
        }                                                                                       \
    }
FLOAT16_KERNEL(sum, _mm512_add_ph)
FLOAT16_KERNEL(prod, _mm512_mul_ph)
#else
KERNEL16(float16, sum, +)
KERNEL16(float16, prod, *)
#endif
KERNEL16(bfloat16, sum, +)
KERNEL16(bfloat16, prod, *)

static void float16_widen(float *target, const uint16_t *source, size_t count)
{
    floats values[2];
    size_t at = 0;
    for (; count - at >= UNIT; at += UNIT) {
        float16_load(values, source + at);
        memcpy(target + at, values, sizeof values);
    }
    if (at < count) {
        uint16_t last[UNIT] = {0};
        memcpy(last, source + at, (count - at) * sizeof *source);
        float16_load(values, last);
        memcpy(target + at, values, (count - at) * sizeof *target);
    }
}

static void float16_narrow(uint16_t *target, const float *source, size_t count)
{
    floats values[2] = {{0}};
    size_t at = 0;
    for (; count - at >= UNIT; at += UNIT) {
        memcpy(values, source + at, sizeof values);
        float16_store(target + at, values[0], values[1], true);
    }
    if (at < count) {
        uint16_t last[UNIT];
        memcpy(values, source + at, (count - at) * sizeof *source);
        float16_store(last, values[0], values[1], true);
        memcpy(target + at, last, (count - at) * sizeof *target);
    }
}

static void bfloat16_widen(float *target, const uint16_t *source, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        target[i] = muster_bfloat16_widen(source[i]);
    }
}

static void bfloat16_narrow(uint16_t *target, const float *source, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        target[i] = muster_bfloat16_narrow(source[i]);
    }
}
