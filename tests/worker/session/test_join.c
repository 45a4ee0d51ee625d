/* Joining a job, and what can go wrong then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"

static muster_options options_for(const char *url, const char *job)
{
    muster_options options;
    muster_options_init(&options);
    options.rendezvous = url;
    options.job = job;
    options.host = "host-a";
    options.join_timeout_ms = 20000;
    return options;
}

static void expect_text(const char *part)
{
    if (strstr(muster_last_error(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), part);
    }
    assert_null(strchr(muster_last_error(), '\n'));
}

/* The only member of the job that is gone left for this reason. */
static void expect_departure(const char *name, enum muster_leave_reason reason, const char *part)
{
    struct muster_job_response job = {0};
    assert_true(test_service_job(&group_service, name, &job));
    assert_int_equal(job.departure_count, 1);
    assert_int_equal(job.departures[0].reason, reason);
    if (strstr(job.departures[0].why, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", job.departures[0].why, part);
    }
    muster_job_response_finish(&job);
}

static void without_a_server_joining_ends_in_time_and_names_the_url(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options = options_for("http://127.0.0.1:1", "x"); /* no server listens there */
    options.join_timeout_ms = 400;
    int64_t begun_ms = muster_clock_ms();
    assert_int_equal(muster_open(&options, &session), MUSTER_RETRY);
    assert_true(muster_clock_ms() - begun_ms < 10000);
    expect_text("http://127.0.0.1:1");
    expect_text("Connection refused");
    assert_null(session);
}

static void a_host_name_that_does_not_resolve_is_named(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options = options_for("http://no-such-host.invalid:7070", "x");
    options.join_timeout_ms = 300;
    assert_int_equal(muster_open(&options, &session), MUSTER_RETRY);
    expect_text("http://no-such-host.invalid:7070");
}

static void a_bad_option_is_refused_before_anything_is_opened(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options = options_for(group_service.url, "x/y");
    assert_int_equal(muster_open(&options, &session), MUSTER_INVALID);
    expect_text("x/y");
    options = options_for(group_service.url, "x");
    options.listen = "not-an-address";
    assert_int_equal(muster_open(&options, &session), MUSTER_INVALID);
    expect_text("not-an-address");
    expect_text("MUSTER_LISTEN");
}

static void a_job_that_never_reaches_min_is_an_error_with_the_number_of_members(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options = options_for(group_service.url, "lonely");
    options.min_size = 4;
    options.join_timeout_ms = 3000; /* long enough for an answer of a server on a busy machine */
    assert_int_equal(muster_open(&options, &session), MUSTER_RETRY);
    expect_text("job lonely: 1 of at least 4 members");
    assert_null(session);
    expect_departure("lonely", MUSTER_LEAVE_FAILED, "could not join: ");
}

static void a_wrong_token_is_refused(void **state)
{
    (void)state;
    muster_session *first = NULL;
    muster_session *second = NULL;
    muster_options options = options_for(group_service.url, "secret");
    options.token = "right";
    assert_int_equal(muster_open(&options, &first), MUSTER_OK);
    options.token = "wrong";
    assert_int_equal(muster_open(&options, &second), MUSTER_INVALID);
    expect_text(group_service.url);
    expect_text("token");
    options.token = NULL;
    assert_int_equal(muster_open(&options, &second), MUSTER_INVALID);
    assert_null(second);
    muster_close(first);
}

static void settings_that_differ_from_the_jobs_are_refused_with_both_values(void **state)
{
    (void)state;
    muster_session *first = NULL;
    muster_session *second = NULL;
    muster_options options = options_for(group_service.url, "settled");
    options.max_size = 7;
    assert_int_equal(muster_open(&options, &first), MUSTER_OK);
    options.max_size = 9;
    assert_int_equal(muster_open(&options, &second), MUSTER_INVALID);
    expect_text("7");
    expect_text("9");
    muster_close(first);
}

static void sigterm_ends_a_waiting_join(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options = options_for(group_service.url, "impatient");
    options.min_size = 2;
    (void)signal(SIGTERM, SIG_DFL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        muster_status status = muster_open(&options, &session);
        _exit(status == MUSTER_ENDED ? 0 : 10 + (int)status);
    }
    struct timespec instant = {.tv_nsec = 10000000};
    struct muster_job_response job = {0};
    while (!test_service_job(&group_service, "impatient", &job) || job.member_count == 0) {
        muster_job_response_finish(&job); /* cmocka's own time limit bounds this */
        job = (struct muster_job_response){0};
        (void)nanosleep(&instant, NULL);
    }
    muster_job_response_finish(&job);
    int how = 0;
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    expect_departure("impatient", MUSTER_LEAVE_PLANNED, "");
}

static void open_repeatedly(struct crew_member *member)
{
    for (int i = 0; i < 3; i++) {
        MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
        crew_barrier(member);
        muster_close(member->session);
        crew_barrier(member); /* all have left before the job starts again */
        member->session = NULL;
        MEMBER_OK(member, muster_open(&member->options, &member->session));
    }
    MEMBER_CHECK(member, (uint32_t)muster_generation(member->session) == 4);
}

static void a_job_that_ended_can_start_again(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "again",
                        .count = 3,
                        .hosts = 1,
                        .function = open_repeatedly};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_server_joining_ends_in_time_and_names_the_url),
        cmocka_unit_test(a_host_name_that_does_not_resolve_is_named),
        cmocka_unit_test(a_bad_option_is_refused_before_anything_is_opened),
        cmocka_unit_test(a_job_that_never_reaches_min_is_an_error_with_the_number_of_members),
        cmocka_unit_test(a_wrong_token_is_refused),
        cmocka_unit_test(settings_that_differ_from_the_jobs_are_refused_with_both_values),
        cmocka_unit_test(sigterm_ends_a_waiting_join),
        cmocka_unit_test(a_job_that_ended_can_start_again),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
