#include "collectives/reduce/reduce.h"

#include <assert.h>

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

/* Divided, not multiplied by the inverse: the quotient is then the nearest there is. */
void muster_reduce_divide(void *data, size_t count, muster_type type, uint32_t ranks)
{
    assert((unsigned)type < MUSTER_TYPE_COUNT && ranks > 0);
    switch (type) {
    case MUSTER_FLOAT32:
        for (size_t i = 0; i < count; i++) {
            ((float *)data)[i] /= (float)ranks;
        }
        break;
    case MUSTER_FLOAT64:
        for (size_t i = 0; i < count; i++) {
            ((double *)data)[i] /= (double)ranks;
        }
        break;
    case MUSTER_INT32:
        for (size_t i = 0; i < count; i++) {
            int32_t value = ((int32_t *)data)[i];
            ((int32_t *)data)[i] = (int32_t)((int64_t)value / (int64_t)ranks);
        }
        break;
    case MUSTER_INT64:
        for (size_t i = 0; i < count; i++) {
            ((int64_t *)data)[i] /= (int64_t)ranks;
        }
        break;
    case MUSTER_UINT8:
        for (size_t i = 0; i < count; i++) {
            ((uint8_t *)data)[i] = (uint8_t)(((uint8_t *)data)[i] / ranks);
        }
        break;
    }
}
