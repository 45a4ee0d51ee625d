/*
 * C += A B for float32 matrices: the one loop that the training spends its time in.
 *
 * B and C are stored by rows. A's elements have fixed strides, so the same loop multiplies by a
 * transposed A without copying it.
 */
#ifndef CHARLM_MATMUL_H
#define CHARLM_MATMUL_H

#include <stddef.h>

/* The number of columns of B and C is a multiple of this. */
#define CHARLM_LANES 16

static inline size_t charlm_round_up(size_t width)
{
    return (width + CHARLM_LANES - 1) / CHARLM_LANES * CHARLM_LANES;
}

struct charlm_matrix {
    const float *data;
    size_t row_stride, column_stride;
};

/* c[rows x columns] += a[rows x depth] b[depth x columns]; columns is a multiple of CHARLM_LANES.
 * Uses the widest instructions that this processor has, so the last bits of the result may differ
 * between processors. */
void charlm_matmul_add(float *c, struct charlm_matrix a, const float *b, size_t rows,
                       size_t columns, size_t depth);

/* The same, with instructions that every processor has. */
void charlm_matmul_add_anywhere(float *c, struct charlm_matrix a, const float *b, size_t rows,
                                size_t columns, size_t depth);

#endif
