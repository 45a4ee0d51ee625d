/* Tables of kernels, one for each instruction set. Private to the folder, its tests and
 * measurements. */
#ifndef MUSTER_COLLECTIVES_REDUCE_TABLES_H
#define MUSTER_COLLECTIVES_REDUCE_TABLES_H

#include "collectives/reduce/reduce.h"

/* target[i] = source[i] times a factor, or divided by a number; target may be source. */
typedef void (*muster_scale_function)(void *target, const void *source, size_t count,
                                      double factor);
typedef void (*muster_divide_function)(void *target, const void *source, size_t count,
                                       uint64_t divisor);

struct muster_kernels {
    /* NULL: the type does not have the operation. */
    muster_reduce_function reduce[MUSTER_TYPE_COUNT][MUSTER_OP_COUNT];
    /* NULL for bool, which is never scaled, and for 16-bit floats, which are scaled as float32. */
    muster_scale_function scale[MUSTER_TYPE_COUNT];
    muster_divide_function divide[MUSTER_TYPE_COUNT];
    void (*widen_float16)(float *target, const uint16_t *source, size_t count);
    void (*widen_bfloat16)(float *target, const uint16_t *source, size_t count);
    void (*narrow_float16)(uint16_t *target, const float *source, size_t count);
    void (*narrow_bfloat16)(uint16_t *target, const float *source, size_t count);
    /* Whole packs of int8: collectives/call/compression.h. */
    void (*pack_int8)(void *target, const float *source, size_t packs);
    void (*unpack_int8)(float *target, const void *source, size_t packs);
};

/* Clang cannot test at run time whether the processor has it. */
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define MUSTER_AVX512FP16
#endif

/* For every processor for which the compiler builds. */
extern const struct muster_kernels muster_kernels_plain;
#ifdef __x86_64__
extern const struct muster_kernels muster_kernels_avx2; /* with F16C */
extern const struct muster_kernels muster_kernels_avx512;
#endif
#ifdef MUSTER_AVX512FP16
extern const struct muster_kernels muster_kernels_avx512fp16;
#endif
#ifdef __aarch64__
extern const struct muster_kernels muster_kernels_neon;
#endif

/* All tables of this architecture, the plain one first, faster ones later. */
enum { MUSTER_KERNEL_TABLES_MAX = 4 };
struct muster_kernel_table {
    const char *name; /* NULL: no table */
    const struct muster_kernels *kernels;
    bool usable; /* by this processor */
};
void muster_kernel_tables(struct muster_kernel_table ret_tables[MUSTER_KERNEL_TABLES_MAX]);

/* The fastest table that this processor can run. */
const struct muster_kernels *muster_kernels_best(void);

#endif
