/* How muster_run ends, with and without errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/base/clock.h"
#include "worker/session/rendezvous_client.h"

enum { STEPS = 30, MEMBERS = 4 };

/* One member's work: it counts to STEPS, together with the others. */
struct work {
    struct crew_member *member;
    int64_t step;
    int64_t stop_at; /* this member's function returns `stop_with` at this step */
    muster_status stop_with;
    int64_t ask_at; /* rank 0 asks the service for `ask_for` at this step */
    enum muster_rpc_method ask_for;
    uint32_t until_size; /* goes on until the job has this size; 0: only to STEPS */
};

static void ask_service(const struct work *work)
{
    struct muster_client *client = NULL;
    struct muster_retry_policy retry_policy = {.attempt_ms = 20000,
                                               .deadline_ns = muster_clock_after_ms(20000)};
    json_t *answer = NULL;
    json_t *request = json_pack("{s:s, s:i, s:s}", "job", work->member->crew->job, "targetSize", 2,
                                "why", "enough of it");
    MEMBER_OK(work->member, muster_client_create(group_service.url, NULL, &client));
    MEMBER_OK(work->member,
              muster_client_call(client, work->ask_for, request, &retry_policy, &answer, NULL));
    json_decref(answer);
    muster_client_destroy(client);
}

/* The user's function: one allreduce and one commit a step, until the work is done or the step at
 * which it is to stop. */
static muster_status count(muster_session *session, void *user)
{
    struct work *work = user;
    while (work->step < STEPS ||
           (work->until_size != 0 && work->until_size != muster_size(session, MUSTER_GLOBAL))) {
        int64_t sum = work->step;
        muster_status status =
            muster_allreduce(session, MUSTER_GLOBAL, &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM, NULL);
        if (status != MUSTER_OK) {
            return status;
        }
        if (sum != work->step * muster_size(session, MUSTER_GLOBAL)) {
            crew_fail(work->member, __FILE__, __LINE__, "a wrong sum");
            return MUSTER_FATAL;
        }
        work->step++;
        if (work->step == work->stop_at) {
            return work->stop_with;
        }
        if (work->step == work->ask_at && muster_rank(session, MUSTER_GLOBAL) == 0) {
            ask_service(work);
        }
        status = muster_commit(session);
        if (status != MUSTER_OK) {
            return status;
        }
    }
    return MUSTER_OK;
}

static void allow_fewer(struct crew_member *member)
{
    member->options.min_size = 1;
    member->options.max_size = MEMBERS;
}

static void prepare_work(struct crew_member *member, struct work *work)
{
    *work = (struct work){.member = member};
    MEMBER_OK(member, muster_register(member->session, "step", &work->step, sizeof work->step));
}

static void count_to_the_end(struct crew_member *member)
{
    struct work work;
    prepare_work(member, &work);
    MEMBER_OK(member, muster_run(member->session, count, &work));
    MEMBER_CHECK(member, work.step == STEPS);
    MEMBER_CHECK(member, muster_version_of_state(member->session) == STEPS + 1);
    MEMBER_OK(member,
              muster_barrier(member->session, MUSTER_GLOBAL, NULL)); /* collectives still work */
    MEMBER_CHECK(member, muster_rejoin(member->session) ==
                             MUSTER_OK); /* without a reason it does nothing */
    crew_barrier(member);
}

static bool is_over(const struct muster_job_response *job, const void *user)
{
    (void)user;
    return job->phase == MUSTER_JOB_ENDED;
}

static void muster_run_returns_when_the_work_is_done_on_every_member(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "done",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = count_to_the_end};
    struct muster_job_response job = {0};
    assert_int_equal(crew_run(&crew), 0);
    assert_true(test_service_wait(&group_service, "done", is_over, NULL, 20000));
    assert_true(test_service_job(&group_service, "done", &job));
    assert_int_equal(job.generation_count, 1);
    assert_int_equal(job.departure_count, MEMBERS);
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(job.departures[i].reason, MUSTER_LEAVE_FINISHED);
    }
    muster_job_response_finish(&job);
}

static void fail_in_the_middle(struct crew_member *member)
{
    struct work work;
    prepare_work(member, &work);
    if (member->index == 1) {
        work.stop_at = STEPS / 2;
        work.stop_with = MUSTER_FATAL;
        MEMBER_CHECK(member, muster_run(member->session, count, &work) == MUSTER_FATAL);
        return;
    }
    MEMBER_OK(member, muster_run(member->session, count, &work));
    MEMBER_CHECK(member, work.step == STEPS);
    MEMBER_CHECK(member, muster_size(member->session, MUSTER_GLOBAL) == MEMBERS - 1);
}

static void a_member_whose_function_fails_leaves_and_the_others_go_on(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "fails",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = fail_in_the_middle,
                        .prepare = allow_fewer};
    struct muster_job_response job = {0};
    assert_int_equal(crew_run(&crew), 0);
    assert_true(test_service_job(&group_service, "fails", &job));
    assert_int_equal(job.departures[0].reason, MUSTER_LEAVE_FAILED);
    muster_job_response_finish(&job);
}

static void be_ended(struct crew_member *member)
{
    struct work work;
    prepare_work(member, &work);
    work.ask_at = STEPS / 2;
    work.ask_for = MUSTER_RPC_END_JOB;
    work.until_size = MEMBERS + 1; /* never reached */
    MEMBER_CHECK(member, muster_run(member->session, count, &work) == MUSTER_ENDED);
    MEMBER_CHECK(member, strstr(muster_last_error(), "enough of it") != NULL);
    MEMBER_CHECK(member, muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_ENDED);
    MEMBER_CHECK(member, muster_rejoin(member->session) == MUSTER_ENDED);
}

static void ending_a_job_ends_its_members(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "ended",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = be_ended};
    assert_int_equal(crew_run(&crew), 0);
}

static void be_resized(struct crew_member *member)
{
    struct work work;
    prepare_work(member, &work);
    work.ask_at = 5;
    work.ask_for = MUSTER_RPC_RESIZE;
    work.until_size = 2;
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    muster_status status = muster_run(member->session, count, &work);
    if (rank >= 2) {
        MEMBER_CHECK(member, status == MUSTER_ENDED);
        MEMBER_CHECK(member, strstr(muster_last_error(), "left as asked") != NULL);
        return;
    }
    MEMBER_OK(member, status);
    MEMBER_CHECK(member, work.step >= STEPS);
}

static void a_smaller_size_makes_the_highest_ranks_leave(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "resized",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = be_resized,
                        .prepare = allow_fewer};
    struct muster_job_response job = {0};
    assert_int_equal(crew_run(&crew), 0);
    assert_true(test_service_job(&group_service, "resized", &job));
    /* They may leave together or one after the other. */
    assert_int_equal(job.generations[job.generation_count - 1].size, 2);
    assert_in_range(job.generation_count, 2, 3);
    muster_job_response_finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(muster_run_returns_when_the_work_is_done_on_every_member),
        cmocka_unit_test(a_member_whose_function_fails_leaves_and_the_others_go_on),
        cmocka_unit_test(ending_a_job_ends_its_members),
        cmocka_unit_test(a_smaller_size_makes_the_highest_ranks_leave),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
