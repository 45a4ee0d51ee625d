/* Workers whose Watches are held for longer than a lease, with a proxy between them and the
 * service: it restarts, it pauses, and it hides that a worker is stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/tcp_proxy.h"
#include "tests/support/workers.h"

enum { WAIT_MS = 60000, SIZE = 3 };

static struct test_service service;
static struct test_workers workers;
static struct test_tcp_proxy proxy;
static const char *const short_lease[] = {"--lease-ms=2000", "--hold-ms=500", "--suspect-ms=1500",
                                          NULL};
static const uint32_t all[] = {0, 1, 2};

static int begin(void **state)
{
    (void)state;
    bool serves = test_workers_set_up(&workers, &service, short_lease, "proxy", "contributions");
    workers.min_size = 2;
    workers.target_size = SIZE;
    if (!serves || !test_tcp_proxy_start(&proxy, service.port)) {
        return -1;
    }
    (void)snprintf(service.url, sizeof service.url, "http://127.0.0.1:%u", proxy.port);
    return 0;
}

static int end(void **state)
{
    (void)state;
    int status = test_workers_tear_down(&workers);
    test_tcp_proxy_stop(&proxy);
    return status;
}

static uint64_t start_all(void)
{
    for (int i = 0; i < SIZE; i++) {
        assert_true(test_workers_start(&workers, i < 2 ? "host-a" : "host-b") >= 0);
    }
    uint64_t generation = test_workers_wait_size(&workers, SIZE, 0, WAIT_MS);
    assert_true(generation > 0);
    assert_true(test_workers_progress(&workers, 0, 2, WAIT_MS));
    return generation;
}

/* Nobody was declared dead, and nobody had to join again. */
static void expect_same_generation(uint64_t generation)
{
    struct muster_job_response job = {0};
    assert_true(test_workers_progress(&workers, 0, 2, WAIT_MS));
    assert_true(test_service_job(&service, "proxy", &job));
    assert_int_equal(job.generation, generation);
    assert_int_equal(job.member_count, SIZE);
    muster_job_response_finish(&job);
}

static void finish(void)
{
    test_workers_finish(&workers);
    assert_true(test_workers_agree(&workers, all, SIZE, WAIT_MS));
}

static void a_proxy_that_restarts_loses_nobody(void **state)
{
    (void)state;
    uint64_t generation = start_all();
    for (int i = 0; i < 3; i++) {
        assert_true(test_tcp_proxy_restart(&proxy));
        (void)sleep(1); /* the passing of time is what is tested: in all, more than a lease */
    }
    expect_same_generation(generation);
    finish();
}

/* Longer than a lease: the Watches are held meanwhile. */
static void a_proxy_that_pauses_loses_nobody(void **state)
{
    (void)state;
    uint64_t generation = start_all();
    assert_int_equal(kill(proxy.pid, SIGSTOP), 0);
    (void)sleep(3);
    assert_int_equal(kill(proxy.pid, SIGCONT), 0);
    expect_same_generation(generation);
    finish();
}

/* The proxy keeps the connection to the service open, whatever becomes of the worker. */
static void a_stopped_worker_is_left_out_because_others_wait_for_it(void **state)
{
    (void)state;
    uint64_t generation = start_all();
    test_workers_signal(&workers, 1, SIGSTOP);
    generation = test_workers_wait_size(&workers, SIZE - 1, generation, WAIT_MS);
    assert_true(generation > 0);
    assert_true(test_workers_progress(&workers, 0, 1, WAIT_MS));
    test_workers_signal(&workers, 1, SIGCONT);
    assert_true(test_workers_wait_size(&workers, SIZE, generation, WAIT_MS) > 0);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_proxy_that_restarts_loses_nobody, begin, end),
        cmocka_unit_test_setup_teardown(a_proxy_that_pauses_loses_nobody, begin, end),
        cmocka_unit_test_setup_teardown(a_stopped_worker_is_left_out_because_others_wait_for_it,
                                        begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
