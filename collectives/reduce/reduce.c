#include "collectives/reduce/reduce.h"

#include <assert.h>
#include <stddef.h>

#include "collectives/reduce/floats16.h"
#include "collectives/reduce/tables.h"

/* Called each time, not cached: the builtin only tests bits that libgcc set at start. */
bool muster_kernels_avx2_usable(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

bool muster_kernels_avx512_usable(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

muster_reduce_function muster_reduce_kernel(muster_type type, muster_op op)
{
    assert((unsigned)type < MUSTER_TYPE_COUNT && (unsigned)op < MUSTER_OP_COUNT);
    assert(muster_kernels_plain[type][op] != NULL);
#ifdef __x86_64__
    if (muster_kernels_avx512_usable()) {
        return muster_kernels_avx512[type][op];
    }
    if (muster_kernels_avx2_usable()) {
        return muster_kernels_avx2[type][op];
    }
#endif
    return muster_kernels_plain[type][op];
}

/* Divided, not multiplied by the inverse: the quotient is then the nearest there is. The wider type
 * holds the number of ranks and both ends of the narrower one. */
#define DIVIDE(name, type, wide)                                              \
    static void name##_divide(void *data, size_t count, uint32_t ranks)       \
    {                                                                         \
        type *values = data; /* NOLINT(bugprone-macro-parentheses): a type */ \
        for (size_t i = 0; i < count; i++) {                                  \
            values[i] = (type)((wide)values[i] / (wide)ranks);                \
        }                                                                     \
    }
DIVIDE(float32, float, float)
DIVIDE(float64, double, double)
DIVIDE(int8, int8_t, int64_t)
DIVIDE(int16, int16_t, int64_t)
DIVIDE(int32, int32_t, int64_t)
DIVIDE(int64, int64_t, int64_t)
DIVIDE(uint8, uint8_t, uint32_t)
DIVIDE(uint16, uint16_t, uint32_t)
DIVIDE(uint32, uint32_t, uint32_t)
DIVIDE(uint64, uint64_t, uint64_t)

#define DIVIDE16(name)                                                        \
    static void name##_divide(void *data, size_t count, uint32_t ranks)       \
    {                                                                         \
        uint16_t *values = data;                                              \
        for (size_t i = 0; i < count; i++) {                                  \
            float quotient = muster_##name##_widen(values[i]) / (float)ranks; \
            values[i] = muster_##name##_narrow(quotient);                     \
        }                                                                     \
    }
DIVIDE16(float16)
DIVIDE16(bfloat16)

typedef void (*divide_function)(void *data, size_t count, uint32_t ranks);

void muster_reduce_divide(void *data, size_t count, muster_type type, uint32_t ranks)
{
    static const divide_function functions[MUSTER_TYPE_COUNT] = {
        float32_divide, float64_divide,  int32_divide,  int64_divide,  uint8_divide,
        int8_divide,    int16_divide,    uint16_divide, uint32_divide, uint64_divide,
        float16_divide, bfloat16_divide, NULL};
    assert((unsigned)type < MUSTER_TYPE_COUNT && functions[type] != NULL && ranks > 0);
    functions[type](data, count, ranks);
}
