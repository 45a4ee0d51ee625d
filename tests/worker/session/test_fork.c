/* A child of fork() can do nothing with its parent's session, and nothing to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

static int state_word;

static bool is_refused(muster_status status)
{
    return status == MUSTER_INVALID &&
           strstr(muster_last_error(), "this process was forked from a member") != NULL;
}

/* Every call that returns a status is refused at once. A close does nothing, and neither do the
 * exit handlers. */
static _Noreturn void use_session(muster_session *session, muster_function function)
{
    int32_t one = 1;
    int32_t sum = 0;
    (void)alarm(60); /* if it hangs */
    bool refused = is_refused(muster_allreduce(session, MUSTER_GLOBAL, &one, &sum, 1, MUSTER_INT32,
                                               MUSTER_SUM, NULL)) &&
                   is_refused(muster_barrier(session, MUSTER_LOCAL, NULL)) &&
                   is_refused(muster_register(session, "late", &state_word, sizeof state_word)) &&
                   is_refused(muster_sync(session)) && is_refused(muster_commit(session)) &&
                   is_refused(muster_restore(session)) && is_refused(muster_rejoin(session)) &&
                   is_refused(muster_run(session, function, NULL));
    muster_close(session);
    int exit_status = refused && sum == 0 ? 0 : 1;
#ifdef __SANITIZE_ADDRESS__
    _exit(exit_status); /* memory of the parent's other threads would be reported as leaked */
#else
    exit(exit_status);
#endif
}

static muster_status do_nothing(muster_session *session, void *user)
{
    (void)session;
    (void)user;
    return MUSTER_OK;
}

static void fork_in_the_middle(struct crew_member *member)
{
    uint64_t generation = muster_generation(member->session);
    MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
    if (muster_rank(member->session, MUSTER_GLOBAL) == 0) {
        int how = -1;
        pid_t child = fork();
        if (child == 0) {
            use_session(member->session, do_nothing);
        }
        MEMBER_CHECK(member, waitpid(child, &how, 0) == child);
        MEMBER_CHECK(member, how == 0);
    }
    for (int i = 0; i < 3; i++) {
        MEMBER_OK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL));
        MEMBER_OK(member, muster_barrier(member->session, MUSTER_LOCAL, NULL));
    }
    MEMBER_CHECK(member, muster_generation(member->session) == generation);
}

static void a_child_is_refused_and_its_end_does_not_end_its_parents_membership(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "forked",
                        .count = 4,
                        .hosts = 2,
                        .function = fork_in_the_middle};
    assert_int_equal(crew_run(&crew), 0);
}

static int copy_own(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    (void)user_data;
    memcpy(all, mine, size_bytes);
    return 0;
}

static void a_session_without_a_service_is_refused_without_a_jobs_name(void **state)
{
    (void)state;
    int how = -1;
    muster_session *session = NULL;
    assert_int_equal(muster_open_with(NULL, 0, 1, copy_own, NULL, &session), MUSTER_OK);
    pid_t child = fork();
    if (child == 0) {
        muster_status status = muster_barrier(session, MUSTER_GLOBAL, NULL);
        const char *text = "communicator: this process was forked from a member";
        _exit(is_refused(status) && strstr(muster_last_error(), text) == muster_last_error() ? 0
                                                                                             : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    muster_close(session);
}

static void sigterm_ends_a_child_and_asks_its_parent_to_leave(void **state)
{
    (void)state;
    muster_session *session = NULL;
    muster_options options;
    muster_options_init(&options);
    options.rendezvous = group_service.url;
    options.job = "terminated";
    (void)signal(SIGTERM, SIG_DFL);
    assert_int_equal(muster_open(&options, &session), MUSTER_OK);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(60);
        (void)raise(SIGTERM);
        _exit(0);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGTERM);
    assert_int_equal(muster_commit(session), MUSTER_OK);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(muster_commit(session), MUSTER_REJOIN);
    assert_int_equal(muster_rejoin(session), MUSTER_ENDED);
    muster_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_and_its_end_does_not_end_its_parents_membership),
        cmocka_unit_test(a_session_without_a_service_is_refused_without_a_jobs_name),
        cmocka_unit_test(sigterm_ends_a_child_and_asks_its_parent_to_leave),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
