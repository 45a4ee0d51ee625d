/* A job grows, loses a member by kill -9, shrinks by SIGTERM and finishes. Every sum of every step
 * counts every member of its generation once (the worker program checks that), and all members end
 * with the same state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/workers.h"

enum { WAIT_MS = 60000, LINES_BETWEEN = 2 };

static struct test_service service;
static struct test_workers workers;

static int begin(void **state)
{
    (void)state;
    return test_workers_set_up(&workers, &service, NULL, "sums", "contributions") ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
}

static void start(const char *host)
{
    assert_true(test_workers_start(&workers, host) >= 0);
}

/* The worker does some dozens of steps more. */
static void await_progress(uint32_t index)
{
    assert_true(test_workers_progress(&workers, index, LINES_BETWEEN, WAIT_MS));
}

static uint64_t wait_for_size(uint32_t size, uint64_t after)
{
    uint64_t generation = test_workers_wait_size(&workers, size, after, WAIT_MS);
    assert_true(generation > after);
    return generation;
}

static void start_four(void)
{
    workers.min_size = 2;
    workers.target_size = 4;
    for (int i = 0; i < 4; i++) {
        start(i < 2 ? "host-a" : "host-b");
    }
}

static void growing_killing_and_shrinking_lose_nothing(void **state)
{
    (void)state;
    start_four();
    uint64_t generation = wait_for_size(4, 0);
    await_progress(0);

    start("host-a");
    start("host-b");
    generation = wait_for_size(6, generation);
    await_progress(0);

    test_workers_signal(&workers, 1, SIGKILL);
    generation = wait_for_size(5, generation);
    assert_int_equal(test_workers_wait(&workers, 1, WAIT_MS), -SIGKILL);
    await_progress(0);

    test_workers_signal(&workers, 2, SIGTERM);
    (void)wait_for_size(4, generation);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), 3); /* it has left */
    await_progress(0);

    test_workers_finish(&workers);
    static const uint32_t rest[] = {0, 3, 4, 5};
    assert_true(test_workers_agree(&workers, rest, 4, WAIT_MS));
}

/* One of them is rank 0, which sends the state to newcomers. */
static void two_members_may_die_at_once(void **state)
{
    (void)state;
    start_four();
    uint64_t generation = wait_for_size(4, 0);
    await_progress(1);
    test_workers_signal(&workers, 0, SIGKILL);
    test_workers_signal(&workers, 3, SIGKILL);
    generation = wait_for_size(2, generation);
    await_progress(1);
    start("host-b");
    (void)wait_for_size(3, generation);
    await_progress(1);
    test_workers_finish(&workers);
    static const uint32_t rest[] = {1, 2, 4};
    assert_true(test_workers_agree(&workers, rest, 3, WAIT_MS));
}

/* The number of generations so far. There may be smaller ones before the one that a test waits for:
 * the service waits for late members for a short time only. */
static uint32_t count_generations(void)
{
    struct muster_job_response job = {0};
    assert_true(test_service_job(&service, "sums", &job));
    uint32_t count = job.generation_count;
    muster_job_response_finish(&job);
    return count;
}

static void a_newcomer_with_another_layout_ends_and_the_others_go_on(void **state)
{
    (void)state;
    static const uint32_t rest[] = {0, 1, 2, 4};
    struct muster_job_response job = {0};
    workers.min_size = 2;
    workers.target_size = 3;
    for (int i = 0; i < 3; i++) {
        start(i < 2 ? "host-a" : "host-b");
    }
    uint64_t generation = wait_for_size(3, 0);
    await_progress(0);
    uint32_t before = count_generations();
    (void)setenv("CONTRIBUTIONS_SPARE", "48", 1);
    start("host-b");
    (void)unsetenv("CONTRIBUTIONS_SPARE");
    assert_int_equal(test_workers_wait(&workers, 3, WAIT_MS), 2);
    generation = wait_for_size(3, generation + 1);
    await_progress(0);
    assert_true(test_service_job(&service, "sums", &job));
    assert_int_equal(job.departure_count, 1);
    assert_int_equal(job.departures[0].reason, MUSTER_LEAVE_FAILED);
    assert_non_null(strstr(job.departures[0].why, "\"spare\" with 48 bytes"));
    assert_int_equal(job.generation_count, before + 2); /* with it, and without it */
    muster_job_response_finish(&job);
    start("host-b");
    (void)wait_for_size(4, generation);
    await_progress(4);
    test_workers_finish(&workers);
    assert_true(test_workers_agree(&workers, rest, 4, WAIT_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(growing_killing_and_shrinking_lose_nothing, begin, end),
        cmocka_unit_test_setup_teardown(two_members_may_die_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_newcomer_with_another_layout_ends_and_the_others_go_on,
                                        begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
