#include "worker/examples/charlm/matmul.h"

/* Eight numbers at any address; one register where those are wide enough. */
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
_Static_assert(CHARLM_LANES == 2 * sizeof(lanes) / sizeof(float), "a tile is two registers wide");

struct task {
    float *c;
    struct charlm_matrix a;
    const float *b;
    size_t rows, columns, depth;
};

#define INLINE static inline __attribute__((always_inline))

/* A tile of C, 4 x CHARLM_LANES, in eight named variables: those stay in registers while A and B
 * stream past, which an array does not with every compiler. */
INLINE void add_four_rows(const struct task *task, size_t row, size_t column)
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

INLINE void add_row(const struct task *task, size_t row, size_t column)
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

INLINE void add_product(const struct task *task)
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

static void add_product_anywhere(const struct task *task)
{
    add_product(task);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void add_product_avx2(const struct task *task)
{
    add_product(task);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void add_product_avx2(const struct task *task)
{
    add_product(task);
}

static int has_avx2(void)
{
    return 0;
}
#endif

void charlm_matmul_add(float *c, struct charlm_matrix a, const float *b, size_t rows,
                       size_t columns, size_t depth)
{
    struct task task = {.a = a, .b = b, .rows = rows, .columns = columns, .depth = depth};
    task.c = c;
    (has_avx2() ? add_product_avx2 : add_product_anywhere)(&task);
}
