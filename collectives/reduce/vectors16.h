/*
 * Kernels for 16-bit floats by MUSTER_LANES lanes at once: widened to float32, computed there,
 * rounded once and narrowed. Included by kernels.h. The arithmetic is the compiler's vectors';
 * float16 is converted by the instructions of F16C, AVX-512 or NEON, which give the same bits as
 * floats16.h but for NaNs, of which there is only one here.
 */
#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

typedef float floats __attribute__((vector_size(4 * MUSTER_LANES)));
typedef uint32_t words __attribute__((vector_size(4 * MUSTER_LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * MUSTER_LANES)));

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

/* Lanes below 2^16. */
static inline halves shorten(words lanes)
{
#if MUSTER_LANES == 16
    return (halves)_mm512_cvtepi32_epi16((__m512i)lanes);
#elif MUSTER_LANES == 8
    __m256i pairs = _mm256_packus_epi32((__m256i)lanes, (__m256i)lanes);
    return (halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0)));
#else
    return (halves)vmovn_u32((uint32x4_t)lanes);
#endif
}

static inline floats float16_widen_lanes(halves lanes)
{
#if MUSTER_LANES == 16
    return (floats)_mm512_cvtph_ps((__m256i)lanes);
#elif MUSTER_LANES == 8
    return (floats)_mm256_cvtph_ps((__m128i)lanes);
#else
    return (floats)vcvt_f32_f16((float16x4_t)lanes);
#endif
}

static inline halves float16_narrow_lanes(floats values)
{
    values = quiet(values);
#if MUSTER_LANES == 16
    return (halves)_mm512_cvtps_ph((__m512)values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif MUSTER_LANES == 8
    return (halves)_mm256_cvtps_ph((__m256)values, _MM_FROUND_TO_NEAREST_INT);
#else
    return (halves)vcvt_f16_f32((float32x4_t)values);
#endif
}

static inline floats bfloat16_widen_lanes(halves lanes)
{
    return (floats)(__builtin_convertvector(lanes, words) << 16);
}

/* The upper halves are the result. */
static inline words bfloat16_round(floats values)
{
    words bits = (words)quiet(values); /* so that no NaN can be rounded to infinity */
    return bits + 0x7fffU + ((bits >> 16) & 1U);
}

static inline halves bfloat16_narrow_lanes(floats values)
{
    return shorten(bfloat16_round(values) >> 16);
}

/* The last lanes of an array may be fewer. */
static inline halves load_halves(const uint16_t *source, size_t count)
{
    halves lanes = {0};
    memcpy(&lanes, source, count * sizeof *source);
    return lanes;
}

static inline floats load_floats(const float *source, size_t count)
{
    floats lanes = {0};
    memcpy(&lanes, source, count * sizeof *source);
    return lanes;
}

/* Two bfloat16 in a word are a float32 each, the upper one as it stands but for the lower bits, so
 * that nothing needs to be moved across lanes. */
static inline words load_pairs(const uint16_t *source, size_t count)
{
    words lanes = {0};
    memcpy(&lanes, source, count * sizeof *source);
    return lanes;
}

/* A function of whole arrays out of name_lanes(), which takes up to `most` elements. */
#define BY_LANES16(name, most)                                                        \
    static void name(void *target, const void *left, const void *right, size_t count) \
    {                                                                                 \
        uint16_t *out = target;                                                       \
        const uint16_t *as = left;                                                    \
        const uint16_t *bs = right;                                                   \
        size_t at = 0;                                                                \
        for (; at + (most) <= count; at += (most)) {                                  \
            name##_lanes(out + at, as + at, bs + at, (most));                         \
        }                                                                             \
        if (at < count) {                                                             \
            name##_lanes(out + at, as + at, bs + at, count - at);                     \
        }                                                                             \
    }

#define FLOAT16_KERNEL(name, operator)                                                \
    static inline void float16_##name##_lanes(uint16_t *target, const uint16_t *left, \
                                              const uint16_t *right, size_t count)    \
    {                                                                                 \
        floats a = float16_widen_lanes(load_halves(left, count));                     \
        floats b = float16_widen_lanes(load_halves(right, count));                    \
        halves result = float16_narrow_lanes(a operator b);                           \
        memcpy(target, &result, count * sizeof *target);                              \
    }                                                                                 \
    BY_LANES16(float16_##name, MUSTER_LANES)

#define BFLOAT16_KERNEL(name, operator)                                                    \
    static inline void bfloat16_##name##_lanes(uint16_t *target, const uint16_t *left,     \
                                               const uint16_t *right, size_t count)        \
    {                                                                                      \
        words a = load_pairs(left, count);                                                 \
        words b = load_pairs(right, count);                                                \
        floats low = (floats)(a << 16) operator(floats)(b << 16);                          \
        floats high = (floats)(a & 0xffff0000U) operator(floats)(b & 0xffff0000U);         \
        words result = (bfloat16_round(low) >> 16) | (bfloat16_round(high) & 0xffff0000U); \
        memcpy(target, &result, count * sizeof *target);                                   \
    }                                                                                      \
    BY_LANES16(bfloat16_##name, 2 * MUSTER_LANES)

#define CONVERSIONS16(type)                                                                    \
    static inline void type##_widen_some(float *target, const uint16_t *source, size_t count)  \
    {                                                                                          \
        floats values = type##_widen_lanes(load_halves(source, count));                        \
        memcpy(target, &values, count * sizeof *target);                                       \
    }                                                                                          \
    static void type##_widen(float *target, const uint16_t *source, size_t count)              \
    {                                                                                          \
        size_t at = 0;                                                                         \
        for (; at + MUSTER_LANES <= count; at += MUSTER_LANES) {                               \
            type##_widen_some(target + at, source + at, MUSTER_LANES);                         \
        }                                                                                      \
        if (at < count) {                                                                      \
            type##_widen_some(target + at, source + at, count - at);                           \
        }                                                                                      \
    }                                                                                          \
    static inline void type##_narrow_some(uint16_t *target, const float *source, size_t count) \
    {                                                                                          \
        halves lanes = type##_narrow_lanes(load_floats(source, count));                        \
        memcpy(target, &lanes, count * sizeof *target);                                        \
    }                                                                                          \
    static void type##_narrow(uint16_t *target, const float *source, size_t count)             \
    {                                                                                          \
        size_t at = 0;                                                                         \
        for (; at + MUSTER_LANES <= count; at += MUSTER_LANES) {                               \
            type##_narrow_some(target + at, source + at, MUSTER_LANES);                        \
        }                                                                                      \
        if (at < count) {                                                                      \
            type##_narrow_some(target + at, source + at, count - at);                          \
        }                                                                                      \
    }

FLOAT16_KERNEL(sum, +)
FLOAT16_KERNEL(prod, *)
BFLOAT16_KERNEL(sum, +)
BFLOAT16_KERNEL(prod, *)
CONVERSIONS16(float16)
CONVERSIONS16(bfloat16)
