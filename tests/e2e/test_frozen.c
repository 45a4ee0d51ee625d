/* A worker that is stopped (SIGSTOP) and woken again, and a service that dies under the job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/workers.h"

enum { WAIT_MS = 60000 };

static struct test_service service;
static struct test_workers workers;
static const char *const short_lease[] = {"--lease-ms=1500", "--hold-ms=300", "--suspect-ms=1000",
                                          NULL};

static int begin(void **state)
{
    (void)state;
    if (!test_service_start(&service, short_lease)) {
        return -1;
    }
    test_workers_init(&workers, &service, "frozen", "contributions");
    workers.min_size = 2;
    workers.target_size = 4;
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_workers_end(&workers);
    return test_service_stop(&service) == 0 ? 0 : -1;
}

static uint64_t start_four(void)
{
    for (int i = 0; i < 4; i++) {
        assert_true(test_workers_start(&workers, i < 2 ? "host-a" : "host-b") >= 0);
    }
    uint64_t generation = test_workers_wait_size(&workers, 4, 0, WAIT_MS);
    assert_true(generation > 0);
    return generation;
}

static void let_it_work(uint32_t index)
{
    char line[128];
    unsigned seen = test_workers_lines(&workers, index, "step ");
    assert_true(test_workers_line(&workers, index, "step ", seen + 1, WAIT_MS, line, sizeof line));
}

/* Ends the job; all that are still there must have the same last words. */
static void finish(const uint32_t *indices, size_t count)
{
    char expected[128] = "";
    test_workers_finish(&workers);
    for (size_t i = 0; i < count; i++) {
        char line[128] = "";
        assert_int_equal(test_workers_wait(&workers, indices[i], WAIT_MS), 0);
        assert_true(
            test_workers_line(&workers, indices[i], "done ", 0, WAIT_MS, line, sizeof line));
        if (i == 0) {
            memcpy(expected, line, sizeof expected);
        }
        assert_string_equal(line, expected);
    }
}

static void a_frozen_worker_is_left_behind_and_comes_back_as_a_newcomer(void **state)
{
    (void)state;
    static const uint32_t all[] = {0, 1, 2, 3};
    uint64_t generation = start_four();
    let_it_work(0);
    test_workers_signal(&workers, 2, SIGSTOP);
    generation = test_workers_wait_size(&workers, 3, generation, WAIT_MS);
    assert_true(generation > 0);
    let_it_work(0);
    test_workers_signal(&workers, 2, SIGCONT);
    assert_true(test_workers_wait_size(&workers, 4, generation, WAIT_MS) > 0);
    let_it_work(0);
    let_it_work(2);
    finish(all, 4);
}

static void a_job_does_not_notice_that_its_service_dies(void **state)
{
    (void)state;
    static const uint32_t rest[] = {0, 1, 3};
    uint64_t generation = start_four();
    let_it_work(0);
    test_service_kill(&service);
    let_it_work(0);
    let_it_work(3);
    assert_true(test_service_restart(&service, short_lease));
    let_it_work(0);
    struct muster_job_response job = {0};
    assert_true(test_service_job(&service, "frozen", &job));
    assert_int_equal(job.generation, generation); /* nobody had to join again */
    assert_int_equal(job.member_count, 4);
    muster_job_response_finish(&job);
    test_workers_signal(&workers, 2, SIGKILL); /* and it still looks after the job */
    assert_true(test_workers_wait_size(&workers, 3, generation, WAIT_MS) > 0);
    let_it_work(0);
    finish(rest, 3);
}

static void a_death_while_the_service_is_away_is_survived_when_it_is_back(void **state)
{
    (void)state;
    static const uint32_t rest[] = {0, 1, 3};
    uint64_t generation = start_four();
    let_it_work(0);
    test_service_kill(&service);
    test_workers_signal(&workers, 2, SIGKILL);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), -SIGKILL);
    assert_true(test_service_restart(&service, short_lease));
    assert_true(test_workers_wait_size(&workers, 3, generation, WAIT_MS) > 0);
    let_it_work(0);
    finish(rest, 3);
}

/* It looks at its clock before it hears the members that waited: their silence was its own. */
static void a_service_that_slept_longer_than_a_lease_declares_nobody_dead(void **state)
{
    (void)state;
    static const uint32_t rest[] = {0, 1, 3};
    uint64_t generation = start_four();
    let_it_work(0);
    assert_int_equal(kill(service.pid, SIGSTOP), 0);
    (void)sleep(2); /* more than the lease: the passing of time is what is tested */
    assert_int_equal(kill(service.pid, SIGCONT), 0);
    let_it_work(0);
    struct muster_job_response job = {0};
    assert_true(test_service_job(&service, "frozen", &job));
    assert_int_equal(job.generation, generation);
    assert_int_equal(job.member_count, 4);
    muster_job_response_finish(&job);
    test_workers_signal(&workers, 2, SIGKILL); /* and it still looks after the job */
    assert_true(test_workers_wait_size(&workers, 3, generation, WAIT_MS) > 0);
    let_it_work(0);
    finish(rest, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_frozen_worker_is_left_behind_and_comes_back_as_a_newcomer,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_job_does_not_notice_that_its_service_dies, begin, end),
        cmocka_unit_test_setup_teardown(
            a_death_while_the_service_is_away_is_survived_when_it_is_back, begin, end),
        cmocka_unit_test_setup_teardown(
            a_service_that_slept_longer_than_a_lease_declares_nobody_dead, begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
