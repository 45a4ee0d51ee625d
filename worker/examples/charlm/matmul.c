/* The matrix product: a plain loop, and one for processors with AVX2. */
#include "worker/examples/charlm/matmul.h"

/* The compiler vectorises the inner loop. */
void charlm_matmul_add_anywhere(float *c, struct charlm_matrix a, const float *b, size_t rows,
                                size_t columns, size_t depth)
{
    for (size_t row = 0; row < rows; row++) {
        float *restrict of_c = c + row * columns;
        for (size_t k = 0; k < depth; k++) {
            const float *of_b = b + k * columns;
            float of_a = a.data[row * a.row_stride + k * a.column_stride];
            for (size_t column = 0; column < columns; column++) {
                of_c[column] += of_a * of_b[column];
            }
        }
    }
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,fma")))

struct task {
    float *c;
    struct charlm_matrix a;
    const float *b;
    size_t rows, columns, depth;
};

/* Eight numbers at any address, in one register. */
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
_Static_assert(CHARLM_LANES == 2 * sizeof(lanes) / sizeof(float), "a tile is two registers wide");

/* Adds to a tile of C, 4 x CHARLM_LANES. The tile is in eight named variables, which stay in
 * registers during the loop; with an array not every compiler does that. */
AVX2 static inline void add_four_rows(const struct task *task, size_t row, size_t column)
{
    size_t columns = task->columns;
    size_t stride = task->a.row_stride;
    const float *a = task->a.data + row * stride;
    const float *b = task->b + column;
    lanes *c0 = (lanes *)(task->c + row * columns + column);
    lanes *c1 = (lanes *)(task->c + (row + 1) * columns + column);
    lanes *c2 = (lanes *)(task->c + (row + 2) * columns + column);
    lanes *c3 = (lanes *)(task->c + (row + 3) * columns + column);
    lanes left0 = c0[0], left1 = c1[0], left2 = c2[0], left3 = c3[0];
    lanes right0 = c0[1], right1 = c1[1], right2 = c2[1], right3 = c3[1];
    for (size_t k = 0; k < task->depth; k++) {
        lanes left = *(const lanes *)b;
        lanes right = *((const lanes *)b + 1);
        left0 += a[0] * left;
        right0 += a[0] * right;
        left1 += a[stride] * left;
        right1 += a[stride] * right;
        left2 += a[2 * stride] * left;
        right2 += a[2 * stride] * right;
        left3 += a[3 * stride] * left;
        right3 += a[3 * stride] * right;
        a += task->a.column_stride;
        b += columns;
    }
    c0[0] = left0, c1[0] = left1, c2[0] = left2, c3[0] = left3;
    c0[1] = right0, c1[1] = right1, c2[1] = right2, c3[1] = right3;
}

AVX2 static inline void add_row(const struct task *task, size_t row, size_t column)
{
    const float *a = task->a.data + row * task->a.row_stride;
    lanes *c = (lanes *)(task->c + row * task->columns + column);
    lanes left = c[0], right = c[1];
    for (size_t k = 0; k < task->depth; k++) {
        const lanes *b = (const lanes *)(task->b + k * task->columns + column);
        left += a[k * task->a.column_stride] * b[0];
        right += a[k * task->a.column_stride] * b[1];
    }
    c[0] = left, c[1] = right;
}

AVX2 static void add_product_avx2(const struct task *task)
{
    for (size_t column = 0; column < task->columns; column += CHARLM_LANES) {
        size_t row = 0;
        for (; row + 4 <= task->rows; row += 4) {
            add_four_rows(task, row, column);
        }
        for (; row < task->rows; row++) {
            add_row(task, row, column);
        }
    }
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

void charlm_matmul_add(float *c, struct charlm_matrix a, const float *b, size_t rows,
                       size_t columns, size_t depth)
{
#ifdef __x86_64__
    if (has_avx2()) {
        struct task task = {.a = a, .b = b, .rows = rows, .columns = columns, .depth = depth};
        task.c = c;
        add_product_avx2(&task);
        return;
    }
#endif
    charlm_matmul_add_anywhere(c, a, b, rows, columns, depth);
}
