/* The service without a socket: members join, watch, leave, report and die. */
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS_MAX = 8 };

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    struct test_call calls[MEMBERS_MAX];
};

/* Holds are long, so that an early response is due to an event. The settle window is long enough
 * for the members of a generation to join within it on a busy machine. */
static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.settings.lease_ms = 30000;
    config.settings.suspect_ms = 30000;
    config.settings.settle_ms = 1000;
    assert_int_equal(muster_store_memory_open(&fixture->store), MUSTER_OK);
    assert_int_equal(muster_service_create(&config, fixture->store, &fixture->service), MUSTER_OK);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    muster_service_quiesce(fixture->service);
    muster_service_destroy(fixture->service);
    muster_store_close(fixture->store);
    free(fixture);
    return 0;
}

static void start_join(struct fixture *fixture, unsigned member, unsigned generation,
                       unsigned version, const char *sizes)
{
    test_call_start(&fixture->calls[member], fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'j','member':'%s','host':'h%u','addresses':['tcp://a:%u'],"
                    "'generation':%u,'stateVersion':'%u','order':%u%s}",
                    test_member(member), member / 2, member, generation, version, member, sizes);
}

/* Forms a generation of members 0..count-1, two on each host. */
static void form(struct fixture *fixture, unsigned count, unsigned generation, unsigned version)
{
    char sizes[64];
    (void)snprintf(sizes, sizeof sizes, ",'minSize':2,'maxSize':6,'targetSize':%u", count);
    for (unsigned i = 0; i < count; i++) {
        start_join(fixture, i, generation, version, sizes);
    }
    for (unsigned i = 0; i < count; i++) {
        struct test_call *call = &fixture->calls[i];
        assert_true(test_call_wait(call));
        assert_int_equal(call->code, MUSTER_RPC_OK);
        assert_int_equal(test_part_number(call->json, "formed.rank"), i);
        assert_int_equal(test_part_number(call->json, "formed.size"), count);
        assert_int_equal(test_part_number(call->json, "formed.generation"), generation + 1);
        test_call_finish(call);
    }
}

static void start_watch(struct fixture *fixture, unsigned member, unsigned generation,
                        const char *known)
{
    test_call_start(&fixture->calls[member], fixture->service, MUSTER_RPC_WATCH, NULL,
                    "{'job':'j','member':'%s','generation':'%u'%s}", test_member(member),
                    generation, known);
}

/* A call that is not held. */
#define CALL(fixture, method, ...)                                                        \
    test_call_start(&(fixture)->calls[MEMBERS_MAX - 1], (fixture)->service, method, NULL, \
                    __VA_ARGS__)
#define EXPECT(fixture, code, part) test_call_expect(&(fixture)->calls[MEMBERS_MAX - 1], code, part)

static void a_generation_tells_everyone_what_it_needs(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned i = 0; i < 3; i++) {
        start_join(fixture, i, 0, i == 1 ? 7 : 0, ",'minSize':3,'maxSize':3");
    }
    struct test_call *calls = fixture->calls;
    assert_true(calls[0].held);
    assert_true(calls[1].held);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test_call_wait(&calls[i]));
        assert_int_equal(test_part_number(calls[i].json, "formed.state.version"), 7);
        assert_int_equal(test_part_number(calls[i].json, "formed.state.source"), 0);
        assert_int_equal(json_array_size(test_part(calls[i].json, "formed.state.stale")), 2);
        assert_int_equal(strlen(test_part_text(calls[i].json, "formed.linkToken")), 32);
        assert_int_equal(json_array_size(test_part(calls[i].json, "formed.hosts")), 2);
    }
    /* The member with the newest state is rank 0; its host moves with it. */
    assert_int_equal(test_part_number(calls[1].json, "formed.rank"), 0);
    assert_int_equal(test_part_number(calls[0].json, "formed.rank"), 1);
    assert_int_equal(test_part_number(calls[0].json, "formed.localRank"), 1);
    assert_int_equal(test_part_number(calls[0].json, "formed.localSize"), 2);
    assert_int_equal(test_part_number(calls[0].json, "formed.crossSize"), 1);
    assert_int_equal(test_part_number(calls[2].json, "formed.rank"), 2);
    assert_int_equal(test_part_number(calls[2].json, "formed.crossRank"), 1);
    assert_int_equal(test_part_number(calls[2].json, "formed.crossSize"), 2);
    assert_string_equal(test_part_text(calls[2].json, "formed.peers.2.addresses.0"), "tcp://a:2");
    assert_string_equal(test_part_text(calls[2].json, "formed.peers.0.member"), test_member(1));
    for (unsigned i = 0; i < 3; i++) {
        test_call_finish(&calls[i]);
    }
}

static void a_newer_request_takes_the_older_ones_place(void **state)
{
    struct fixture *fixture = *state;
    start_join(fixture, 0, 0, 0, ",'minSize':2");
    struct test_call newer;
    test_call_start(&newer, fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'j','member':'%s','host':'h0','addresses':['tcp://a:0'],'minSize':2}",
                    test_member(0));
    assert_true(newer.held);
    test_call_expect(&fixture->calls[0], MUSTER_RPC_CANCELED, "replaced by a newer request");
    start_join(fixture, 1, 0, 0, ",'minSize':2");
    test_call_expect(&newer, MUSTER_RPC_OK, "");
    test_call_expect(&fixture->calls[1], MUSTER_RPC_OK, "");
}

static void a_lost_response_is_sent_again(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_join(fixture, 1, 0, 0, "");
    assert_false(fixture->calls[1].held);
    assert_int_equal(test_part_number(fixture->calls[1].json, "formed.rank"), 1);
    assert_int_equal(test_part_number(fixture->calls[1].json, "formed.generation"), 1);
    test_call_finish(&fixture->calls[1]);
}

static void a_planned_leave_revokes_and_the_others_go_on(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 4, 0, 0);
    for (unsigned i = 0; i < 4; i++) {
        start_watch(fixture, i, 1, "");
        assert_true(fixture->calls[i].held);
    }
    CALL(fixture, MUSTER_RPC_LEAVE,
         "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_PLANNED','why':'SIGTERM'}",
         test_member(2));
    EXPECT(fixture, MUSTER_RPC_OK, "");
    for (unsigned i = 0; i < 4; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        if (i == 2) {
            assert_int_equal(fixture->calls[i].code, MUSTER_RPC_FAILED_PRECONDITION);
        } else {
            assert_true(json_is_true(test_part(fixture->calls[i].json, "revoked")));
            assert_non_null(strstr(test_part_text(fixture->calls[i].json, "reason"), "SIGTERM"));
        }
        test_call_finish(&fixture->calls[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        if (i != 2) {
            start_join(fixture, i, 1, 5, "");
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        if (i != 2) {
            assert_true(test_call_wait(&fixture->calls[i]));
            assert_int_equal(test_part_number(fixture->calls[i].json, "formed.generation"), 2);
            assert_int_equal(test_part_number(fixture->calls[i].json, "formed.rank"),
                             i == 3 ? 2 : i);
            test_call_finish(&fixture->calls[i]);
        }
    }
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    struct test_call *job = &fixture->calls[MEMBERS_MAX - 1];
    assert_int_equal(test_part_number(job->json, "job.generation"), 2);
    assert_int_equal(json_array_size(test_part(job->json, "job.generations")), 2);
    assert_string_equal(test_part_text(job->json, "job.departures.0.reason"), "planned");
    assert_string_equal(test_part_text(job->json, "job.departures.0.member"), test_member(2));
    /* Members 0 and 1 are on one host, member 3 is on the other. */
    assert_int_equal(test_part_number(job->json, "job.members.1.rank"), 1);
    assert_int_equal(test_part_number(job->json, "job.members.1.localRank"), 1);
    assert_int_equal(test_part_number(job->json, "job.members.1.crossRank"), 0);
    assert_int_equal(test_part_number(job->json, "job.members.2.rank"), 2);
    assert_int_equal(test_part_number(job->json, "job.members.2.localRank"), 0);
    assert_int_equal(test_part_number(job->json, "job.members.2.crossRank"), 1);
    assert_true(test_part_number(job->json, "job.members.2.joinedMs") > 0);
    assert_true(test_part_number(job->json, "job.members.2.joinedMs") <=
                test_part_number(job->json, "job.nowMs"));
    test_call_finish(job);
    /* The response was lost: the member sends the Leave again. */
    CALL(fixture, MUSTER_RPC_LEAVE,
         "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_PLANNED'}",
         test_member(2));
    EXPECT(fixture, MUSTER_RPC_OK, "");
}

/* The connection of member's held request closes. */
static void disconnect(struct fixture *fixture, unsigned member)
{
    muster_rpc_disconnected(fixture->service, &fixture->calls[member].request.id);
    test_call_expect(&fixture->calls[member], MUSTER_RPC_CANCELED, "closed");
}

static void a_closed_connection_and_a_report_are_a_death(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 4, 0, 0);
    for (unsigned i = 0; i < 4; i++) {
        start_watch(fixture, i, 1, "");
    }
    disconnect(fixture, 3);
    CALL(fixture, MUSTER_RPC_REPORT,
         "{'job':'j','member':'%s','generation':1,'suspect':3,'why':'reset'}", test_member(0));
    EXPECT(fixture, MUSTER_RPC_OK, "");
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_true(json_is_true(test_part(fixture->calls[i].json, "revoked")));
        test_call_finish(&fixture->calls[i]);
        start_join(fixture, i, 1, 0, "");
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_int_equal(test_part_number(fixture->calls[i].json, "formed.size"), 3);
        test_call_finish(&fixture->calls[i]);
    }
    /* not_found: the dead member may join again as a new one. */
    start_watch(fixture, 3, 1, "");
    test_call_expect(&fixture->calls[3], MUSTER_RPC_NOT_FOUND, "");
    start_join(fixture, 3, 1, 0, "");
    test_call_expect(&fixture->calls[3], MUSTER_RPC_NOT_FOUND, "");
}

static void a_closed_connection_alone_is_a_suspicion(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_watch(fixture, 0, 1, "");
    start_watch(fixture, 1, 1, "");
    disconnect(fixture, 1);
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    struct test_call *job = &fixture->calls[MEMBERS_MAX - 1];
    assert_true(json_is_true(test_part(job->json, "job.members.1.suspected")));
    assert_string_equal(test_part_text(job->json, "job.phase"), "JOB_PHASE_RUNNING");
    test_call_finish(job);
    start_watch(fixture, 1, 1, ""); /* a sign of life ends the suspicion */
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    assert_true(json_is_false(test_part(job->json, "job.members.1.suspected")));
    test_call_finish(job);
    CALL(fixture, MUSTER_RPC_END_JOB, "{'job':'j'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_FAILED_PRECONDITION, "ended");
    test_call_expect(&fixture->calls[1], MUSTER_RPC_FAILED_PRECONDITION, "ended");
}

static void an_old_disconnect_does_not_touch_a_newer_request(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_watch(fixture, 0, 1, "");
    const struct muster_held_id older = fixture->calls[0].request.id;
    struct test_call newer;
    test_call_start(&newer, fixture->service, MUSTER_RPC_WATCH, NULL,
                    "{'job':'j','member':'%s','generation':'1'}", test_member(0));
    test_call_expect(&fixture->calls[0], MUSTER_RPC_CANCELED, "replaced by a newer request");
    muster_rpc_disconnected(fixture->service, &older);
    const struct muster_held_id stray = {.job = "no-such-job", .serial = older.serial};
    muster_rpc_disconnected(fixture->service, &stray);
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    struct test_call *job = &fixture->calls[MEMBERS_MAX - 1];
    assert_true(json_is_false(test_part(job->json, "job.members.0.suspected")));
    test_call_finish(job);
    CALL(fixture, MUSTER_RPC_END_JOB, "{'job':'j','why':'over'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    test_call_expect(&newer, MUSTER_RPC_FAILED_PRECONDITION, "over");
}

static void a_watch_ends_with_what_its_member_does_not_know(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 3, 0, 0);
    start_watch(fixture, 0, 1, "");
    start_watch(fixture, 2, 1, "");
    CALL(fixture, MUSTER_RPC_RESIZE, "{'job':'j','targetSize':2}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    assert_true(test_call_wait(&fixture->calls[2]));
    assert_true(json_is_true(test_part(fixture->calls[2].json, "leave")));
    test_call_finish(&fixture->calls[2]);
    assert_true(fixture->calls[0].held); /* the disconnect was not of this request */
    struct test_call *job = &fixture->calls[MEMBERS_MAX - 1];
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    assert_true(test_call_wait(job));
    assert_true(json_is_true(test_part(job->json, "job.pending")));
    test_call_finish(job);
    start_watch(fixture, 2, 1, ",'leaveKnown':true");
    assert_true(fixture->calls[0].held && fixture->calls[2].held);
    CALL(fixture, MUSTER_RPC_RESIZE, "{'job':'j','targetSize':7}");
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "target size 7");
    CALL(fixture, MUSTER_RPC_END_JOB, "{'job':'j'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    test_call_finish(&fixture->calls[0]);
    test_call_finish(&fixture->calls[2]);
}

static void report_waiting(struct fixture *fixture, unsigned member)
{
    CALL(fixture, MUSTER_RPC_REPORT,
         "{'job':'j','member':'%s','generation':'1','suspect':%u,'kind':'REPORT_KIND_WAITING'}",
         test_member(member), member);
    EXPECT(fixture, MUSTER_RPC_OK, "");
}

static void who_waits_makes_the_service_ask_once_in_a_lease_and_revokes_nothing(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_watch(fixture, 0, 1, "");
    start_watch(fixture, 1, 1, "");
    assert_true(fixture->calls[0].held && fixture->calls[1].held);
    report_waiting(fixture, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_true(json_is_false(test_part(fixture->calls[i].json, "revoked")));
        test_call_finish(&fixture->calls[i]);
        start_watch(fixture, i, 1, "");
    }
    report_waiting(fixture, 1); /* within the lease */
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    struct test_call *job = &fixture->calls[MEMBERS_MAX - 1];
    assert_string_equal(test_part_text(job->json, "job.phase"), "JOB_PHASE_RUNNING");
    assert_true(json_is_false(test_part(job->json, "job.members.0.suspected")));
    assert_true(json_is_false(test_part(job->json, "job.members.1.suspected")));
    test_call_finish(job);
    CALL(fixture, MUSTER_RPC_END_JOB, "{'job':'j'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_FAILED_PRECONDITION, "ended");
    test_call_expect(&fixture->calls[1], MUSTER_RPC_FAILED_PRECONDITION, "ended");
}

static void newcomers_make_a_change_pending(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_watch(fixture, 0, 1, "");
    start_join(fixture, 2, 0, 0, "");
    assert_true(fixture->calls[2].held);
    assert_true(test_call_wait(&fixture->calls[0])); /* by the clock thread, after settle_ms */
    assert_true(json_is_true(test_part(fixture->calls[0].json, "pending")));
    assert_true(json_is_false(test_part(fixture->calls[0].json, "revoked")));
    test_call_finish(&fixture->calls[0]);
    start_join(fixture, 0, 1, 3, "");
    start_join(fixture, 1, 1, 3, "");
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_int_equal(test_part_number(fixture->calls[i].json, "formed.size"), 3);
        assert_int_equal(test_part_number(fixture->calls[i].json, "formed.state.stale.0"), 2);
        test_call_finish(&fixture->calls[i]);
    }
}

static void a_finished_job_ends_and_can_begin_anew(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        CALL(fixture, MUSTER_RPC_LEAVE,
             "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_FINISHED'}",
             test_member(i));
        EXPECT(fixture, MUSTER_RPC_OK, "");
    }
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'j'}");
    assert_string_equal(test_part_text(fixture->calls[MEMBERS_MAX - 1].json, "job.phase"),
                        "JOB_PHASE_ENDED");
    test_call_finish(&fixture->calls[MEMBERS_MAX - 1]);
    start_watch(fixture, 0, 1, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_FAILED_PRECONDITION, "finished");
    start_join(fixture, 0, 1, 0, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_FAILED_PRECONDITION, "finished");
    start_join(fixture, 5, 0, 0, ",'minSize':1,'maxSize':1");
    assert_true(test_call_wait(&fixture->calls[5]));
    assert_int_equal(test_part_number(fixture->calls[5].json, "formed.generation"), 2);
    test_call_finish(&fixture->calls[5]);
}

static void members_must_agree_and_requests_must_be_complete(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_join(fixture, 4, 0, 0, ",'minSize':3");
    test_call_expect(&fixture->calls[4], MUSTER_RPC_INVALID_ARGUMENT,
                     "min size 3, but the job has min size 2");
    start_join(fixture, 4, 0, 0, ",'maxSize':9");
    test_call_expect(&fixture->calls[4], MUSTER_RPC_INVALID_ARGUMENT, "max size 9");
    CALL(fixture, MUSTER_RPC_JOIN, "{'job':'j'");
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "JSON: line 1");
    CALL(fixture, MUSTER_RPC_JOIN, "{'job':'j'}");
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "member: missing");
    CALL(fixture, MUSTER_RPC_WATCH, "{'job':'other','member':'x'}");
    EXPECT(fixture, MUSTER_RPC_NOT_FOUND, "job other is not known here");
    CALL(fixture, MUSTER_RPC_WATCH, "{'job':'j','member':'x'}");
    EXPECT(fixture, MUSTER_RPC_NOT_FOUND, "member x");
    CALL(fixture, MUSTER_RPC_REPORT, "{'job':'j','member':'%s','generation':1,'suspect':2}",
         test_member(0));
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "suspect: rank 2 of 2");
    CALL(fixture, MUSTER_RPC_REPORT, "{'job':'j','member':'%s','generation':9,'suspect':1}",
         test_member(0));
    EXPECT(fixture, MUSTER_RPC_ABORTED, "generation 9");
    CALL(fixture, MUSTER_RPC_LEAVE, "{'job':'j','member':'%s','generation':1}", test_member(0));
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "reason: missing");
    CALL(fixture, MUSTER_RPC_GET_JOB, "{'job':'a/b'}");
    EXPECT(fixture, MUSTER_RPC_INVALID_ARGUMENT, "job: \"a/b\"");
    CALL(fixture, MUSTER_RPC_END_JOB, "{'job':'other'}");
    EXPECT(fixture, MUSTER_RPC_NOT_FOUND, "other");
    CALL(fixture, MUSTER_RPC_LIST_JOBS, "{}");
    struct test_call *list = &fixture->calls[MEMBERS_MAX - 1];
    assert_int_equal(json_array_size(test_part(list->json, "jobs")), 1);
    test_call_finish(list);
}

static void a_token_guards_its_job(void **state)
{
    struct fixture *fixture = *state;
    struct test_call join;
    struct test_call other;
    test_call_start(&join, fixture->service, MUSTER_RPC_JOIN, "secret",
                    "{'job':'t','member':'%s','host':'h','maxSize':1}", test_member(0));
    test_call_expect(&join, MUSTER_RPC_OK, "");
    static const char *const wrong[] = {NULL, "secre", "secret2", "Secret", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        test_call_start(&other, fixture->service, MUSTER_RPC_GET_JOB, wrong[i], "{'job':'t'}");
        test_call_expect(&other, MUSTER_RPC_UNAUTHENTICATED, "job t");
    }
    test_call_start(&other, fixture->service, MUSTER_RPC_GET_JOB, "two words", "{'job':'t'}");
    test_call_expect(&other, MUSTER_RPC_UNAUTHENTICATED, "printable");
    test_call_start(&other, fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'t','member':'%s','host':'h'}", test_member(1));
    test_call_expect(&other, MUSTER_RPC_UNAUTHENTICATED, "needs a token");
    test_call_start(&other, fixture->service, MUSTER_RPC_GET_JOB, "secret", "{'job':'t'}");
    test_call_expect(&other, MUSTER_RPC_OK, "");
}

static void values_are_stored_and_waited_for(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    struct test_call wait;
    struct test_call never;
    test_call_start(&wait, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','generation':1,'key':'id','timeoutMs':15000}");
    test_call_start(&never, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','generation':0,'key':'id','timeoutMs':30}");
    assert_true(wait.held);
    CALL(fixture, MUSTER_RPC_GET, "{'job':'j','generation':1,'key':'id'}");
    EXPECT(fixture, MUSTER_RPC_NOT_FOUND, "key \"id\"");
    CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','generation':1,'key':'id','value':'AAEC'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    assert_true(test_call_wait(&wait));
    assert_string_equal(test_part_text(wait.json, "value"), "AAEC");
    test_call_finish(&wait);
    test_call_expect(&never, MUSTER_RPC_DEADLINE_EXCEEDED, "not put within");
    CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','generation':2,'key':'id','value':'AAEC'}");
    EXPECT(fixture, MUSTER_RPC_ABORTED, "generation 2");

    /* Values and Waits of a generation end with it. */
    test_call_start(&wait, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','generation':1,'key':'more','timeoutMs':15000}");
    CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','key':'life','value':'AA=='}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
    start_join(fixture, 0, 1, 0, "");
    test_call_expect(&wait, MUSTER_RPC_ABORTED, "generation 1");
    start_join(fixture, 1, 1, 0, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_OK, "");
    test_call_expect(&fixture->calls[1], MUSTER_RPC_OK, "");
    CALL(fixture, MUSTER_RPC_GET, "{'job':'j','generation':2,'key':'id'}");
    EXPECT(fixture, MUSTER_RPC_NOT_FOUND, "id");
    CALL(fixture, MUSTER_RPC_GET, "{'job':'j','key':'life'}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
}

static void values_are_bounded_in_number_and_size(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    for (unsigned i = 0; i < 4096; i++) {
        CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','key':'k%u','value':'AA=='}", i);
        EXPECT(fixture, MUSTER_RPC_OK, "");
    }
    CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','key':'more'}");
    EXPECT(fixture, MUSTER_RPC_UNAVAILABLE, "4096 values");
    CALL(fixture, MUSTER_RPC_PUT, "{'job':'j','key':'k7','value':'AAE='}");
    EXPECT(fixture, MUSTER_RPC_OK, "");
}

static void held_requests_are_answered_when_the_service_ends(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 0, 0);
    start_watch(fixture, 0, 1, "");
    test_call_start(&fixture->calls[1], fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','key':'id','timeoutMs':15000}");
    muster_service_quiesce(fixture->service);
    test_call_expect(&fixture->calls[0], MUSTER_RPC_UNAVAILABLE, "ending");
    test_call_expect(&fixture->calls[1], MUSTER_RPC_UNAVAILABLE, "ending");
    start_watch(fixture, 0, 1, "");
    test_call_expect(&fixture->calls[0], MUSTER_RPC_UNAVAILABLE, "ending");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_generation_tells_everyone_what_it_needs),
        TEST(a_newer_request_takes_the_older_ones_place),
        TEST(a_lost_response_is_sent_again),
        TEST(a_planned_leave_revokes_and_the_others_go_on),
        TEST(a_closed_connection_and_a_report_are_a_death),
        TEST(a_closed_connection_alone_is_a_suspicion),
        TEST(an_old_disconnect_does_not_touch_a_newer_request),
        TEST(a_watch_ends_with_what_its_member_does_not_know),
        TEST(who_waits_makes_the_service_ask_once_in_a_lease_and_revokes_nothing),
        TEST(newcomers_make_a_change_pending),
        TEST(a_finished_job_ends_and_can_begin_anew),
        TEST(members_must_agree_and_requests_must_be_complete),
        TEST(a_token_guards_its_job),
        TEST(values_are_stored_and_waited_for),
        TEST(values_are_bounded_in_number_and_size),
        TEST(held_requests_are_answered_when_the_service_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
