/* Little-endian numbers in byte strings. */
#include "worker/base/bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void the_lowest_byte_of_a_number_comes_first(void **state)
{
    (void)state;
    static const unsigned char expected[] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    for (size_t size = 1; size <= sizeof expected; size++) {
        unsigned char bytes[sizeof expected + 1];
        memset(bytes, 0xee, sizeof bytes);
        muster_bytes_put(bytes, UINT64_C(0x1122334455667788), size);
        assert_memory_equal(bytes, expected, size);
        assert_int_equal(bytes[size], 0xee);
        uint64_t mask = UINT64_MAX >> (64 - 8 * size);
        assert_int_equal(muster_bytes_get(bytes, size), UINT64_C(0x1122334455667788) & mask);
    }
}

static void a_float_has_the_bytes_of_its_bits_and_keeps_them(void **state)
{
    (void)state;
    static const unsigned char minus_two[] = {0, 0, 0, 0, 0, 0, 0, 0xc0};
    static const double values[] = {0.0, -0.0, 1.5e-310, -1e300, INFINITY, -INFINITY, NAN};
    unsigned char bytes[8];
    muster_bytes_put_double(bytes, -2);
    assert_memory_equal(bytes, minus_two, sizeof bytes);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        muster_bytes_put_double(bytes, values[i]);
        double got = muster_bytes_get_double(bytes);
        assert_memory_equal(&got, &values[i], sizeof got);
    }
}

static void another_size_is_named(void **state)
{
    (void)state;
    assert_int_equal(muster_bytes_check_size("ticket", 12, 12), MUSTER_OK);
    assert_int_equal(muster_bytes_check_size("ticket", 11, 12), MUSTER_FATAL);
    assert_string_equal(muster_last_error(), "ticket of 11 bytes, expected 12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_byte_of_a_number_comes_first),
        cmocka_unit_test(a_float_has_the_bytes_of_its_bits_and_keeps_them),
        cmocka_unit_test(another_size_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
