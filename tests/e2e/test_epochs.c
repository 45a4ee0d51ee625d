/* An epoch of data while members come, die and leave: each sample is used once by the steps that
 * count. The worker program checks that at the end of each epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/workers.h"

enum { WAIT_MS = 60000 };

static struct test_service service;
static struct test_workers workers;

static int begin(void **state)
{
    (void)state;
    return test_workers_set_up(&workers, &service, NULL, "epochs", "sampled") ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
}

static void await_progress(uint32_t index)
{
    assert_true(test_workers_progress(&workers, index, 2, WAIT_MS));
}

static uint64_t wait_for_size(uint32_t size, uint64_t after)
{
    uint64_t generation = test_workers_wait_size(&workers, size, after, WAIT_MS);
    assert_true(generation > after);
    return generation;
}

static void start(void)
{
    assert_true(test_workers_start(&workers, "host-a") >= 0);
}

static void no_sample_is_lost_or_used_twice_when_members_come_die_and_leave(void **state)
{
    (void)state;
    workers.min_size = 2;
    workers.target_size = 4;
    for (int i = 0; i < 4; i++) {
        start();
    }
    uint64_t generation = wait_for_size(4, 0);
    await_progress(0);
    test_workers_signal(&workers, 1, SIGKILL);
    generation = wait_for_size(3, generation);
    await_progress(0);
    start();
    start();
    generation = wait_for_size(5, generation);
    await_progress(0);
    test_workers_signal(&workers, 2, SIGTERM);
    generation = wait_for_size(4, generation);
    assert_int_equal(test_workers_wait(&workers, 2, WAIT_MS), 3); /* it has left */
    test_workers_signal(&workers, 4, SIGKILL);
    (void)wait_for_size(3, generation);
    await_progress(0);
    test_workers_finish(&workers);
    static const uint32_t rest[] = {0, 3, 5};
    assert_true(test_workers_agree(&workers, rest, 3, WAIT_MS));
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

static void all_members_die_and_the_job_goes_on_from_a_file_at_another_size(void **state)
{
    (void)state;
    char line[128];
    char last[128];
    workers.min_size = 2;
    workers.target_size = 4;
    char folder[] = "/tmp/muster-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("MUSTER_SPILL", folder, 1), 0);
    assert_int_equal(setenv("MUSTER_SPILL_EVERY_MS", "0", 1), 0);
    for (int i = 0; i < 4; i++) {
        start();
    }
    uint64_t generation = wait_for_size(4, 0);
    for (int i = 0; i < 4; i++) {
        await_progress(0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        test_workers_signal(&workers, i, SIGKILL);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(test_workers_wait(&workers, i, WAIT_MS), -SIGKILL);
    }
    unsigned lines = test_workers_lines(&workers, 0, "step ");
    assert_true(test_workers_line(&workers, 0, "step ", lines - 1, WAIT_MS, last, sizeof last));
    workers.target_size = 3;
    for (int i = 0; i < 3; i++) {
        start();
    }
    (void)wait_for_size(3, generation);
    assert_true(test_workers_line(&workers, 4, "step ", 0, WAIT_MS, line, sizeof line));
    print_message("the last line of the first four: %s; the first of the others: %s\n", last, line);
    assert_true(strtol(line + strlen("step "), NULL, 10) > 10); /* not from the beginning */
    test_workers_finish(&workers);
    static const uint32_t rest[] = {4, 5, 6};
    assert_true(test_workers_agree(&workers, rest, 3, WAIT_MS));
    remove_folder(folder);
    (void)unsetenv("MUSTER_SPILL");
    (void)unsetenv("MUSTER_SPILL_EVERY_MS");
}

int main(void)
{
    if (!test_service_built()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            no_sample_is_lost_or_used_twice_when_members_come_die_and_leave, begin, end),
        cmocka_unit_test_setup_teardown(
            all_members_die_and_the_job_goes_on_from_a_file_at_another_size, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
