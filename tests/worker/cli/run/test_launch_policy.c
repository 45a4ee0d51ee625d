/* The launcher's decisions, without processes: when workers are started, and when too few are left.
 */
#include "worker/cli/run/launch_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TARGET = 4, MIN = 2, POLLED_NS = 100 };

static struct muster_launch_policy new_policy(void)
{
    struct muster_launch_policy policy;
    muster_launch_policy_init(&policy, TARGET);
    return policy;
}

/* A job of four workers that runs, all of this launcher. */
static struct muster_launch_view complete_job(void)
{
    return (struct muster_launch_view){
        .only_launcher = true,
        .may_grow = true,
        .running = TARGET,
        .running_max = 1024,
        .polled_ns = POLLED_NS,
        .phase = MUSTER_JOB_RUNNING,
        .min_size = MIN,
        .target_size = TARGET,
    };
}

static void a_job_that_is_as_it_should_be_needs_nothing(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = complete_job();
    struct muster_launch_decision decision = muster_launch_policy_decide(&policy, &view);
    assert_false(decision.resized);
    assert_false(decision.shortage);
    assert_int_equal(decision.start, 0);
}

static void a_larger_target_starts_what_is_missing_once(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = complete_job();
    view.target_size = 7;
    view.others = 1;
    struct muster_launch_decision decision = muster_launch_policy_decide(&policy, &view);
    assert_true(decision.resized);
    assert_int_equal(decision.present, 5);
    assert_int_equal(decision.start, 2);
    decision = muster_launch_policy_decide(&policy, &view);
    assert_false(decision.resized);
    assert_int_equal(decision.start, 0);
}

static void a_resize_to_the_same_target_starts_what_is_missing_once(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = complete_job();
    view.resizes = 3; /* before this launcher came */
    view.running = 2; /* two have died */
    assert_false(muster_launch_policy_decide(&policy, &view).resized);
    view.resizes = 4;
    struct muster_launch_decision decision = muster_launch_policy_decide(&policy, &view);
    assert_true(decision.resized);
    assert_int_equal(decision.start, 2);
    view.running = 4;
    decision = muster_launch_policy_decide(&policy, &view);
    assert_false(decision.resized);
    assert_int_equal(decision.start, 0);
}

static void a_smaller_or_a_met_target_starts_nothing(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = complete_job();
    view.running = 1; /* three have died: they are not replaced */
    view.target_size = 3;
    struct muster_launch_decision decision = muster_launch_policy_decide(&policy, &view);
    assert_true(decision.resized);
    assert_int_equal(decision.start, 0);
    view.running = 4;
    view.target_size = 4;
    decision = muster_launch_policy_decide(&policy, &view);
    assert_true(decision.resized);
    assert_int_equal(decision.start, 0);
}

static void nothing_is_started_that_may_not_be(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct muster_launch_policy policy = new_policy();
        struct muster_launch_view view = complete_job();
        view.target_size = i == 0 ? 0 : TARGET + 1;
        view.stopping = i == 1;
        view.phase = i == 2 ? MUSTER_JOB_ENDED : view.phase;
        view.may_grow = i != 3;
        struct muster_launch_decision decision = muster_launch_policy_decide(&policy, &view);
        assert_int_equal(decision.start, 0);
        assert_int_equal(decision.resized, i == 3);
    }
}

static void a_launcher_starts_no_more_than_it_may_run(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = complete_job();
    view.target_size = 9;
    view.running_max = 6;
    assert_int_equal(muster_launch_policy_decide(&policy, &view).start, 2);
}

/* Of the four workers, three have died, and the job waits for others. */
static struct muster_launch_view short_job(void)
{
    struct muster_launch_view view = complete_job();
    view.running = 1;
    view.phase = MUSTER_JOB_FORMING;
    view.last_end_ns = POLLED_NS - 1;
    return view;
}

static void a_shortage_is_decided_on_once(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = short_job();
    assert_true(muster_launch_policy_decide(&policy, &view).shortage);
    assert_false(muster_launch_policy_decide(&policy, &view).shortage);
}

static void a_view_older_than_the_last_end_proves_no_shortage(void **state)
{
    (void)state;
    struct muster_launch_policy policy = new_policy();
    struct muster_launch_view view = short_job();
    view.last_end_ns = POLLED_NS;
    assert_false(muster_launch_policy_decide(&policy, &view).shortage);
    view.polled_ns = POLLED_NS + 1;
    assert_true(muster_launch_policy_decide(&policy, &view).shortage);
}

static void there_is_no_shortage_while_workers_can_come_or_none_are_needed(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct muster_launch_policy policy = new_policy();
        struct muster_launch_view view = short_job();
        view.only_launcher = i != 0;
        view.stopping = i == 1;
        view.phase = i == 2 ? MUSTER_JOB_RUNNING : view.phase;
        view.running = i == 3 ? 0 : view.running;
        view.running = i == 4 ? MIN : view.running;
        view.target_size = i == 5 ? TARGET + 1 : view.target_size; /* which starts some */
        assert_false(muster_launch_policy_decide(&policy, &view).shortage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_is_as_it_should_be_needs_nothing),
        cmocka_unit_test(a_larger_target_starts_what_is_missing_once),
        cmocka_unit_test(a_resize_to_the_same_target_starts_what_is_missing_once),
        cmocka_unit_test(a_smaller_or_a_met_target_starts_nothing),
        cmocka_unit_test(nothing_is_started_that_may_not_be),
        cmocka_unit_test(a_launcher_starts_no_more_than_it_may_run),
        cmocka_unit_test(a_shortage_is_decided_on_once),
        cmocka_unit_test(a_view_older_than_the_last_end_proves_no_shortage),
        cmocka_unit_test(there_is_no_shortage_while_workers_can_come_or_none_are_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
