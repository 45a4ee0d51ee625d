/* A job whose members add up numbers in memory of GPUs by NCCL (both pretended), while one is
 * killed and another one joins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <signal.h>

#include "tests/support/gpu_pretend.h"
#include "tests/support/nccl_pretend.h"
#include "tests/support/workers.h"

enum { WAIT_MS = 60000 };

static struct test_service service;
static struct test_workers workers;

static int begin(void **state)
{
    (void)state;
    bool serves = test_workers_set_up(&workers, &service, NULL, "gpus", "contributions");
    workers.min_size = 2;
    workers.target_size = 4;
    (void)setenv("CONTRIBUTIONS_GPU", gpu_pretend_path(), 1);
    (void)setenv("MUSTER_NCCL", nccl_pretend_path(), 1);
    (void)setenv("MUSTER_ALGORITHM", "nccl", 1);
    return serves ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
}

/* These members use NCCL in a generation of this size that is newer. Returns its number. */
static uint64_t await_nccl(uint32_t size, uint64_t after, const uint32_t *indices, size_t count)
{
    uint64_t generation = test_workers_wait_size(&workers, size, after, WAIT_MS);
    char line[64];
    char found[128];
    assert_true(generation > 0);
    (void)snprintf(line, sizeof line, "nccl generation=%llu", (unsigned long long)generation);
    for (size_t i = 0; i < count; i++) {
        assert_true(test_workers_line(&workers, indices[i], line, 0, WAIT_MS, found, sizeof found));
    }
    return generation;
}

/* NCCL does not notice that a process has died: the links do. */
static void members_of_a_job_use_nccl_again_after_a_death_and_after_a_join(void **state)
{
    static const uint32_t first[] = {0, 1, 2, 3};
    static const uint32_t rest[] = {0, 1, 3};
    static const uint32_t all[] = {0, 1, 3, 4};
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_true(test_workers_start(&workers, i < 2 ? "host-a" : "host-b") >= 0);
    }
    uint64_t generation = await_nccl(4, 0, first, 4);
    test_workers_signal(&workers, 2, SIGKILL);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), -SIGKILL);
    generation = await_nccl(3, generation, rest, 3);
    assert_true(test_workers_start(&workers, "host-b") >= 0);
    (void)await_nccl(4, generation, all, 4);
    test_workers_finish(&workers);
    assert_true(test_workers_agree(&workers, all, 4, WAIT_MS));
}

/* One member's communicator cannot be ended: it goes on through the host, and so do the others. */
static void a_job_goes_on_through_the_host_where_a_communicator_cannot_be_ended(void **state)
{
    static const uint32_t first[] = {0, 1, 2};
    static const uint32_t rest[] = {0, 1};
    (void)state;
    workers.target_size = 3;
    for (int i = 0; i < 3; i++) {
        (void)setenv("NCCL_PRETEND_FAULTS", i == 0 ? "abort_hangs" : "", 1);
        assert_true(test_workers_start(&workers, "host-a") >= 0);
    }
    (void)unsetenv("NCCL_PRETEND_FAULTS");
    uint64_t generation = await_nccl(3, 0, first, 3);
    test_workers_signal(&workers, 2, SIGKILL);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), -SIGKILL);
    assert_true(test_workers_wait_size(&workers, 2, generation, WAIT_MS) > 0);
    assert_true(test_workers_progress(&workers, 0, 2, WAIT_MS));
    assert_int_equal(test_workers_lines(&workers, 0, "nccl generation="), 1);
    test_workers_finish(&workers);
    assert_true(test_workers_agree(&workers, rest, 2, WAIT_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            members_of_a_job_use_nccl_again_after_a_death_and_after_a_join, begin, end),
        cmocka_unit_test_setup_teardown(
            a_job_goes_on_through_the_host_where_a_communicator_cannot_be_ended, begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
