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

#include "collectives/reduce/floats16.h"
#include "collectives/reduce/tables.h"
#include "tests/support/elements.h"
#include "tests/support/schedules.h"

enum { TAIL_MAX = 70, STARTS = 8, ELEMENTS_MAX = TAIL_MAX + STARTS + 1 };

typedef const muster_reduce_function (*table)[MUSTER_OP_COUNT];

/* The elements of all types, written at any start. */
struct area {
    _Alignas(64) unsigned char bytes[8 * (ELEMENTS_MAX + 8)];
};

/* One length at one start: into a third area, into the left and into the right one. */
static void check_length(muster_reduce_function kernel, muster_type type, muster_op op,
                         size_t start, size_t count, uint64_t *random)
{
    static struct area left;
    static struct area right;
    static struct area target;
    static struct area before;
    size_t size = muster_type_size_bytes(type);
    elements_fill(type, left.bytes, ELEMENTS_MAX, random);
    elements_fill(type, right.bytes, ELEMENTS_MAX, random);
    elements_fill(type, target.bytes, ELEMENTS_MAX, random);
    unsigned char *a = left.bytes + size * start;
    unsigned char *b = right.bytes + size * ((start + 3) % STARTS);
    unsigned char *t = target.bytes + size * ((start + 5) % STARTS);
    unsigned char *targets[] = {t, a, b};
    static struct area a_was;
    static struct area b_was;
    static uint64_t wanted[ELEMENTS_MAX];
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
        elements_reduce(type, op, wanted, a_old, b_old, count);
        if (memcmp(targets[which], wanted, count * size) != 0) {
            print_error("%s %s: %zu elements, start %zu, target %zu\n", muster_type_name(type),
                        muster_op_name(op), count, start, which);
        }
        assert_memory_equal(targets[which], wanted, count * size);
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
            bool fits = muster_op_check((muster_type)type, (muster_op)op) == MUSTER_OK;
            assert_int_equal(kernels[type][op] != NULL, fits);
            for (size_t count = 0; fits && count <= TAIL_MAX; count++) {
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
            if (muster_op_check((muster_type)type, (muster_op)op) != MUSTER_OK) {
                continue;
            }
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
    for (unsigned op = 0; op <= MUSTER_MAX; op++) {
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

static void sixteen_bit_floats_are_converted_as_the_standard_says(void **state)
{
    (void)state;
    for (unsigned half = 0; half <= UINT16_MAX; half++) {
        for (int which = 0; which < 2; which++) {
            muster_type type = which == 0 ? MUSTER_FLOAT16 : MUSTER_BFLOAT16;
            const uint16_t bits = (uint16_t)half;
            double value = muster_type_load(&bits, 0, type);
            double wanted = elements_value16(type, bits);
            assert_true(isnan(wanted) ? isnan(value) : value == wanted);
            assert_int_equal(signbit(value), signbit(wanted));
        }
    }
    uint64_t random = test_seed();
    for (size_t i = 0; i < 2000000; i++) {
        /* Whole range, then the one of float16, then ties and what is beside them. */
        uint32_t bits = (uint32_t)test_random(&random);
        bits = i % 3 == 0 ? bits : (bits & 0x8fffffffU) + 0x30000000U;
        bits =
            i % 3 < 2 ? bits : (bits & ~0x1fffU) + 0x1000U + (uint32_t)(i % 7 < 3 ? i % 7 - 1 : 0);
        float value = muster_float_from_bits(bits);
        assert_int_equal(muster_float16_narrow(value),
                         elements_nearest16(MUSTER_FLOAT16, (double)value));
        bits =
            i % 2 == 0 ? bits : (bits & ~0xffffU) + 0x8000U + (uint32_t)(i % 7 < 3 ? i % 7 - 1 : 0);
        value = muster_float_from_bits(bits);
        assert_int_equal(muster_bfloat16_narrow(value),
                         elements_nearest16(MUSTER_BFLOAT16, (double)value));
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
    int8_t small[] = {-7, INT8_MIN};
    muster_reduce_divide(small, 2, MUSTER_INT8, 4);
    assert_true(small[0] == -1 && small[1] == -32);
    uint64_t large[] = {UINT64_MAX};
    muster_reduce_divide(large, 1, MUSTER_UINT64, 2);
    assert_true(large[0] == (uint64_t)INT64_MAX);
    uint16_t halves[] = {0x4900, 0xfc00}; /* 10, -infinity */
    muster_reduce_divide(halves, 2, MUSTER_FLOAT16, 3);
    assert_int_equal(halves[0], elements_nearest16(MUSTER_FLOAT16, 10.0 / 3));
    assert_int_equal(halves[1], 0xfc00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_kernels_are_right),
        cmocka_unit_test(the_avx2_kernels_are_right),
        cmocka_unit_test(the_avx512_kernels_are_right),
        cmocka_unit_test(the_chosen_kernel_is_one_that_this_processor_runs),
        cmocka_unit_test(either_order_of_the_operands_gives_the_same_bits),
        cmocka_unit_test(sixteen_bit_floats_are_converted_as_the_standard_says),
        cmocka_unit_test(averages_are_divided_and_integers_truncated_toward_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
