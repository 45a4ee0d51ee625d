/* Results written past the caches equal those written as usual. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/reduce/stream.h"
#include "tests/support/elements.h"
#include "tests/support/schedules.h"

enum { LINE = 64, ROOM = 8192, GUARD = 0xee };

static const size_t counts[] = {0, 1, 15, 63, 64, 65, 127, 128, 200, 700};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void expect_untouched_around(const unsigned char *target, size_t size_bytes)
{
    assert_int_equal(target[-1], GUARD);
    assert_int_equal(target[size_bytes], GUARD);
}

static void copies_are_copies_at_every_alignment(void **state)
{
    (void)state;
    unsigned char source[ROOM];
    unsigned char target[ROOM];
    uint64_t random = test_seed();
    elements_fill(MUSTER_UINT8, source, ROOM, &random);
    for (size_t at = 0; at < LINE; at++) {
        for (size_t i = 0; i < COUNTS; i++) {
            size_t from = (5 * at + i) % LINE;
            memset(target, GUARD, ROOM);
            muster_stream_copy(target + LINE + at, source + from, counts[i]);
            assert_memory_equal(target + LINE + at, source + from, counts[i]);
            expect_untouched_around(target + LINE + at, counts[i]);
        }
    }
}

static void copy_left(void *out, const void *left, const void *right, size_t count,
                      muster_type type, void *user_data)
{
    (void)right;
    (void)user_data;
    memcpy(out, left, count * muster_type_size_bytes(type));
}

static void check_combine(const struct muster_reduction *reduction, size_t start, size_t count,
                          uint64_t *random)
{
    static _Alignas(LINE) unsigned char left[ROOM];
    static _Alignas(LINE) unsigned char right[ROOM];
    static _Alignas(LINE) unsigned char target[ROOM];
    static _Alignas(LINE) unsigned char wanted[ROOM];
    size_t size = muster_type_size_bytes(reduction->type);
    unsigned char *a = left + 3 * size;
    unsigned char *b = right + start % 5 * size;
    unsigned char *out = target + LINE + start * size;
    elements_fill(reduction->type, a, count, random);
    elements_fill(reduction->type, b, count, random);
    memset(target, GUARD, ROOM);
    muster_reduction_combine(reduction, wanted, a, b, count);
    muster_stream_combine(reduction, out, a, b, count);
    assert_memory_equal(out, wanted, count * size);
    expect_untouched_around(out, count * size);
}

static void results_are_those_of_the_kernels(void **state)
{
    (void)state;
    static const struct muster_reduction reductions[] = {
        {.type = MUSTER_FLOAT32, .op = MUSTER_SUM},
        {.type = MUSTER_FLOAT64, .op = MUSTER_MAX},
        {.type = MUSTER_BFLOAT16, .op = MUSTER_AVERAGE},
        {.type = MUSTER_UINT8, .op = MUSTER_BITWISE_XOR},
        {.type = MUSTER_BOOL, .op = MUSTER_LOGICAL_AND},
        {.type = MUSTER_INT16, .op = MUSTER_USER, .user_function = copy_left},
    };
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++) {
        for (size_t start = 0; start < LINE; start += 3) {
            for (size_t j = 0; j < COUNTS; j++) {
                check_combine(&reductions[i], start, counts[j], &random);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_copies_at_every_alignment),
        cmocka_unit_test(results_are_those_of_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
