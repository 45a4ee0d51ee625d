/* The floor: options as users write them. */
#include "worker/base/option_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const no_numbers[] = {
    "", "many", "-1", "+1", " 4", "4 ", "4x", "0x4", "1.5", "1e3", "99999999999999999999"};
enum { NO_NUMBERS = sizeof no_numbers / sizeof no_numbers[0] };

static void expect_text(muster_status status, const char *text)
{
    assert_int_equal(status, MUSTER_INVALID);
    assert_string_equal(muster_last_error(), text);
}

static void a_number_is_digits_within_its_bounds(void **state)
{
    (void)state;
    uint32_t number = 7;
    assert_int_equal(muster_option_parse_number("-n", "1", 1, 8, &number), MUSTER_OK);
    assert_int_equal(number, 1);
    assert_int_equal(muster_option_parse_number("-n", "008", 1, 8, &number), MUSTER_OK);
    assert_int_equal(number, 8);
    expect_text(muster_option_parse_number("-n", "9", 1, 8, &number),
                "-n: \"9\" is not a number from 1 to 8");
    expect_text(muster_option_parse_number("-n", "0", 1, 8, &number),
                "-n: \"0\" is not a number from 1 to 8");
    for (size_t i = 0; i < NO_NUMBERS; i++) {
        assert_int_equal(muster_option_parse_number("-n", no_numbers[i], 0, UINT32_MAX, &number),
                         MUSTER_INVALID);
    }
    assert_int_equal(number, 8);
}

static void an_empty_variable_counts_as_none(void **state)
{
    (void)state;
    assert_int_equal(setenv("MUSTER_X", "", 1), 0);
    assert_null(muster_option_variable("MUSTER_X"));
    assert_int_equal(muster_option_read_number("MUSTER_X", 5), 5);
    assert_int_equal(muster_option_read_switch("MUSTER_X", 1), 1);
    assert_int_equal(unsetenv("MUSTER_X"), 0);
    assert_null(muster_option_variable("MUSTER_X"));
    assert_int_equal(setenv("MUSTER_X", "0", 1), 0);
    assert_string_equal(muster_option_variable("MUSTER_X"), "0");
    assert_int_equal(muster_option_read_number("MUSTER_X", 5), 0);
    assert_int_equal(muster_option_read_switch("MUSTER_X", 1), 0);
}

static void a_check_says_what_is_wrong_with_the_variable(void **state)
{
    (void)state;
    const struct muster_option_range range = {"size", "MUSTER_X", 2, 4};
    for (size_t i = 1; i < NO_NUMBERS; i++) {
        char text[80];
        assert_int_equal(setenv("MUSTER_X", no_numbers[i], 1), 0);
        (void)snprintf(text, sizeof text, "MUSTER_X=\"%s\": must be a number from 2 to 4",
                       no_numbers[i]);
        expect_text(muster_option_check_number(muster_option_read_number("MUSTER_X", 3), range),
                    text);
        assert_int_equal(muster_option_read_switch("MUSTER_X", 0), -1);
    }
    assert_int_equal(setenv("MUSTER_X", "5", 1), 0);
    expect_text(muster_option_check_number(muster_option_read_number("MUSTER_X", 3), range),
                "size (MUSTER_X) 5: must be from 2 to 4");
    assert_int_equal(muster_option_check_number(4, range), MUSTER_OK);
    expect_text(muster_option_check_switch(2, "size", "MUSTER_X"),
                "size (MUSTER_X) 2: must be from 0 to 1");
    assert_int_equal(muster_option_check_switch(1, "size", "MUSTER_X"), MUSTER_OK);
}

static void a_copy_of_nothing_is_nothing(void **state)
{
    (void)state;
    char *copy = NULL;
    assert_int_equal(muster_option_copy("eth0", &copy), MUSTER_OK);
    assert_string_equal(copy, "eth0");
    free(copy);
    assert_int_equal(muster_option_copy(NULL, &copy), MUSTER_OK);
    assert_null(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_digits_within_its_bounds),
        cmocka_unit_test(an_empty_variable_counts_as_none),
        cmocka_unit_test(a_check_says_what_is_wrong_with_the_variable),
        cmocka_unit_test(a_copy_of_nothing_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
