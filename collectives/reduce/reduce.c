/* Reductions: choosing the kernels for this processor, factors and averages, many inputs. */
#include "collectives/reduce/reduce.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "collectives/reduce/float_environment.h"
#include "collectives/reduce/tables.h"

enum {
    BLOCK = 1024, /* elements that are handled at a time, so that they stay in the cache */
    ELEMENT_MAX_BYTES = 8,
};

/* Choosing ----------------------------------------------------------------------------------- */

#ifdef __x86_64__
/* The results are not cached: the builtins only test bits that the compiler's library sets at
 * start. Clang's builtin does not know F16C, but every processor with FMA has it. */
#ifdef __clang__
#define HAS_F16C __builtin_cpu_supports("fma")
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && HAS_F16C;
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#ifdef MUSTER_AVX512FP16
static bool has_avx512fp16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512fp16");
}
#endif
#endif

void muster_kernel_tables(struct muster_kernel_table ret_tables[MUSTER_KERNEL_TABLES_MAX])
{
    memset(ret_tables, 0, MUSTER_KERNEL_TABLES_MAX * sizeof *ret_tables);
    ret_tables[0] = (struct muster_kernel_table){"plain", &muster_kernels_plain, true};
#ifdef __x86_64__
    ret_tables[1] = (struct muster_kernel_table){"avx2", &muster_kernels_avx2, has_avx2()};
    ret_tables[2] = (struct muster_kernel_table){"avx512", &muster_kernels_avx512, has_avx512()};
#endif
#ifdef MUSTER_AVX512FP16
    ret_tables[3] =
        (struct muster_kernel_table){"avx512fp16", &muster_kernels_avx512fp16, has_avx512fp16()};
#endif
#ifdef __aarch64__
    ret_tables[1] = (struct muster_kernel_table){"neon", &muster_kernels_neon, true};
#endif
}

const struct muster_kernels *muster_kernels_best(void)
{
#ifdef MUSTER_AVX512FP16
    if (has_avx512fp16()) {
        return &muster_kernels_avx512fp16;
    }
#endif
#ifdef __x86_64__
    return has_avx512() ? &muster_kernels_avx512
           : has_avx2() ? &muster_kernels_avx2
                        : &muster_kernels_plain;
#elif defined(__aarch64__)
    return &muster_kernels_neon;
#else
    return &muster_kernels_plain;
#endif
}

muster_reduce_function muster_reduce_kernel(muster_type type, muster_op op)
{
    assert((unsigned)type < MUSTER_TYPE_COUNT && (unsigned)op < MUSTER_OP_COUNT);
    muster_reduce_function kernel = muster_kernels_best()->reduce[type][op];
    assert(kernel != NULL);
    return kernel;
}

/* Factors ------------------------------------------------------------------------------------ */

static bool has_16_bits(const struct muster_reduction *reduction)
{
    return reduction->type == MUSTER_FLOAT16 || reduction->type == MUSTER_BFLOAT16;
}

static void widen(const struct muster_kernels *kernels, muster_type type, float *target,
                  const uint16_t *source, size_t count)
{
    (type == MUSTER_FLOAT16 ? kernels->widen_float16 : kernels->widen_bfloat16)(target, source,
                                                                                count);
}

static void narrow(const struct muster_kernels *kernels, muster_type type, uint16_t *target,
                   const float *source, size_t count)
{
    (type == MUSTER_FLOAT16 ? kernels->narrow_float16 : kernels->narrow_bfloat16)(target, source,
                                                                                  count);
}

/* target = source / divisor x factor, for at most BLOCK elements. 16-bit floats are scaled as
 * float32 and rounded once. */
static void scale_block(const struct muster_reduction *reduction, void *target, const void *source,
                        size_t count, uint64_t divisor, double factor)
{
    AUTO_FLOAT_ENVIRONMENT();
    const struct muster_kernels *kernels = muster_kernels_best();
    _Alignas(64) float floats[BLOCK];
    bool short_floats = has_16_bits(reduction);
    muster_type type = short_floats ? MUSTER_FLOAT32 : reduction->type;
    void *values = short_floats ? floats : target;
    if (short_floats) {
        widen(kernels, reduction->type, floats, source, count);
        source = floats;
    }
    if (divisor != 1) {
        kernels->divide[type](values, source, count, divisor);
        source = values;
    }
    if (factor != 1) {
        kernels->scale[type](values, source, count, factor);
    }
    if (short_floats) {
        narrow(kernels, reduction->type, target, floats, count);
    }
}

/* Combining ---------------------------------------------------------------------------------- */

void muster_reduction_combine(const struct muster_reduction *reduction, void *target,
                              const void *left, const void *right, size_t count)
{
    if (reduction->op == MUSTER_USER) {
        reduction->user_function(target, left, right, count, reduction->type, reduction->user_data);
    } else {
        AUTO_FLOAT_ENVIRONMENT();
        muster_reduce_kernel(reduction->type, reduction->op)(target, left, right, count);
    }
}

/* Inputs of 16-bit floats are reduced as float32, and rounded once at the end. */
static void gather_in_float32(const struct muster_reduction *reduction, uint16_t *target,
                              const void *const *inputs, size_t input_count, size_t first,
                              size_t count)
{
    AUTO_FLOAT_ENVIRONMENT();
    const struct muster_kernels *kernels = muster_kernels_best();
    _Alignas(64) float result[BLOCK];
    _Alignas(64) float next[BLOCK];
    for (size_t i = 0; i < input_count; i++) {
        float *values = i == 0 ? result : next;
        widen(kernels, reduction->type, values, (const uint16_t *)inputs[i] + first, count);
        if (reduction->prescale != 1) {
            kernels->scale[MUSTER_FLOAT32](values, values, count, reduction->prescale);
        }
        if (i > 0) {
            kernels->reduce[MUSTER_FLOAT32][reduction->op](result, result, next, count);
        }
    }
    narrow(kernels, reduction->type, target + first, result, count);
}

static void gather_block(const struct muster_reduction *reduction, char *target,
                         const void *const *inputs, size_t input_count, size_t first, size_t count)
{
    _Alignas(64) char scaled[BLOCK * ELEMENT_MAX_BYTES];
    size_t size = muster_type_size_bytes(reduction->type);
    for (size_t i = 0; i < input_count; i++) {
        const char *input = (const char *)inputs[i] + first * size;
        if (reduction->prescale != 1) {
            char *to = i == 0 ? target + first * size : scaled;
            scale_block(reduction, to, input, count, 1, reduction->prescale);
            input = to;
        }
        if (i > 0) {
            char *result = target + first * size;
            muster_reduction_combine(reduction, result, result, input, count);
        } else if (input != target + first * size) {
            memcpy(target + first * size, input, count * size);
        }
    }
}

void muster_reduction_gather(const struct muster_reduction *reduction, void *target,
                             const void *const *inputs, size_t input_count, size_t count)
{
    bool computes = input_count > 1 || reduction->prescale != 1;
    bool in_float32 = has_16_bits(reduction) && reduction->op != MUSTER_USER && computes;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t some = count - first < BLOCK ? count - first : BLOCK;
        if (in_float32) {
            gather_in_float32(reduction, target, inputs, input_count, first, some);
        } else {
            gather_block(reduction, target, inputs, input_count, first, some);
        }
    }
}

/* Finishing ---------------------------------------------------------------------------------- */

bool muster_reduction_is_raw_truth(const struct muster_reduction *reduction, uint64_t inputs)
{
    return inputs == 1 && reduction->op != MUSTER_USER &&
           (reduction->type == MUSTER_BOOL || reduction->op == MUSTER_LOGICAL_AND ||
            reduction->op == MUSTER_LOGICAL_OR);
}

bool muster_reduction_has_finish(const struct muster_reduction *reduction, uint64_t inputs)
{
    return (reduction->op == MUSTER_AVERAGE && inputs > 1) || reduction->postscale != 1 ||
           muster_reduction_is_raw_truth(reduction, inputs);
}

void muster_reduction_finish(const struct muster_reduction *reduction, void *data, size_t count,
                             uint64_t inputs)
{
    if (!muster_reduction_has_finish(reduction, inputs)) {
        return;
    }
    if (muster_reduction_is_raw_truth(reduction, inputs)) {
        muster_reduce_kernel(reduction->type, MUSTER_LOGICAL_OR)(data, data, data, count);
        return;
    }
    size_t size = muster_type_size_bytes(reduction->type);
    uint64_t divisor = reduction->op == MUSTER_AVERAGE ? inputs : 1;
    for (size_t first = 0; first < count; first += BLOCK) {
        char *block = (char *)data + first * size;
        size_t some = count - first < BLOCK ? count - first : BLOCK;
        scale_block(reduction, block, block, some, divisor, reduction->postscale);
    }
}
