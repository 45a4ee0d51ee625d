/* The kernels of each instruction set against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/tables.h"
#include "tests/support/schedules.h"

enum { TAIL_MAX = 70, STARTS = 8, ELEMENTS_MAX = TAIL_MAX + STARTS + 1 };

typedef const muster_reduce_function (*table)[MUSTER_OP_COUNT];

/* The elements of all types, written at any start. */
struct area {
    _Alignas(64) unsigned char bytes[8 * (ELEMENTS_MAX + 8)];
};

static const float odd_floats[] = {0.0F,      -0.0F,     1.0F,       -1.0F,     1e-40F,  -1e-45F,
                                   INFINITY,  -INFINITY, NAN,        -NAN,      3.4e38F, -3.4e38F,
                                   1.17e-38F, 2.0F,      16777216.F, 0.333333F, -2.5e-7F};
static const double odd_doubles[] = {0.0,      -0.0,      1.0,    -1.0,    5e-324,  -1e-310,
                                     INFINITY, -INFINITY, NAN,    -NAN,    1.7e308, -1.7e308,
                                     2.3e-308, 2.0,       9.0e15, 1.0 / 3, -2.5e-7};

static void fill(muster_type type, void *data, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = test_random(random);
        bool odd = bits % 4 == 0;
        size_t pick = (size_t)(bits >> 8) % (sizeof odd_floats / sizeof odd_floats[0]);
        switch (type) {
        case MUSTER_FLOAT32:
            ((float *)data)[i] =
                odd ? odd_floats[pick] : (float)((int64_t)(bits >> 20) - (INT64_C(1) << 43)) / 977;
            break;
        case MUSTER_FLOAT64:
            ((double *)data)[i] =
                odd ? odd_doubles[pick] : (double)((int64_t)(bits >> 2) - (INT64_C(1) << 61)) / 977;
            break;
        case MUSTER_INT32:
            ((int32_t *)data)[i] = odd ? (pick % 2 == 0 ? INT32_MIN : INT32_MAX) : (int32_t)bits;
            break;
        case MUSTER_INT64:
            ((int64_t *)data)[i] = odd ? (pick % 2 == 0 ? INT64_MIN : INT64_MAX) : (int64_t)bits;
            break;
        case MUSTER_UINT8:
            ((uint8_t *)data)[i] = (uint8_t)bits;
            break;
        }
    }
}

/* What an element must be; written without a look at the kernels. */
static double plain_double(muster_op op, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return a + b;
    case MUSTER_PROD:
        return a * b;
    case MUSTER_MIN:
        return a < b || (a == b && signbit(a)) ? a : b;
    case MUSTER_MAX:
        return a > b || (a == b && !signbit(a)) ? a : b;
    }
    abort();
}

static float plain_float(muster_op op, float a, float b)
{
    /* The sum and the product of two floats, rounded once to double, round to the right float. */
    return (float)plain_double(op, (double)a, (double)b);
}

static uint64_t plain_integer(muster_op op, uint64_t a, uint64_t b, bool less)
{
    switch (op) {
    case MUSTER_SUM:
    case MUSTER_AVERAGE:
        return a + b;
    case MUSTER_PROD:
        return a * b;
    case MUSTER_MIN:
        return less ? a : b;
    case MUSTER_MAX:
        return less ? b : a;
    }
    abort();
}

static bool same_double(double got, double want)
{
    return isnan(want) ? isnan(got) && !signbit(got)
                       : got == want && !signbit(got) == !signbit(want);
}

static bool is_right(muster_type type, muster_op op, const void *got, const void *a, const void *b,
                     size_t i)
{
    switch (type) {
    case MUSTER_FLOAT32:
        return same_double((double)((const float *)got)[i],
                           (double)plain_float(op, ((const float *)a)[i], ((const float *)b)[i]));
    case MUSTER_FLOAT64:
        return same_double(((const double *)got)[i],
                           plain_double(op, ((const double *)a)[i], ((const double *)b)[i]));
    case MUSTER_INT32: {
        int32_t x = ((const int32_t *)a)[i];
        int32_t y = ((const int32_t *)b)[i];
        return ((const uint32_t *)got)[i] ==
               (uint32_t)plain_integer(op, (uint32_t)x, (uint32_t)y, x < y);
    }
    case MUSTER_INT64: {
        int64_t x = ((const int64_t *)a)[i];
        int64_t y = ((const int64_t *)b)[i];
        return ((const uint64_t *)got)[i] == plain_integer(op, (uint64_t)x, (uint64_t)y, x < y);
    }
    case MUSTER_UINT8: {
        uint8_t x = ((const uint8_t *)a)[i];
        uint8_t y = ((const uint8_t *)b)[i];
        return ((const uint8_t *)got)[i] == (uint8_t)plain_integer(op, x, y, x < y);
    }
    }
    return false;
}

/* One length at one start: into a third area, into the left and into the right one. */
static void check_length(muster_reduce_function kernel, muster_type type, muster_op op,
                         size_t start, size_t count, uint64_t *random)
{
    static struct area left;
    static struct area right;
    static struct area target;
    static struct area before;
    size_t size = muster_type_size_bytes(type);
    fill(type, left.bytes, ELEMENTS_MAX, random);
    fill(type, right.bytes, ELEMENTS_MAX, random);
    fill(type, target.bytes, ELEMENTS_MAX, random);
    unsigned char *a = left.bytes + size * start;
    unsigned char *b = right.bytes + size * ((start + 3) % STARTS);
    unsigned char *t = target.bytes + size * ((start + 5) % STARTS);
    unsigned char *targets[] = {t, a, b};
    static struct area a_was;
    static struct area b_was;
    a_was = left;
    b_was = right;
    const unsigned char *a_old = a_was.bytes + (a - left.bytes);
    const unsigned char *b_old = b_was.bytes + (b - right.bytes);
    for (size_t which = 0; which < 3; which++) {
        left = a_was;
        right = b_was;
        struct area *area = which == 0 ? &target : which == 1 ? &left : &right;
        before = *area;
        kernel(targets[which], a, b, count);
        for (size_t i = 0; i < count; i++) {
            if (!is_right(type, op, targets[which], a_old, b_old, i)) {
                print_error("%s %s: element %zu of %zu, start %zu, target %zu\n",
                            muster_type_name(type), muster_op_name(op), i, count, start, which);
            }
            assert_true(is_right(type, op, targets[which], a_old, b_old, i));
        }
        size_t first = (size_t)(targets[which] - area->bytes);
        size_t after = first + count * size;
        assert_memory_equal(area->bytes, before.bytes, first);
        assert_memory_equal(area->bytes + after, before.bytes + after, sizeof before.bytes - after);
    }
}

static void check_table(table kernels)
{
    uint64_t random = test_seed();
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
            for (size_t count = 0; count <= TAIL_MAX; count++) {
                for (size_t start = 0; start < STARTS; start++) {
                    check_length(kernels[type][op], (muster_type)type, (muster_op)op, start, count,
                                 &random);
                }
            }
        }
    }
}

static void the_plain_kernels_are_right(void **state)
{
    (void)state;
    check_table(muster_kernels_plain);
}

static void the_avx2_kernels_are_right(void **state)
{
    (void)state;
#ifdef __x86_64__
    if (muster_kernels_avx2_usable()) {
        check_table(muster_kernels_avx2);
        return;
    }
#endif
    print_message("this processor has no AVX2\n");
    skip();
}

static void the_avx512_kernels_are_right(void **state)
{
    (void)state;
#ifdef __x86_64__
    if (muster_kernels_avx512_usable()) {
        check_table(muster_kernels_avx512);
        return;
    }
#endif
    print_message("this processor has no AVX-512\n");
    skip();
}

static void the_chosen_kernel_is_one_that_this_processor_runs(void **state)
{
    (void)state;
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
            muster_reduce_function kernel = muster_reduce_kernel((muster_type)type, (muster_op)op);
            assert_non_null(kernel);
            uint64_t random = 88172645463325252;
            check_length(kernel, (muster_type)type, (muster_op)op, 1, 33, &random);
        }
    }
}

/* Without this, two ranks that reduce each other's data into their own would differ. */
static void either_order_of_the_operands_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t patterns[] = {0x00000000, 0x80000000, 0x3f800000, 0x7f800000,
                                        0xff800000, 0x7fc00000, 0xffc00000, 0x7fc12345,
                                        0x7f812345, 0xffd54321, 0x00000001, 0x80000001};
    enum { PATTERNS = sizeof patterns / sizeof patterns[0] };
    for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
        muster_reduce_function kernel = muster_reduce_kernel(MUSTER_FLOAT32, (muster_op)op);
        for (size_t i = 0; i < PATTERNS; i++) {
            uint32_t rotated[PATTERNS];
            uint32_t one[PATTERNS];
            uint32_t other[PATTERNS];
            for (size_t j = 0; j < PATTERNS; j++) {
                rotated[j] = patterns[(i + j) % PATTERNS];
            }
            kernel(one, patterns, rotated, PATTERNS);
            kernel(other, rotated, patterns, PATTERNS);
            assert_memory_equal(one, other, sizeof one);
        }
    }
}

static void averages_are_divided_and_integers_truncated_toward_zero(void **state)
{
    (void)state;
    float floats[] = {10.0F, -1.0F, INFINITY, 0.0F};
    muster_reduce_divide(floats, 4, MUSTER_FLOAT32, 4);
    assert_true(floats[0] == 2.5F && floats[1] == -0.25F && isinf(floats[2]) && floats[3] == 0);
    double doubles[] = {1.0, -7.0};
    muster_reduce_divide(doubles, 2, MUSTER_FLOAT64, 3);
    assert_true(doubles[0] == 1.0 / 3.0 && doubles[1] == -7.0 / 3.0);
    int32_t ints[] = {7, -7, INT32_MIN, 2};
    muster_reduce_divide(ints, 4, MUSTER_INT32, 3);
    assert_int_equal(ints[0], 2);
    assert_int_equal(ints[1], -2);
    assert_int_equal(ints[2], INT32_MIN / 3);
    assert_int_equal(ints[3], 0);
    int64_t longs[] = {-9, INT64_MAX};
    muster_reduce_divide(longs, 2, MUSTER_INT64, 2);
    assert_int_equal(longs[0], -4);
    assert_int_equal(longs[1], INT64_MAX / 2);
    uint8_t bytes[] = {255, 3};
    muster_reduce_divide(bytes, 2, MUSTER_UINT8, 300);
    assert_int_equal(bytes[0], 0);
    muster_reduce_divide(bytes, 0, MUSTER_UINT8, 1);
    assert_int_equal(bytes[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_kernels_are_right),
        cmocka_unit_test(the_avx2_kernels_are_right),
        cmocka_unit_test(the_avx512_kernels_are_right),
        cmocka_unit_test(the_chosen_kernel_is_one_that_this_processor_runs),
        cmocka_unit_test(either_order_of_the_operands_gives_the_same_bits),
        cmocka_unit_test(averages_are_divided_and_integers_truncated_toward_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
