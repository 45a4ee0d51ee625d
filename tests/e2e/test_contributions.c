/* A job grows, loses a member by kill -9, shrinks by SIGTERM and finishes: every sum of every step
 * holds every member of its generation once (the program checks), and all end with the same state.
 */
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

enum { WAIT_MS = 60000, STEPS_BETWEEN = 2 };

static struct test_service service;
static struct test_workers workers;

static int begin(void **state)
{
    (void)state;
    if (!test_service_start(&service, NULL)) {
        return -1;
    }
    test_workers_init(&workers, &service, "sums", "contributions");
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_workers_end(&workers);
    return test_service_stop(&service) == 0 ? 0 : -1;
}

static void start(const char *host)
{
    assert_true(test_workers_start(&workers, host) >= 0);
}

/* The job has moved on by some dozens of steps since. */
static void let_it_work(uint32_t index)
{
    char line[128];
    unsigned seen = test_workers_lines(&workers, index, "step ");
    assert_true(test_workers_line(&workers, index, "step ", seen + STEPS_BETWEEN - 1, WAIT_MS, line,
                                  sizeof line));
}

static uint64_t wait_for_size(uint32_t size, uint64_t after)
{
    uint64_t generation = test_workers_wait_size(&workers, size, after, WAIT_MS);
    assert_true(generation > after);
    return generation;
}

static void expect_last_words(uint32_t index, const char *expected)
{
    char line[128] = "";
    assert_true(test_workers_line(&workers, index, "done ", 0, WAIT_MS, line, sizeof line));
    assert_string_equal(line, expected);
}

static void growing_killing_and_shrinking_lose_nothing(void **state)
{
    (void)state;
    char expected[128] = "";
    workers.min_size = 2;
    workers.target_size = 4;
    for (int i = 0; i < 4; i++) {
        start(i < 2 ? "host-a" : "host-b");
    }
    uint64_t generation = wait_for_size(4, 0);
    let_it_work(0);

    start("host-a");
    start("host-b");
    generation = wait_for_size(6, generation);
    let_it_work(0);

    test_workers_signal(&workers, 1, SIGKILL);
    generation = wait_for_size(5, generation);
    assert_int_equal(test_workers_wait(&workers, 1, WAIT_MS), -SIGKILL);
    let_it_work(0);

    test_workers_signal(&workers, 2, SIGTERM);
    (void)wait_for_size(4, generation);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), 3); /* it says that it left */
    let_it_work(0);

    test_workers_finish(&workers);
    static const uint32_t rest[] = {0, 3, 4, 5};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(test_workers_wait(&workers, rest[i], WAIT_MS), 0);
    }
    assert_true(test_workers_line(&workers, 0, "done ", 0, WAIT_MS, expected, sizeof expected));
    for (size_t i = 1; i < 4; i++) {
        expect_last_words(rest[i], expected);
    }
}

/* Two deaths at once, one of them rank 0, which holds the state for newcomers. */
static void two_may_die_at_once(void **state)
{
    (void)state;
    char expected[128] = "";
    workers.min_size = 2;
    workers.target_size = 4;
    for (int i = 0; i < 4; i++) {
        start(i < 2 ? "host-a" : "host-b");
    }
    uint64_t generation = wait_for_size(4, 0);
    let_it_work(1);
    test_workers_signal(&workers, 0, SIGKILL);
    test_workers_signal(&workers, 3, SIGKILL);
    generation = wait_for_size(2, generation);
    let_it_work(1);
    start("host-b");
    (void)wait_for_size(3, generation);
    let_it_work(1);
    test_workers_finish(&workers);
    assert_int_equal(test_workers_wait(&workers, 1, WAIT_MS), 0);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), 0);
    assert_int_equal(test_workers_wait(&workers, 4, WAIT_MS), 0);
    assert_true(test_workers_line(&workers, 1, "done ", 0, WAIT_MS, expected, sizeof expected));
    expect_last_words(2, expected);
    expect_last_words(4, expected);
}

/* The generations that there have been. Before the size that is waited for there may be smaller
 * ones: the service does not wait for long for those that come late. */
static uint32_t count_generations(void)
{
    struct muster_job_response job = {0};
    assert_true(test_service_job(&service, "sums", &job));
    uint32_t count = job.generation_count;
    muster_job_response_finish(&job);
    return count;
}

/* A newcomer with another state is the one that is wrong, and the job goes on without it. */
static void a_newcomer_with_another_layout_goes_and_the_others_go_on(void **state)
{
    (void)state;
    static const uint32_t good[] = {0, 1, 2, 4};
    struct muster_job_response job = {0};
    workers.min_size = 2;
    workers.target_size = 3;
    for (int i = 0; i < 3; i++) {
        start(i < 2 ? "host-a" : "host-b");
    }
    uint64_t generation = wait_for_size(3, 0);
    let_it_work(0);
    uint32_t before = count_generations();
    (void)setenv("CONTRIBUTIONS_SPARE", "48", 1);
    start("host-b");
    (void)unsetenv("CONTRIBUTIONS_SPARE");
    assert_int_equal(test_workers_wait(&workers, 3, WAIT_MS), 2);
    generation = wait_for_size(3, generation + 1);
    let_it_work(0);
    assert_true(test_service_job(&service, "sums", &job));
    assert_int_equal(job.departure_count, 1);
    assert_int_equal(job.departures[0].reason, MUSTER_LEAVE_FAILED);
    assert_non_null(strstr(job.departures[0].why, "\"spare\" with 48 bytes"));
    assert_int_equal(job.generation_count, before + 2); /* with it, and without it */
    muster_job_response_finish(&job);
    start("host-b");
    (void)wait_for_size(4, generation);
    let_it_work(4);
    test_workers_finish(&workers);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(test_workers_wait(&workers, good[i], WAIT_MS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(growing_killing_and_shrinking_lose_nothing, begin, end),
        cmocka_unit_test_setup_teardown(two_may_die_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_newcomer_with_another_layout_goes_and_the_others_go_on,
                                        begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
