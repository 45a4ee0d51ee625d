/* When a member reports that its calls wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/base/clock.h"
#include "worker/session/stall_report.h"

enum { LEASE_MS = 5000, MOST_MS = 30000 };

static struct muster_stall_watch watch;

static bool look(bool calls_wait, uint64_t progress, int64_t now_ms)
{
    return muster_stall_watch_look(&watch, calls_wait, progress, LEASE_MS, MOST_MS,
                                   now_ms * MUSTER_NS_PER_MS);
}

static int begin(void **state)
{
    (void)state;
    watch = (struct muster_stall_watch){0};
    (void)look(true, 7, 1000);
    return 0;
}

static void a_call_that_waits_for_a_lease_is_reported_then_after_twice_the_time(void **state)
{
    (void)state;
    int64_t at_ms = 1000;
    static const int64_t pauses_ms[] = {5000, 10000, 20000, 30000, 30000};
    for (size_t i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        assert_false(look(true, 7, at_ms + pauses_ms[i] - 1));
        at_ms += pauses_ms[i];
        assert_true(look(true, 7, at_ms));
    }
}

static void an_operation_that_finishes_begins_the_time_anew(void **state)
{
    (void)state;
    assert_true(look(true, 7, 6000));
    assert_false(look(true, 8, 15999));
    assert_false(look(true, 8, 20998));
    assert_true(look(true, 8, 20999));
}

static void who_does_not_wait_reports_nothing(void **state)
{
    (void)state;
    assert_false(look(false, 7, 100000));
    assert_false(look(true, 7, 104999));
    assert_true(look(true, 7, 105000));
}

static void what_the_service_asked_is_not_reported_again(void **state)
{
    (void)state;
    muster_stall_watch_asked(&watch, MOST_MS, INT64_C(5999) * MUSTER_NS_PER_MS);
    assert_false(look(true, 7, 6000));
    assert_false(look(true, 7, 15998));
    assert_true(look(true, 7, 15999));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_call_that_waits_for_a_lease_is_reported_then_after_twice_the_time,
                               begin),
        cmocka_unit_test_setup(an_operation_that_finishes_begins_the_time_anew, begin),
        cmocka_unit_test_setup(who_does_not_wait_reports_nothing, begin),
        cmocka_unit_test_setup(what_the_service_asked_is_not_reported_again, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
