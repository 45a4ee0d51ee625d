/* The lease thread shows that a member lives whose caller is busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/session/lease_thread.h"

enum { MEMBERS = 4, REPORTER = 0, REPORTED = 1, WAIT_MS = 20000 };

/* A suspected member that shows no sign of life while a Watch is held has hardly any time left. The
 * first generation waits for all members, however slowly they come. */
static const char *const impatient[] = {"--hold-ms=2500", "--suspect-ms=2501", "--lease-ms=6000",
                                        "--settle-ms=60000", NULL};
static struct test_service service;

static int start_service(void **state)
{
    (void)state;
    return test_service_start(&service, impatient) ? 0 : -1;
}

static int stop_service(void **state)
{
    (void)state;
    return test_service_stop(&service) == 0 ? 0 : -1;
}

static bool no_member_is_suspected(const struct muster_job_response *job, const void *user)
{
    (void)user;
    for (uint32_t i = 0; i < job->member_count; i++) {
        if (job->members[i].suspected) {
            return false;
        }
    }
    return true;
}

/* No member but the reporter makes a call until the reported one has shown a sign of life. */
static void compute_for_long(struct crew_member *member)
{
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    uint64_t generation = muster_generation(session);
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
    crew_barrier(member); /* all have returned from it */
    if (rank == REPORTER) {
        muster_session_report(session, muster_generation(session), REPORTED, "link reset");
        MEMBER_CHECK(member,
                     test_service_wait(&service, "busy", no_member_is_suspected, NULL, WAIT_MS));
    }
    crew_barrier(member);
    MEMBER_CHECK(member, muster_barrier(session, MUSTER_GLOBAL, NULL) == MUSTER_REJOIN);
    MEMBER_OK(member, muster_rejoin(session));
    MEMBER_CHECK(member, muster_generation(session) == generation + 1);
    MEMBER_CHECK(member, muster_rank(session, MUSTER_GLOBAL) == rank);
    MEMBER_CHECK(member, muster_size(session, MUSTER_GLOBAL) == MEMBERS);
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
    crew_barrier(member);
}

static void allow_fewer(struct crew_member *member)
{
    member->options.min_size = 1;
}

static void a_member_that_computes_for_long_is_not_declared_dead_when_its_link_breaks(void **state)
{
    (void)state;
    struct crew crew = {.url = service.url,
                        .job = "busy",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = compute_for_long,
                        .prepare = allow_fewer};
    struct muster_job_response job = {0};
    assert_int_equal(crew_run(&crew), 0);
    assert_true(test_service_job(&service, "busy", &job));
    assert_int_equal(job.generation_count, 2);
    assert_non_null(strstr(job.generations[0].why, "rank 1"));
    for (uint32_t i = 0; i < job.departure_count; i++) {
        assert_int_equal(job.departures[i].reason, MUSTER_LEAVE_FINISHED);
    }
    muster_job_response_finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_computes_for_long_is_not_declared_dead_when_its_link_breaks),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
