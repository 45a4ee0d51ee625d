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
    words nan = (words)(values != values); /* NOLINT(misc-redundant-expression): NaN */
    return (floats)(((words)values & ~nan) | (nan & 0x7fc00000U));
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

static inline halves bfloat16_narrow_lanes(floats values)
{
    words bits = (words)quiet(values); /* so that no NaN can be rounded to infinity */
    bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return shorten(bits);
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

#define KERNEL16(type, name, operator)                                                         \
    static inline void type##_##name##_lanes(uint16_t *target, const uint16_t *left,           \
                                             const uint16_t *right, size_t count)              \
    {                                                                                          \
        floats a = type##_widen_lanes(load_halves(left, count));                               \
        floats b = type##_widen_lanes(load_halves(right, count));                              \
        halves result = type##_narrow_lanes(a operator b);                                     \
        memcpy(target, &result, count * sizeof *target);                                       \
    }                                                                                          \
    static void type##_##name(void *target, const void *left, const void *right, size_t count) \
    {                                                                                          \
        uint16_t *out = target;                                                                \
        const uint16_t *as = left;                                                             \
        const uint16_t *bs = right;                                                            \
        size_t at = 0;                                                                         \
        for (; at + MUSTER_LANES <= count; at += MUSTER_LANES) {                               \
            type##_##name##_lanes(out + at, as + at, bs + at, MUSTER_LANES);                   \
        }                                                                                      \
        if (at < count) {                                                                      \
            type##_##name##_lanes(out + at, as + at, bs + at, count - at);                     \
        }                                                                                      \
    }

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

KERNEL16(float16, sum, +)
KERNEL16(float16, prod, *)
KERNEL16(bfloat16, sum, +)
KERNEL16(bfloat16, prod, *)
CONVERSIONS16(float16)
CONVERSIONS16(bfloat16)
