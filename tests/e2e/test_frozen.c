/* A worker that is stopped (SIGSTOP) and continued, and a service that dies or stops during a job.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
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
    bool serves = test_workers_set_up(&workers, &service, short_lease, "frozen", "contributions");
    workers.min_size = 2;
    workers.target_size = 4;
    return serves ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
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

static void await_progress(uint32_t index)
{
    assert_true(test_workers_progress(&workers, index, 2, WAIT_MS));
}

/* Ends the job; these workers must end alike. */
static void finish(const uint32_t *indices, size_t count)
{
    test_workers_finish(&workers);
    assert_true(test_workers_agree(&workers, indices, count, WAIT_MS));
}

/* The service has all members in this generation: none had to join again. */
static void expect_same_generation(uint64_t generation)
{
    struct muster_job_response job = {0};
    assert_true(test_service_job(&service, "frozen", &job));
    assert_int_equal(job.generation, generation);
    assert_int_equal(job.member_count, 4);
    muster_job_response_finish(&job);
}

/* Kills worker 2: the service still notices, and the others go on and finish. */
static void lose_one_and_finish(uint64_t generation)
{
    static const uint32_t rest[] = {0, 1, 3};
    test_workers_signal(&workers, 2, SIGKILL);
    assert_true(test_workers_wait_size(&workers, 3, generation, WAIT_MS) > 0);
    await_progress(0);
    finish(rest, 3);
}

static void a_frozen_worker_is_left_out_and_comes_back_as_a_newcomer(void **state)
{
    (void)state;
    static const uint32_t all[] = {0, 1, 2, 3};
    uint64_t generation = start_four();
    await_progress(0);
    test_workers_signal(&workers, 2, SIGSTOP);
    generation = test_workers_wait_size(&workers, 3, generation, WAIT_MS);
    assert_true(generation > 0);
    await_progress(0);
    test_workers_signal(&workers, 2, SIGCONT);
    assert_true(test_workers_wait_size(&workers, 4, generation, WAIT_MS) > 0);
    await_progress(0);
    await_progress(2);
    finish(all, 4);
}

static void the_death_of_the_service_does_not_disturb_a_running_job(void **state)
{
    (void)state;
    uint64_t generation = start_four();
    await_progress(0);
    test_service_kill(&service);
    await_progress(0);
    await_progress(3);
    assert_true(test_service_restart(&service, short_lease));
    await_progress(0);
    expect_same_generation(generation);
    lose_one_and_finish(generation);
}

static void a_death_while_the_service_is_away_is_survived_when_it_returns(void **state)
{
    (void)state;
    static const uint32_t rest[] = {0, 1, 3};
    uint64_t generation = start_four();
    await_progress(0);
    test_service_kill(&service);
    test_workers_signal(&workers, 2, SIGKILL);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), -SIGKILL);
    assert_true(test_service_restart(&service, short_lease));
    assert_true(test_workers_wait_size(&workers, 3, generation, WAIT_MS) > 0);
    await_progress(0);
    finish(rest, 3);
}

/* The service reads its clock before the requests that waited meanwhile: the silence was its own.
 */
static void a_service_that_slept_longer_than_a_lease_declares_no_member_dead(void **state)
{
    (void)state;
    uint64_t generation = start_four();
    await_progress(0);
    assert_int_equal(kill(service.pid, SIGSTOP), 0);
    (void)sleep(2); /* more than the lease: the passing of time is what is tested */
    assert_int_equal(kill(service.pid, SIGCONT), 0);
    await_progress(0);
    expect_same_generation(generation);
    lose_one_and_finish(generation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_frozen_worker_is_left_out_and_comes_back_as_a_newcomer,
                                        begin, end),
        cmocka_unit_test_setup_teardown(the_death_of_the_service_does_not_disturb_a_running_job,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            a_death_while_the_service_is_away_is_survived_when_it_returns, begin, end),
        cmocka_unit_test_setup_teardown(
            a_service_that_slept_longer_than_a_lease_declares_no_member_dead, begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
