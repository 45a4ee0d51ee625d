/* Packs: the same bytes by the kernels of each instruction set, and the errors of each encoding. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/compress.h"
#include "collectives/reduce/tables.h"
#include "tests/support/schedules.h"
#include "worker/base/status.h"

enum { PACKS = 9, ELEMENTS = PACKS * MUSTER_PACK_ELEMENTS_MAX, ROUNDS = 400 };

static const muster_compression all[] = {MUSTER_COMPRESSION_BFLOAT16, MUSTER_COMPRESSION_FLOAT16,
                                         MUSTER_COMPRESSION_INT8};

static uint64_t seed;

/* Numbers of the magnitude 2^exponent, some zeros, and with `special` every now and then a NaN or
 * an infinity. */
static void fill(float *values, size_t count, int exponent, bool special, uint64_t *random)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, 1e-42F, -0.0F};
    for (size_t i = 0; i < count; i++) {
        double value = (double)(int64_t)test_random(random) * 0x1p-63;
        values[i] = (float)ldexp(value, exponent);
        if (test_random_below(random, 50) == 0) {
            values[i] = special ? specials[test_random_below(random, 5)] : 0;
        }
    }
}

static void all_kernels_make_the_same_packs(void **state)
{
    static float values[ELEMENTS];
    static float decoded[2][ELEMENTS];
    static unsigned char packs[2][PACKS * MUSTER_PACK_BYTES_MAX];
    struct muster_kernel_table tables[MUSTER_KERNEL_TABLES_MAX];
    uint64_t random = seed;
    (void)state;
    muster_kernel_tables(tables);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        fill(values, ELEMENTS, (int)test_random_below(&random, 250) - 130, round % 4 == 0, &random);
        if (round % 16 == 1) {
            memset(values, 0, sizeof values / 2);
        }
        memset(packs, 0, sizeof packs);
        tables[0].kernels->pack_int8(packs[0], values, PACKS);
        tables[0].kernels->unpack_int8(decoded[0], packs[0], PACKS);
        for (size_t i = 1; i < MUSTER_KERNEL_TABLES_MAX && tables[i].usable; i++) {
            tables[i].kernels->pack_int8(packs[1], values, PACKS);
            tables[i].kernels->unpack_int8(decoded[1], packs[1], PACKS);
            assert_memory_equal(packs[0], packs[1], sizeof packs[0]);
            assert_memory_equal(decoded[0], decoded[1], sizeof decoded[0]);
        }
    }
}

/* The most that one encoding changes an element; `most` is the largest magnitude of its pack. */
static double bound(muster_compression compression, double value, double most)
{
    switch (compression) {
    case MUSTER_COMPRESSION_INT8:
        return most / 253;
    case MUSTER_COMPRESSION_FLOAT16:
        return fabs(value) * 0x1p-11 + 0x1p-25;
    default:
        return fabs(value) * 0x1p-8;
    }
}

static double largest_of_pack(const float *values, size_t count, size_t index, size_t each)
{
    double most = 0;
    for (size_t i = index / each * each; i < count && i < index / each * each + each; i++) {
        most = fmax(most, fabsf(values[i]));
    }
    return most;
}

static void encoding_changes_no_element_by_more_than_its_bound(void **state)
{
    static float values[ELEMENTS];
    static float decoded[ELEMENTS + 1];
    static unsigned char packs[ELEMENTS / 128 * MUSTER_PACK_BYTES_MAX + MUSTER_PACK_BYTES_MAX];
    uint64_t random = seed;
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        muster_compression compression = all[round % 3];
        size_t each = muster_pack_elements(compression);
        size_t count = test_random_below(&random, ELEMENTS) + 1;
        fill(values, count, (int)test_random_below(&random, 14), false, &random);
        decoded[count] = 77;
        muster_compress(compression, packs, values, count);
        muster_decompress(compression, decoded, packs, count);
        assert_true(decoded[count] == 77); /* nothing behind the last element is written */
        for (size_t i = 0; i < count; i++) {
            double most = largest_of_pack(values, count, i, each);
            if (!(fabs((double)decoded[i] - values[i]) <= bound(compression, values[i], most))) {
                fail_msg("%s: element %zu of %zu: %.9g became %.9g (seed %llu)",
                         muster_compression_name(compression), i, count, values[i], decoded[i],
                         (unsigned long long)seed);
            }
        }
        /* The elements that a pack lacks are zeros. */
        size_t whole = (count + each - 1) / each * each;
        muster_decompress(compression, decoded, packs, whole < ELEMENTS ? whole : count);
        for (size_t i = count; i < whole && whole < ELEMENTS; i++) {
            assert_true(decoded[i] == 0);
        }
    }
}

static void a_value_that_is_not_finite_makes_its_int8_pack_nan(void **state)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY};
    float values[2 * 240];
    float decoded[2 * 240];
    unsigned char packs[2 * 244];
    uint64_t random = seed;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fill(values, 480, 3, false, &random);
        values[240 + 17] = specials[i];
        muster_compress(MUSTER_COMPRESSION_INT8, packs, values, 480);
        muster_decompress(MUSTER_COMPRESSION_INT8, decoded, packs, 480);
        for (size_t j = 0; j < 240; j++) {
            assert_true(isfinite(decoded[j]));
            assert_true(isnan(decoded[240 + j]));
        }
    }
}

static void reducing_packs_gives_the_same_bytes_for_either_order(void **state)
{
    static const muster_op ops[] = {MUSTER_SUM, MUSTER_AVERAGE, MUSTER_MIN, MUSTER_MAX};
    static float values[2][ELEMENTS];
    static unsigned char packs[4][PACKS * MUSTER_PACK_BYTES_MAX];
    uint64_t random = seed;
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        muster_compression compression = all[round % 3];
        muster_op op = ops[round / 3 % 4];
        size_t count = PACKS * muster_pack_elements(compression);
        size_t bytes = PACKS * (size_t)muster_pack_bytes(compression);
        for (size_t i = 0; i < 2; i++) {
            fill(values[i], count, 5, round % 5 == 0, &random);
            muster_compress(compression, packs[i], values[i], count);
        }
        muster_compress_combine(compression, op, packs[2], packs[0], packs[1], PACKS);
        muster_compress_combine(compression, op, packs[3], packs[1], packs[0], PACKS);
        assert_memory_equal(packs[2], packs[3], bytes);
        muster_compress_combine(compression, op, packs[0], packs[0], packs[1],
                                PACKS); /* in place */
        assert_memory_equal(packs[0], packs[2], bytes);
    }
}

static void the_callers_rounding_changes_nothing(void **state)
{
    static float values[ELEMENTS];
    static unsigned char packs[2][PACKS * MUSTER_PACK_BYTES_MAX];
    uint64_t random = seed;
    (void)state;
    fill(values, ELEMENTS, 2, false, &random);
    for (size_t i = 0; i < 3; i++) {
        size_t count = PACKS * muster_pack_elements(all[i]);
        memset(packs, 0, sizeof packs);
        muster_compress(all[i], packs[0], values, count);
        assert_int_equal(fesetround(FE_UPWARD), 0);
        muster_compress(all[i], packs[1], values, count);
        assert_int_equal(fegetround(), FE_UPWARD);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        assert_memory_equal(packs[0], packs[1], sizeof packs[0]);
    }
}

static void names_and_calls_are_checked(void **state)
{
    muster_compression compression = MUSTER_COMPRESSION_DEFAULT;
    (void)state;
    for (unsigned i = 1; i < MUSTER_COMPRESSION_COUNT; i++) {
        assert_int_equal(muster_compression_parse(muster_compression_name(i), &compression),
                         MUSTER_OK);
        assert_int_equal(compression, i);
    }
    assert_int_equal(muster_compression_parse("default", &compression), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "none, bfloat16, float16, int8"));
    assert_string_equal(muster_compression_name(5), "unknown");
    const muster_compression int8 = MUSTER_COMPRESSION_INT8;
    assert_int_equal(
        muster_compression_check(int8, MUSTER_ALLREDUCE, MUSTER_FLOAT32, MUSTER_AVERAGE),
        MUSTER_OK);
    assert_int_equal(muster_compression_check(int8, MUSTER_ALLREDUCE, MUSTER_FLOAT64, MUSTER_SUM),
                     MUSTER_INVALID);
    assert_int_equal(muster_compression_check(int8, MUSTER_ALLREDUCE, MUSTER_FLOAT32, MUSTER_PROD),
                     MUSTER_INVALID);
    assert_int_equal(muster_compression_check(int8, MUSTER_REDUCE, MUSTER_FLOAT32, MUSTER_SUM),
                     MUSTER_INVALID);
    assert_int_equal(muster_compression_check(MUSTER_COMPRESSION_NONE, MUSTER_REDUCE,
                                              MUSTER_FLOAT64, MUSTER_PROD),
                     MUSTER_OK);
}

/* The packs of a span, one block after the other, cover each element once. The blocks are in the
 * order given, and a buffer that has none is not. */
static void packs_cover_every_element_of_every_block_once(void **state)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 0, 1}};
    (void)state;
    for (uint64_t elements = 1; elements < 600; elements += 7) {
        const uint64_t blocks = 3;
        struct muster_packing packing = muster_packing_of(all[elements % 3], elements);
        struct muster_span span = {.count = blocks * packing.block_packs};
        const uint32_t *order = orders[elements % 2];
        uint64_t covered = 0;
        packing.order = elements % 2 == 0 ? NULL : order;
        while (span.count > 0) {
            uint64_t packs = 0;
            struct muster_span some = muster_packing_elements(&packing, true, span, &packs);
            assert_int_equal(some.offset,
                             order[covered / elements] * elements + covered % elements);
            covered += some.count;
            some = muster_packing_elements(&packing, false, span, &packs);
            assert_int_equal(some.offset + some.count, covered);
            span.offset += packs;
            span.count -= packs;
        }
        assert_int_equal(covered, blocks * elements);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels_make_the_same_packs),
        cmocka_unit_test(encoding_changes_no_element_by_more_than_its_bound),
        cmocka_unit_test(a_value_that_is_not_finite_makes_its_int8_pack_nan),
        cmocka_unit_test(reducing_packs_gives_the_same_bytes_for_either_order),
        cmocka_unit_test(the_callers_rounding_changes_nothing),
        cmocka_unit_test(names_and_calls_are_checked),
        cmocka_unit_test(packs_cover_every_element_of_every_block_once),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
