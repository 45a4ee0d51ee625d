/* Slots of sessions against a real musterd: locks of the kernel's, and who is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/base/fork_guard.h"
#include "worker/session/slot_lock.h"

static const struct muster_slot_place *place_of(const char *job, const char *host)
{
    static struct muster_slot_place place;
    place = (struct muster_slot_place){.rendezvous = group_service.url, .job = job, .host = host};
    return &place;
}

/* A process that holds a slot and says so by a byte; it lives until it is killed. */
static pid_t hold_elsewhere(const char *job, const char *host, uint32_t slot)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int fd;
        (void)alarm(300);
        if (muster_slot_lock_take(place_of(job, host), slot, &fd) != MUSTER_OK ||
            write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Each host has its own slots, from 0. */
static void check_slots(struct crew_member *member)
{
    int32_t mine[2] = {(int32_t)muster_slot(member->session), member->options.host[5]};
    int32_t all[CREW_MAX][2];
    MEMBER_OK(member, muster_allgather(member->session, MUSTER_GLOBAL, mine, all[0], 2,
                                       MUSTER_INT32, NULL));
    uint32_t found = 0;
    for (uint32_t i = 0; i < member->crew->count; i++) {
        MEMBER_CHECK(member, all[i][0] >= 0 && all[i][0] < 3);
        found |= 1U << (all[i][0] + (all[i][1] == 'a' ? 0 : 3));
    }
    MEMBER_CHECK(member, found == 63);
}

static void the_members_of_a_host_have_its_lowest_slots(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "lowest", .count = 6, .hosts = 2, .function = check_slots};
    assert_int_equal(crew_run(&crew), 0);
}

static void expect_slot_one(struct crew_member *member)
{
    MEMBER_CHECK(member, muster_slot(member->session) == 1);
}

static void a_slot_that_another_process_holds_is_passed_over(void **state)
{
    (void)state;
    pid_t child = hold_elsewhere("passed", "host-a", 0);
    struct crew crew = {.url = group_service.url,
                        .job = "passed",
                        .count = 1,
                        .hosts = 1,
                        .function = expect_slot_one};
    assert_int_equal(crew_run(&crew), 0);
    end(child);
}

static muster_status open_given(const char *job, muster_session **ret_session)
{
    muster_options options;
    muster_options_init(&options);
    options.rendezvous = group_service.url;
    options.job = job;
    options.host = "host-a";
    return muster_open(&options, ret_session);
}

static void a_given_slot_that_a_living_process_holds_is_refused_by_its_number(void **state)
{
    (void)state;
    char expected[128];
    muster_session *session = NULL;
    pid_t child = hold_elsewhere("given", "host-a", 2);
    (void)setenv("MUSTER_SLOT", "2", 1);
    assert_int_equal(open_given("given", &session), MUSTER_INVALID);
    (void)snprintf(expected, sizeof expected,
                   "slot 2 (MUSTER_SLOT) of host host-a: another process (pid %d) of job given "
                   "holds it",
                   (int)child);
    assert_string_equal(muster_last_error(), expected);
    end(child);
    assert_int_equal(open_given("given", &session), MUSTER_OK); /* free as soon as it has exited */
    assert_int_equal(muster_slot(session), 2);
    muster_close(session);
    (void)setenv("MUSTER_SLOT", "-1", 1);
    assert_int_equal(open_given("given", &session), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "slot (MUSTER_SLOT)"));
    (void)unsetenv("MUSTER_SLOT");
}

static void expect_slots_zero_and_two(struct crew_member *member)
{
    int32_t mine = (int32_t)muster_slot(member->session);
    int32_t sum = 0;
    MEMBER_CHECK(member, mine == 0 || mine == 2);
    MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &mine, &sum, 1, MUSTER_INT32,
                                       MUSTER_SUM, NULL));
    MEMBER_CHECK(member, sum == 2);
}

static void a_second_session_of_a_process_has_a_slot_of_its_own(void **state)
{
    (void)state;
    (void)setenv("MUSTER_SLOT", "2", 1);
    struct crew crew = {.url = group_service.url,
                        .job = "second",
                        .count = 2,
                        .hosts = 1,
                        .function = expect_slots_zero_and_two};
    assert_int_equal(crew_run(&crew), 0);
    (void)unsetenv("MUSTER_SLOT");
}

/* A DataLoader's worker may outlive the member that forked it. */
static void a_child_of_fork_does_not_hold_its_parents_slot(void **state)
{
    (void)state;
    int fd;
    int other;
    assert_int_equal(muster_slot_lock_take(place_of("forked", "a"), 0, &fd), MUSTER_OK);
    assert_int_equal(muster_slot_lock_take(place_of("forked", "a"), 0, &other), MUSTER_RETRY);
    assert_int_equal(muster_slot_lock_holder(place_of("forked", "a"), 0), getpid());
    assert_int_equal(muster_slot_lock_holder(place_of("forked", "a"), 1), 0);
    assert_int_equal(muster_slot_lock_take(place_of("forked", "b"), 0, &other), MUSTER_OK);
    muster_fork_guard_close(other);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* the handlers of fork() have run in it */
        (void)alarm(300);
        ssize_t written = write(ready[1], "", 1);
        (void)written;
        for (;;) {
            (void)pause();
        }
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    muster_fork_guard_close(fd);
    assert_int_equal(muster_slot_lock_take(place_of("forked", "a"), 0, &fd), MUSTER_OK);
    muster_fork_guard_close(fd);
    end(child);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    if (!test_service_built()) {
        return 77;
    }
    (void)unsetenv("MUSTER_SLOT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_members_of_a_host_have_its_lowest_slots),
        cmocka_unit_test(a_slot_that_another_process_holds_is_passed_over),
        cmocka_unit_test(a_given_slot_that_a_living_process_holds_is_refused_by_its_number),
        cmocka_unit_test(a_second_session_of_a_process_has_a_slot_of_its_own),
        cmocka_unit_test(a_child_of_fork_does_not_hold_its_parents_slot),
    };
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
