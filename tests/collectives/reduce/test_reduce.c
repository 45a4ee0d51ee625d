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

#include "collectives/call/floats16.h"
#include "collectives/reduce/tables.h"
#include "tests/support/elements.h"
#include "tests/support/schedules.h"

/* Some kernels handle up to 128 elements at a time. */
enum { TAIL_MAX = 70, LONG_MAX = 600, STARTS = 8, ELEMENTS_MAX = LONG_MAX + STARTS + 1 };

/* Room for the elements of every type at every alignment. */
struct area {
    _Alignas(64) unsigned char bytes[8 * (ELEMENTS_MAX + 8)];
};

/* Only numbers below 2, except for a single element sometimes: kernels may have a fast path for
 * ordinary numbers. */
static void fill_with_ordinary(muster_type type, void *data, size_t count, uint64_t *random)
{
    uint16_t *halves = data;
    elements_fill(type, data, count, random);
    for (size_t i = 0; (type == MUSTER_FLOAT16 || type == MUSTER_BFLOAT16) && i < count; i++) {
        halves[i] &= test_random(random) % 256 != 0 ? 0xbfff : 0xffff;
    }
}

/* One length at one alignment: with a separate target, with the left operand as target, and with
 * the right one. */
static void check_length(muster_reduce_function kernel, muster_type type, muster_op op,
                         size_t start, size_t count, uint64_t *random)
{
    static struct area left;
    static struct area right;
    static struct area target;
    static struct area before;
    size_t size = muster_type_size_bytes(type);
    if (count <= TAIL_MAX) {
        elements_fill(type, left.bytes, count + STARTS, random);
        elements_fill(type, right.bytes, count + STARTS, random);
    } else {
        fill_with_ordinary(type, left.bytes, count + STARTS, random);
        fill_with_ordinary(type, right.bytes, count + STARTS, random);
    }
    elements_fill(type, target.bytes, count + STARTS, random);
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

static void check_table(const struct muster_kernels *kernels)
{
    uint64_t random = test_seed();
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
            bool fits =
                op != MUSTER_USER && muster_op_check((muster_type)type, (muster_op)op) == MUSTER_OK;
            assert_int_equal(kernels->reduce[type][op] != NULL, fits);
            for (size_t count = 0; fits && count <= TAIL_MAX; count++) {
                for (size_t start = 0; start < STARTS; start++) {
                    check_length(kernels->reduce[type][op], (muster_type)type, (muster_op)op, start,
                                 count, &random);
                }
            }
            for (size_t round = 0; fits && round < 100; round++) {
                size_t count = TAIL_MAX + 1 + test_random(&random) % (LONG_MAX - TAIL_MAX);
                check_length(kernels->reduce[type][op], (muster_type)type, (muster_op)op,
                             round % STARTS, count, &random);
            }
        }
    }
}

static void check_table_number(size_t number)
{
    struct muster_kernel_table tables[MUSTER_KERNEL_TABLES_MAX];
    muster_kernel_tables(tables);
    if (!tables[number].usable) {
        print_message("%s: not on this processor\n",
                      tables[number].name != NULL ? tables[number].name : "no more tables");
        skip();
    }
    print_message("%s\n", tables[number].name);
    check_table(tables[number].kernels);
}

static void the_plain_kernels_are_right(void **state)
{
    (void)state;
    check_table_number(0);
}

static void the_kernels_of_the_second_table_are_right(void **state)
{
    (void)state;
    check_table_number(1);
}

static void the_kernels_of_the_third_table_are_right(void **state)
{
    (void)state;
    check_table_number(2);
}

static void the_kernels_of_the_fourth_table_are_right(void **state)
{
    (void)state;
    check_table_number(3);
}

/* All lengths and alignments, also less than one vector. */
static void check_conversions(const struct muster_kernels *kernels, uint64_t *random)
{
    enum { MOST = 5000 };
    static uint16_t halves[MOST + STARTS];
    static float floats[2][MOST + STARTS];
    static uint16_t back[2][MOST + STARTS];
    for (size_t round = 0; round < 200; round++) {
        size_t start = test_random(random) % STARTS;
        size_t count = test_random(random) % (round % 2 == 0 ? TAIL_MAX : MOST);
        elements_fill(MUSTER_FLOAT16, halves, MOST + STARTS, random);
        elements_fill(MUSTER_FLOAT32, floats[0], MOST + STARTS, random);
        memset(back, 0x5a, sizeof back);
        kernels->narrow_float16(back[0] + start, floats[0] + start, count);
        muster_kernels_plain.narrow_float16(back[1] + start, floats[0] + start, count);
        assert_memory_equal(back[0], back[1], sizeof back[0]);
        kernels->narrow_bfloat16(back[0] + start, floats[0] + start, count);
        muster_kernels_plain.narrow_bfloat16(back[1] + start, floats[0] + start, count);
        assert_memory_equal(back[0], back[1], sizeof back[0]);
        kernels->widen_bfloat16(floats[0] + start, halves + start, count);
        muster_kernels_plain.widen_bfloat16(floats[1] + start, halves + start, count);
        assert_memory_equal(floats[0] + start, floats[1] + start, count * sizeof floats[0][0]);
        kernels->widen_float16(floats[0] + start, halves + start, count);
        muster_kernels_plain.widen_float16(floats[1] + start, halves + start, count);
        for (size_t i = start; i < start + count; i++) { /* any NaN is right */
            assert_true(isnan(floats[1][i]) ? isnan(floats[0][i]) : floats[0][i] == floats[1][i]);
            assert_int_equal(signbit(floats[0][i]), signbit(floats[1][i]));
        }
    }
}

/* All factors must give the results of the plain kernels, which are tested below. */
static void check_factors(const struct muster_kernels *kernels, uint64_t *random)
{
    static const double factors[] = {0.5, -1.0 / 3, 1e9, 3e38, 1e-40};
    static struct area in;
    static struct area out[2];
    for (size_t round = 0; round < 300; round++) {
        muster_type type = (muster_type)(round % MUSTER_TYPE_COUNT);
        assert_int_equal(kernels->scale[type] == NULL, muster_kernels_plain.scale[type] == NULL);
        if (kernels->scale[type] == NULL) {
            continue;
        }
        size_t size = muster_type_size_bytes(type);
        size_t start = size * (test_random(random) % STARTS);
        size_t count = test_random(random) % TAIL_MAX;
        elements_fill(type, in.bytes, ELEMENTS_MAX, random);
        memset(out, 0, sizeof out);
        double factor = factors[round % 5];
        kernels->scale[type](out[0].bytes + start, in.bytes + start, count, factor);
        muster_kernels_plain.scale[type](out[1].bytes + start, in.bytes + start, count, factor);
        assert_memory_equal(out[0].bytes, out[1].bytes, sizeof out[0].bytes);
        uint64_t divisor = 1 + test_random(random) % (round % 2 == 0 ? 7 : 100000);
        kernels->divide[type](out[0].bytes + start, in.bytes + start, count, divisor);
        muster_kernels_plain.divide[type](out[1].bytes + start, in.bytes + start, count, divisor);
        assert_memory_equal(out[0].bytes, out[1].bytes, sizeof out[0].bytes);
    }
}

static void all_tables_convert_and_scale_in_the_same_way(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    struct muster_kernel_table tables[MUSTER_KERNEL_TABLES_MAX];
    muster_kernel_tables(tables);
    for (size_t i = 1; i < MUSTER_KERNEL_TABLES_MAX; i++) {
        if (tables[i].usable) {
            check_conversions(tables[i].kernels, &random);
            check_factors(tables[i].kernels, &random);
        }
    }
}

static void the_chosen_kernel_is_one_that_this_processor_runs(void **state)
{
    (void)state;
    for (unsigned type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (unsigned op = 0; op < MUSTER_OP_COUNT; op++) {
            if (muster_kernels_plain.reduce[type][op] == NULL) {
                continue;
            }
            muster_reduce_function kernel = muster_reduce_kernel((muster_type)type, (muster_op)op);
            assert_non_null(kernel);
            uint64_t random = 88172645463325252;
            check_length(kernel, (muster_type)type, (muster_op)op, 1, 33, &random);
        }
    }
}

/* Else two ranks that reduce each other's data with their own would get different bits. */
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

static void sixteen_bit_floats_are_converted_according_to_the_standard(void **state)
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
        /* The whole range, then that of float16, then ties and their neighbours. */
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

/* Reductions ---------------------------------------------------------------------------------- */

static struct muster_reduction reduction_of(muster_type type, muster_op op, double prescale,
                                            double postscale)
{
    return (struct muster_reduction){
        .type = type, .op = op, .prescale = prescale, .postscale = postscale};
}

static void average(muster_type type, void *data, size_t count, uint64_t inputs)
{
    const struct muster_reduction reduction = reduction_of(type, MUSTER_AVERAGE, 1, 1);
    muster_reduction_finish(&reduction, data, count, inputs);
}

static void averages_are_divided_and_integers_truncated_toward_zero(void **state)
{
    (void)state;
    float floats[] = {10.0F, -1.0F, INFINITY, 0.0F};
    average(MUSTER_FLOAT32, floats, 4, 4);
    assert_true(floats[0] == 2.5F && floats[1] == -0.25F && isinf(floats[2]) && floats[3] == 0);
    double doubles[] = {1.0, -7.0};
    average(MUSTER_FLOAT64, doubles, 2, 3);
    assert_true(doubles[0] == 1.0 / 3.0 && doubles[1] == -7.0 / 3.0);
    int32_t ints[] = {7, -7, INT32_MIN, 2};
    average(MUSTER_INT32, ints, 4, 3);
    assert_true(ints[0] == 2 && ints[1] == -2 && ints[2] == INT32_MIN / 3 && ints[3] == 0);
    int64_t longs[] = {-9, INT64_MAX};
    average(MUSTER_INT64, longs, 2, 2);
    assert_true(longs[0] == -4 && longs[1] == INT64_MAX / 2);
    uint8_t bytes[] = {255, 3};
    average(MUSTER_UINT8, bytes, 2, 300);
    assert_int_equal(bytes[0], 0);
    int8_t small[] = {-7, INT8_MIN};
    average(MUSTER_INT8, small, 2, 4);
    assert_true(small[0] == -1 && small[1] == -32);
    uint64_t large[] = {UINT64_MAX};
    average(MUSTER_UINT64, large, 1, 2);
    assert_true(large[0] == (uint64_t)INT64_MAX);
    uint16_t halves[] = {0x4900, 0xfc00}; /* 10, -infinity */
    average(MUSTER_FLOAT16, halves, 2, 3);
    assert_int_equal(halves[0], elements_nearest16(MUSTER_FLOAT16, 10.0 / 3));
    assert_int_equal(halves[1], 0xfc00);
}

/* Compared with integer division, for every type of at most 32 bits. */
static void integer_quotients_are_exact(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (size_t round = 0; round < 2000; round++) {
        int32_t data[TAIL_MAX];
        uint32_t naturals[TAIL_MAX];
        int32_t before[TAIL_MAX];
        elements_fill(MUSTER_INT32, before, TAIL_MAX, &random);
        memcpy(data, before, sizeof data);
        memcpy(naturals, before, sizeof data);
        uint64_t divisor = 2 + test_random(&random) % (round % 2 == 0 ? 9 : 1 << 20);
        average(MUSTER_INT32, data, TAIL_MAX, divisor);
        average(MUSTER_UINT32, naturals, TAIL_MAX, divisor);
        for (size_t i = 0; i < TAIL_MAX; i++) {
            assert_int_equal(data[i], (int32_t)((int64_t)before[i] / (int64_t)divisor));
            assert_true(naturals[i] == (uint32_t)((uint32_t)before[i] / divisor));
        }
    }
}

/* Every value of the types of at most 16 bits, which are divided as float32. */
static void every_quotient_of_a_short_integer_is_exact(void **state)
{
    (void)state;
    static const uint64_t large[] = {32767,   32768,          65534,          65535,         65536,
                                     1 << 24, (1 << 24) + 1U, 1ULL << 40 | 1, UINT64_MAX / 2};
    enum { VALUES = 65536, DIVISORS = 260 };
    static int16_t shorts[VALUES];
    static uint16_t naturals[VALUES];
    for (uint64_t i = 2; i < DIVISORS + sizeof large / sizeof large[0]; i++) {
        uint64_t divisor = i < DIVISORS ? i : large[i - DIVISORS];
        int64_t wrong = 0;
        for (int k = 0; k < VALUES; k++) {
            shorts[k] = (int16_t)(k - VALUES / 2);
            naturals[k] = (uint16_t)k;
        }
        average(MUSTER_INT16, shorts, VALUES, divisor);
        average(MUSTER_UINT16, naturals, VALUES, divisor);
        for (int k = 0; k < VALUES; k++) {
            wrong += shorts[k] != (k - VALUES / 2) / (int64_t)divisor;
            wrong += naturals[k] != (uint64_t)k / divisor;
        }
        assert_int_equal(wrong, 0);
    }
}

static void scaled_integers_are_truncated_and_stay_within_their_type(void **state)
{
    (void)state;
    int8_t small[] = {100, -100, 3, -3};
    struct muster_reduction reduction = reduction_of(MUSTER_INT8, MUSTER_SUM, 1, 1.5);
    muster_reduction_finish(&reduction, small, 4, 2);
    assert_true(small[0] == 127 && small[1] == -128 && small[2] == 4 && small[3] == -4);
    uint16_t naturals[] = {1000, 65535};
    reduction = reduction_of(MUSTER_UINT16, MUSTER_MAX, 1, -2);
    muster_reduction_finish(&reduction, naturals, 2, 2);
    assert_true(naturals[0] == 0 && naturals[1] == 0);
    int64_t longs[] = {INT64_MAX, INT64_MIN, -5, (INT64_C(1) << 53) + 1};
    reduction = reduction_of(MUSTER_INT64, MUSTER_SUM, 1, 2);
    muster_reduction_finish(&reduction, longs, 4, 2);
    assert_true(longs[0] == INT64_MAX && longs[1] == INT64_MIN && longs[2] == -10);
    assert_true(longs[3] == INT64_C(1) << 54);
    uint64_t large[] = {UINT64_MAX, 7};
    reduction = reduction_of(MUSTER_UINT64, MUSTER_SUM, 1, 0.5);
    muster_reduction_finish(&reduction, large, 2, 2);
    assert_true(large[0] == UINT64_C(1) << 63 && large[1] == 3);
    int32_t quotient_first[] = {7};
    reduction = reduction_of(MUSTER_INT32, MUSTER_AVERAGE, 1, 2);
    muster_reduction_finish(&reduction, quotient_first, 1, 2);
    assert_int_equal(quotient_first[0], 6);
}

static void sixteen_bit_floats_are_rounded_once_a_step(void **state)
{
    (void)state;
    enum { INPUTS = 5, COUNT = 2100 };
    uint64_t random = test_seed();
    static uint16_t inputs[INPUTS][COUNT];
    static uint16_t out[COUNT];
    const void *pointers[INPUTS];
    for (int which = 0; which < 2; which++) {
        muster_type type = which == 0 ? MUSTER_FLOAT16 : MUSTER_BFLOAT16;
        for (size_t i = 0; i < INPUTS; i++) {
            pointers[i] = inputs[i];
            for (size_t j = 0; j < COUNT; j++) {
                double value = (double)(test_random(&random) % 4001) / 100 - 20;
                muster_type_store(inputs[i], j, type, value);
            }
        }
        struct muster_reduction reduction = reduction_of(type, MUSTER_SUM, 1.0 / 3, 1);
        muster_reduction_gather(&reduction, out, pointers, INPUTS, COUNT);
        for (size_t j = 0; j < COUNT; j++) {
            float sum = 0;
            for (size_t i = 0; i < INPUTS; i++) {
                float scaled = (float)elements_value16(type, inputs[i][j]) * (float)(1.0 / 3);
                sum = i == 0 ? scaled : sum + scaled;
            }
            assert_int_equal(out[j], elements_nearest16(type, (double)sum));
        }
        reduction = reduction_of(type, MUSTER_AVERAGE, 1, 0.7);
        muster_reduction_finish(&reduction, out, COUNT, 3);
    }
    uint16_t once[] = {elements_nearest16(MUSTER_BFLOAT16, 10)};
    struct muster_reduction reduction = reduction_of(MUSTER_BFLOAT16, MUSTER_AVERAGE, 1, 0.7);
    muster_reduction_finish(&reduction, once, 1, 3);
    assert_int_equal(once[0],
                     elements_nearest16(MUSTER_BFLOAT16, (double)(10.0F / 3.0F * (float)0.7)));
}

/* More elements than a block, and not a multiple of it. */
static void many_inputs_are_reduced_from_the_first_to_the_last(void **state)
{
    (void)state;
    enum { INPUTS = 3, COUNT = 2500 };
    uint64_t random = test_seed();
    static uint64_t inputs[INPUTS][COUNT];
    static uint64_t wanted[COUNT];
    const void *pointers[INPUTS] = {inputs[0], inputs[1], inputs[2]};
    for (int type = 0; type < MUSTER_TYPE_COUNT; type++) {
        for (int op = 0; op < MUSTER_OP_COUNT; op++) {
            if (muster_kernels_plain.reduce[type][op] == NULL) {
                continue;
            }
            for (size_t i = 0; i < INPUTS; i++) {
                elements_fill((muster_type)type, inputs[i], COUNT, &random);
            }
            size_t size = muster_type_size_bytes((muster_type)type);
            elements_reduce((muster_type)type, (muster_op)op, wanted, inputs[0], inputs[1], COUNT);
            elements_reduce((muster_type)type, (muster_op)op, wanted, wanted, inputs[2], COUNT);
            const struct muster_reduction reduction =
                reduction_of((muster_type)type, (muster_op)op, 1, 1);
            muster_reduction_gather(&reduction, inputs[0], pointers, INPUTS, COUNT); /* in place */
            bool rounds_less = size == 2 && muster_type_is_float((muster_type)type);
            if (!rounds_less || op == MUSTER_MIN || op == MUSTER_MAX) {
                assert_memory_equal(inputs[0], wanted, COUNT * size);
            }
        }
    }
}

static void add_with_user_data(void *out, const void *left, const void *right, size_t count,
                               muster_type type, void *user_data)
{
    *(size_t *)user_data += count;
    elements_reduce(type, MUSTER_SUM, out, left, right, count);
}

static void a_user_function_reduces_scaled_inputs(void **state)
{
    (void)state;
    int16_t first[] = {10, 20, 30};
    int16_t second[] = {1, 2, 3};
    const void *inputs[] = {first, second};
    size_t calls = 0;
    const struct muster_reduction reduction = {.type = MUSTER_INT16,
                                               .op = MUSTER_USER,
                                               .user_function = add_with_user_data,
                                               .user_data = &calls,
                                               .prescale = 2,
                                               .postscale = 1};
    int16_t out[3];
    muster_reduction_gather(&reduction, out, inputs, 2, 3);
    assert_true(out[0] == 22 && out[1] == 44 && out[2] == 66);
    assert_int_equal(calls, 3);
    assert_false(muster_reduction_has_finish(&reduction, 2));
}

static void true_becomes_1_even_without_a_reduction(void **state)
{
    (void)state;
    uint8_t truths[] = {0, 1, 7, 255};
    struct muster_reduction reduction = reduction_of(MUSTER_BOOL, MUSTER_BITWISE_XOR, 1, 1);
    muster_reduction_finish(&reduction, truths, 4, 1);
    assert_true(truths[0] == 0 && truths[1] == 1 && truths[2] == 1 && truths[3] == 1);
    int32_t numbers[] = {0, -5};
    reduction = reduction_of(MUSTER_INT32, MUSTER_LOGICAL_AND, 1, 1);
    muster_reduction_finish(&reduction, numbers, 2, 1);
    assert_true(numbers[0] == 0 && numbers[1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_kernels_are_right),
        cmocka_unit_test(the_kernels_of_the_second_table_are_right),
        cmocka_unit_test(the_kernels_of_the_third_table_are_right),
        cmocka_unit_test(the_kernels_of_the_fourth_table_are_right),
        cmocka_unit_test(all_tables_convert_and_scale_in_the_same_way),
        cmocka_unit_test(the_chosen_kernel_is_one_that_this_processor_runs),
        cmocka_unit_test(either_order_of_the_operands_gives_the_same_bits),
        cmocka_unit_test(sixteen_bit_floats_are_converted_according_to_the_standard),
        cmocka_unit_test(averages_are_divided_and_integers_truncated_toward_zero),
        cmocka_unit_test(integer_quotients_are_exact),
        cmocka_unit_test(every_quotient_of_a_short_integer_is_exact),
        cmocka_unit_test(scaled_integers_are_truncated_and_stay_within_their_type),
        cmocka_unit_test(sixteen_bit_floats_are_rounded_once_a_step),
        cmocka_unit_test(many_inputs_are_reduced_from_the_first_to_the_last),
        cmocka_unit_test(a_user_function_reduces_scaled_inputs),
        cmocka_unit_test(true_becomes_1_even_without_a_reduction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
