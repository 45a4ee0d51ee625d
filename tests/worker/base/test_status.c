/* Statuses, error texts, log levels, deadlines and UUIDs. */
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/base/random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void an_error_is_one_line_and_bounded(void **state)
{
    (void)state;
    char text[2 * MUSTER_ERROR_MAX];
    memset(text, 'x', sizeof text);
    text[3] = '\n';
    text[sizeof text - 1] = '\0';
    assert_int_equal(muster_error_set(MUSTER_INVALID, "%s", text), MUSTER_INVALID);
    assert_int_equal(strlen(muster_last_error()), MUSTER_ERROR_MAX - 1);
    assert_null(strchr(muster_last_error(), '\n'));
}

static void a_prefix_keeps_the_text_after_it(void **state)
{
    (void)state;
    (void)muster_error_set(MUSTER_REJOIN, "link reset");
    assert_int_equal(muster_error_prefix(MUSTER_REJOIN, "rank %d", 3), MUSTER_REJOIN);
    assert_string_equal(muster_last_error(), "rank 3: link reset");
    errno = ENOSPC;
    (void)muster_error_errno(MUSTER_FATAL, "%s", "job.db");
    assert_string_equal(muster_last_error(), "job.db: No space left on device");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = MUSTER_OK; i <= MUSTER_FATAL; i++) {
        assert_string_not_equal(muster_status_name((muster_status)i), "unknown");
    }
    assert_string_equal(muster_status_name((muster_status)99), "unknown");
}

static void a_wrong_log_level_is_named(void **state)
{
    (void)state;
    enum muster_log_level level = MUSTER_LOG_DEBUG;
    assert_int_equal(muster_log_parse_level("loud", &level), MUSTER_INVALID);
    assert_int_equal(level, MUSTER_LOG_DEBUG);
    assert_non_null(strstr(muster_last_error(), "\"loud\""));
    assert_int_equal(muster_log_parse_level("info", &level), MUSTER_OK);
    assert_int_equal(level, MUSTER_LOG_INFO);
}

static void no_time_is_left_after_a_deadline(void **state)
{
    (void)state;
    assert_int_equal(muster_clock_left_ms(muster_clock_ns() - 1), 0);
    int left_ms = muster_clock_left_ms(muster_clock_after_ms(60000));
    assert_in_range(left_ms, 1, 60000);
}

/* Short and long timeouts are read from different clocks. */
static void a_deadline_is_never_early_and_hardly_late(void **state)
{
    (void)state;
    for (int64_t timeout_ms = 1; timeout_ms < 1000 * 1000; timeout_ms += 1 + timeout_ms / 3) {
        int64_t before_ns = muster_clock_ns();
        int64_t deadline_ns = muster_clock_soon_after_ms((uint32_t)timeout_ms);
        int64_t timeout_ns = timeout_ms * MUSTER_NS_PER_MS;
        assert_true(deadline_ns >= before_ns + timeout_ns);
        assert_true(deadline_ns <= muster_clock_ns() + timeout_ns + timeout_ns / 100);
    }
}

static void uuids_have_the_right_shape(void **state)
{
    (void)state;
    char one[MUSTER_UUID_SIZE];
    char other[MUSTER_UUID_SIZE];
    muster_random_uuid(one);
    muster_random_uuid(other);
    assert_int_equal(strlen(one), MUSTER_UUID_SIZE - 1);
    assert_int_equal(one[14], '4');
    assert_string_not_equal(one, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_one_line_and_bounded),
        cmocka_unit_test(a_prefix_keeps_the_text_after_it),
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(a_wrong_log_level_is_named),
        cmocka_unit_test(no_time_is_left_after_a_deadline),
        cmocka_unit_test(a_deadline_is_never_early_and_hardly_late),
        cmocka_unit_test(uuids_have_the_right_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
