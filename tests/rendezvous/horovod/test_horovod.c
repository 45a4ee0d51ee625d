/* Requests of Horovod's workers without sockets: paths, secrets, scopes, rounds, bounds. */
#include "rendezvous/horovod/horovod.h"
#include "worker/base/clock.h"
#include "worker/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ANSWER_MS = 20000, SHORT_MS = 50 };

/* A request that may be held. */
struct asked {
    struct muster_held_request held; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool answered; /* all that follows under the lock */
    struct muster_rpc_response response;
};

static int set_up(void **state)
{
    const struct muster_horovod_config config = {.ask_ms = ANSWER_MS, .idle_ms = ANSWER_MS};
    return muster_horovod_create(&config, (struct muster_horovod **)state) == MUSTER_OK ? 0 : -1;
}

static int set_up_impatient(void **state)
{
    const struct muster_horovod_config config = {.ask_ms = SHORT_MS, .idle_ms = SHORT_MS};
    return muster_horovod_create(&config, (struct muster_horovod **)state) == MUSTER_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    muster_horovod_destroy(*state);
    return 0;
}

static void respond(struct muster_held_request *held, struct muster_rpc_response response)
{
    struct asked *asked = (struct asked *)held;
    AUTO_LOCK(&asked->mutex);
    asked->response = response;
    asked->answered = true;
    (void)pthread_cond_signal(&asked->changed);
}

/* Sends a request; answered at once or not. */
static void send(struct muster_horovod *horovod, struct asked *asked,
                 enum muster_horovod_method method, const char *path, const char *body)
{
    const struct muster_horovod_request request = {
        .method = method, .path = path, .body = body, .size_bytes = strlen(body), .creates = true};
    struct muster_rpc_response response;
    *asked = (struct asked){.held = {.respond = respond}};
    muster_mutex_init(&asked->mutex);
    muster_condition_init(&asked->changed);
    if (muster_horovod_handle(horovod, &request, &asked->held, &response)) {
        respond(&asked->held, response);
    }
}

/* Waits for the response; part is in its body ("": it is empty). */
static void expect_response(struct asked *asked, enum muster_rpc_code code, const char *part)
{
    int64_t deadline_ns = muster_clock_after_ms(ANSWER_MS);
    muster_mutex_lock(&asked->mutex);
    while (!asked->answered && muster_condition_wait(&asked->changed, &asked->mutex, deadline_ns)) {
    }
    bool answered = asked->answered;
    muster_mutex_unlock(&asked->mutex);
    assert_true(answered);
    assert_non_null(asked->response.body);
    if (asked->response.code != code || strstr(asked->response.body, part) == NULL ||
        (part[0] == '\0' && asked->response.size_bytes > 0)) {
        fail_msg("code %d, not %d: %s, not \"%s\"", asked->response.code, code,
                 asked->response.body, part);
    }
    free(asked->response.body);
    (void)pthread_cond_destroy(&asked->changed);
    (void)pthread_mutex_destroy(&asked->mutex);
}

static bool is_answered(struct asked *asked)
{
    AUTO_LOCK(&asked->mutex);
    return asked->answered;
}

static void expect(struct muster_horovod *horovod, enum muster_horovod_method method,
                   const char *path, const char *body, enum muster_rpc_code code, const char *part)
{
    struct asked asked;
    send(horovod, &asked, method, path, body);
    expect_response(&asked, code, part);
}

static void put(struct muster_horovod *horovod, const char *path, const char *body)
{
    expect(horovod, MUSTER_HOROVOD_PUT, path, body, MUSTER_RPC_OK, "");
}

static void get(struct muster_horovod *horovod, const char *path, const char *value)
{
    expect(horovod, MUSTER_HOROVOD_GET, path, "",
           value != NULL ? MUSTER_RPC_OK : MUSTER_RPC_NOT_FOUND, value != NULL ? value : "");
}

static void drop(struct muster_horovod *horovod, const char *path)
{
    expect(horovod, MUSTER_HOROVOD_DELETE, path, "", MUSTER_RPC_OK, "");
}

/* Paths --------------------------------------------------------------------------------------- */

static void a_path_says_job_secret_worker_scope_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *path, *job, *secret, *worker, *scope, *key;
    } rows[] = {
        {"/horovod/j.s/global/0", "j", "s", "", "global", "0"},
        {"/horovod/j.s:7070/global/rank_0", "j", "s", "", "global", "rank_0"},
        {"/horovod/j.s:-1/rank_and_size/a.b:3", "j", "s", "", "rank_and_size", "a.b:3"},
        {"/horovod/my.job.S_-9/w-1:7070/local_a/0", "my.job", "S_-9", "w-1", "local_a", "0"},
        {"/horovod/j.s/w/cross_0_process_set_hash_ff/12", "j", "s", "w",
         "cross_0_process_set_hash_ff", "12"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct muster_horovod_path path;
        assert_true(muster_horovod_path_is(rows[i].path));
        assert_int_equal(muster_horovod_path_parse(rows[i].path, &path), MUSTER_OK);
        assert_string_equal(path.job, rows[i].job);
        assert_string_equal(path.secret, rows[i].secret);
        assert_string_equal(path.worker, rows[i].worker);
        assert_string_equal(path.scope, rows[i].scope);
        assert_string_equal(path.key, rows[i].key);
    }
    assert_false(muster_horovod_path_is("/muster.v1.Rendezvous/Join"));
}

static void a_path_that_is_wrong_is_refused_with_what_is_wrong(void **state)
{
    static const struct {
        const char *path, *part;
    } rows[] = {
        {"/horovod/", "path: must be"},
        {"/horovod/j.s", "path: must be"},
        {"/horovod/j.s/global", "path: must be"},
        {"/horovod/j.s/w/global/0/more", "path: must be"},
        {"/horovod/j/global/0", "comes JOB.SECRET"},
        {"/horovod/.s/global/0", "comes JOB.SECRET"},
        {"/horovod/j b.s/global/0", "comes JOB.SECRET"},
        {"/horovod//global/0", "comes JOB.SECRET"},
        {"/horovod/j./global/0", "job j: its secret"},
        {"/horovod/j.s:x/global/0", "job j: its secret"},
        {"/horovod/j.s t/global/0", "job j: its secret"},
        {"/horovod/j.s//global/0", "job j: the worker's name"},
        {"/horovod/j.s/w.1/global/0", "job j: the worker's name"},
        {"/horovod/j.s:7070/w/global/0", "job j: its secret"},
        {"/horovod/j.s//0", "scope: 0 bytes"},
        {"/horovod/j.s/global/", "key: 0 bytes"},
        {"/horovod/j.s/glo\tbal/0", "scope: byte 3 is not printable"},
        {"/horovod/j.s/global/\xc3\xa4", "key: byte 0 is not printable"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect(*state, MUSTER_HOROVOD_PUT, rows[i].path, "x", MUSTER_RPC_INVALID_ARGUMENT,
               rows[i].part);
    }
    char text[1024] = "/horovod/j.s/global/";
    memset(text + strlen(text), 'k', MUSTER_HOROVOD_KEY_MAX_BYTES + 1);
    expect(*state, MUSTER_HOROVOD_PUT, text, "x", MUSTER_RPC_INVALID_ARGUMENT, "must be 1 to 319");
    text[strlen(text) - 1] = '\0';
    put(*state, text, "x");
}

/* Static jobs --------------------------------------------------------------------------------- */

static void jobs_share_nothing_and_need_their_secret(void **state)
{
    struct muster_horovod *horovod = *state;
    get(horovod, "/horovod/one.s/global/0", NULL); /* makes no job */
    put(horovod, "/horovod/one.other/global/0", "1");
    expect(horovod, MUSTER_HOROVOD_DELETE, "/horovod/one.other/muster/plan", "", MUSTER_RPC_OK, "");
    put(horovod, "/horovod/one.s1/global/0", "first");
    put(horovod, "/horovod/two.s2/global/0", "second");
    get(horovod, "/horovod/one.s1/global/0", "first");
    get(horovod, "/horovod/two.s2:7070/global/0", "second");
    static const char *const paths[] = {"/horovod/one.s2/global/0", "/horovod/one.s1x/global/0",
                                        "/horovod/one.s/rank_and_size/a:0",
                                        "/horovod/one.s/muster/plan"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        for (int method = MUSTER_HOROVOD_GET; method <= MUSTER_HOROVOD_DELETE; method++) {
            if (method == MUSTER_HOROVOD_PUT && strstr(paths[i], "rank_and_size") != NULL) {
                continue;
            }
            expect(horovod, (enum muster_horovod_method)method, paths[i], "a:1",
                   MUSTER_RPC_UNAUTHENTICATED, "job one: the secret in the path is not the job's");
        }
    }
    get(horovod, "/horovod/one.s1/global/0", "first");
}

static void the_requests_of_a_static_rank_are_answered(void **state)
{
    struct muster_horovod *horovod = *state;
    get(horovod, "/horovod/j.s/global/rank_0", NULL);
    drop(horovod, "/horovod/j.s/global/0"); /* 200 even if absent */
    put(horovod, "/horovod/j.s/global/rank_0", "host");
    put(horovod, "/horovod/j.s/global/0", "");
    get(horovod, "/horovod/j.s/global/0", ""); /* an empty value is there */
    drop(horovod, "/horovod/j.s/global/0");
    get(horovod, "/horovod/j.s/global/0", NULL);
    get(horovod, "/horovod/j.s/global/rank_0", NULL);
}

static void the_number_of_jobs_is_bounded(void **state)
{
    char path[64];
    for (unsigned i = 0; i < MUSTER_HOROVOD_JOBS_MAX; i++) {
        (void)snprintf(path, sizeof path, "/horovod/j%u.s/global/0", i);
        put(*state, path, "x");
    }
    expect(*state, MUSTER_HOROVOD_PUT, "/horovod/more.s/global/0", "x",
           MUSTER_RPC_RESOURCE_EXHAUSTED, "job more: there are 256 jobs of Horovod already");
    get(*state, "/horovod/j0.s/global/0", "x");
}

static void an_idle_job_without_a_plan_is_forgotten(void **state)
{
    struct asked waits;
    put(*state, "/horovod/j.s/global/0", "x");
    send(*state, &waits, MUSTER_HOROVOD_GET, "/horovod/clock.s/rank_and_size/a:0", "");
    expect_response(&waits, MUSTER_RPC_OK, "-1,-1,-1,-1,-1,-1"); /* after SHORT_MS */
    int64_t deadline_ns = muster_clock_after_ms(ANSWER_MS);
    bool gone = false;
    while (!gone && muster_clock_left_ms(deadline_ns) > 0) { /* another secret makes it anew */
        struct asked asked;
        send(*state, &asked, MUSTER_HOROVOD_PUT, "/horovod/clock.t/global/0", "y");
        gone = asked.response.code == MUSTER_RPC_OK;
        free(asked.response.body);
        struct asked sleeps; /* asks of a job that is there are answered after SHORT_MS */
        send(*state, &sleeps, MUSTER_HOROVOD_GET, "/horovod/pause.s/rank_and_size/a:0", "");
        expect_response(&sleeps, MUSTER_RPC_OK, "-1");
    }
    assert_true(gone);
}

/* Elastic jobs -------------------------------------------------------------------------------- */

static void a_plan_is_put_shown_and_removed(void **state)
{
    struct muster_horovod *horovod = *state;
    get(horovod, "/horovod/j.s/muster/plan", NULL);
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:x",
           MUSTER_RPC_INVALID_ARGUMENT, "slots must be");
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1,b:1\n", MUSTER_RPC_OK,
           "round 1 formed\na:0 0,2,0,1,0,2 new\nb:0 1,2,0,1,1,2 new\n");
    put(horovod, "/horovod/j.s/global/rank_1", "b");
    get(horovod, "/horovod/j.s/muster/plan", "b:0 1,2,0,1,1,2 living\n");
    expect(horovod, MUSTER_HOROVOD_GET, "/horovod/j.s/muster/other", "",
           MUSTER_RPC_INVALID_ARGUMENT, "only the key plan");
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/rank_and_size/a:0", "x",
           MUSTER_RPC_INVALID_ARGUMENT, "nothing can be put into rank_and_size");
    expect(horovod, MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a", "",
           MUSTER_RPC_INVALID_ARGUMENT, "\\\"a\\\" is not HOST:LOCAL_RANK");
    drop(horovod, "/horovod/j.s/muster/plan");
    get(horovod, "/horovod/j.s/muster/plan", NULL);
}

static void workers_that_come_before_the_first_plan_are_in_its_round(void **state)
{
    struct muster_horovod *horovod = *state;
    put(horovod, "/horovod/j.s/a0/global/0", "x");
    put(horovod, "/horovod/j.s/a0/global/rank_0", "a");
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:2", MUSTER_RPC_OK,
           "a:0 0,2,0,2,0,1 living\na:1 1,2,1,2,0,1 new\n");
    get(horovod, "/horovod/j.s/a1/global/0", "x");
    get(horovod, "/horovod/j.s/a0/global/0", "x");
}

static void workers_that_reset_wait_for_each_other(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked[3];
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:2,b:1", MUSTER_RPC_OK, "a");
    put(horovod, "/horovod/j.s/a0:1/global/rank_0", "a");
    put(horovod, "/horovod/j.s/a1:1/global/rank_1", "a");
    put(horovod, "/horovod/j.s/b0:1/global/rank_2", "b");
    put(horovod, "/horovod/j.s/b0:1/worker_addresses/b:0", "pickled");
    put(horovod, "/horovod/j.s/b0:1/global/2", "old");
    send(horovod, &asked[0], MUSTER_HOROVOD_GET, "/horovod/j.s/a0:1/rank_and_size/a:0", "");
    send(horovod, &asked[1], MUSTER_HOROVOD_GET, "/horovod/j.s/a1:1/rank_and_size/a:1", "");
    expect(horovod, MUSTER_HOROVOD_GET, "/horovod/j.s/x:1/rank_and_size/x:0", "", MUSTER_RPC_OK,
           "-1,-1,-1,-1,-1,-1");
    assert_false(is_answered(&asked[0]));
    /* The connection of one is lost, and it asks again. */
    assert_true(muster_horovod_holds(&asked[0].held.id));
    muster_horovod_disconnected(horovod, &asked[0].held.id);
    expect_response(&asked[0], MUSTER_RPC_CANCELED, "closed");
    send(horovod, &asked[2], MUSTER_HOROVOD_GET, "/horovod/j.s/b0:1/rank_and_size/b:0", "");
    assert_false(is_answered(&asked[2]));
    send(horovod, &asked[0], MUSTER_HOROVOD_GET, "/horovod/j.s/a0:1/rank_and_size/a:0", "");
    expect_response(&asked[0], MUSTER_RPC_OK, "0,3,0,2,0,2");
    expect_response(&asked[1], MUSTER_RPC_OK, "1,3,1,2,0,1");
    expect_response(&asked[2], MUSTER_RPC_OK, "2,3,0,1,1,2");
    get(horovod, "/horovod/j.s/a0:1/global/2", NULL); /* of the round before */
    get(horovod, "/horovod/j.s/b0:1/worker_addresses/b:0", "pickled");
}

static void an_exit_a_plan_and_a_late_message(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked[2];
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1,b:2", MUSTER_RPC_OK, "a");
    put(horovod, "/horovod/j.s/a0/global/rank_0", "a");
    put(horovod, "/horovod/j.s/b0/global/rank_1", "b");
    put(horovod, "/horovod/j.s/b1/global/rank_2", "b");
    send(horovod, &asked[0], MUSTER_HOROVOD_GET, "/horovod/j.s/a0/rank_and_size/a:0", "");
    drop(horovod, "/horovod/j.s/rank_and_size/b:0"); /* killed */
    expect(
        horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1,b:2", MUSTER_RPC_OK,
        "round 2 forming\na:0 0,3,0,1,0,2 living\nb:0 1,3,0,2,1,2 new\nb:1 2,3,1,2,0,1 living\n");
    put(horovod, "/horovod/j.s/b0-again/global/1", "new"); /* it does not wait for the others */
    put(horovod, "/horovod/j.s/b0-again/global/rank_1", "b");
    get(horovod, "/horovod/j.s/b1/global/1", NULL); /* which are in the round before */
    put(horovod, "/horovod/j.s/b0/global/0", "late");
    send(horovod, &asked[1], MUSTER_HOROVOD_GET, "/horovod/j.s/b1/rank_and_size/b:1", "");
    expect_response(&asked[0], MUSTER_RPC_OK, "0,3,0,1,0,2");
    expect_response(&asked[1], MUSTER_RPC_OK, "2,3,1,2,0,1");
    get(horovod, "/horovod/j.s/b1/global/1", "new");
    get(horovod, "/horovod/j.s/b1/global/0", NULL);
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/b0/global/0", "late",
           MUSTER_RPC_FAILED_PRECONDITION, "job j: the round of worker b0 is over");
    expect(horovod, MUSTER_HOROVOD_GET, "/horovod/j.s/b0/rank_and_size/b:0", "", MUSTER_RPC_OK,
           "-1,-1,-1,-1,-1,-1");
    get(horovod, "/horovod/j.s/muster/plan", "b:0 1,3,0,2,1,2 living");
}

static void a_plan_that_is_replaced_leaves_nothing_behind(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked;
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1", MUSTER_RPC_OK, "a");
    put(horovod, "/horovod/j.s/a0/global/rank_0", "a");
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1,b:1", MUSTER_RPC_OK,
           "round 2 forming");
    put(horovod, "/horovod/j.s/b0/global/1", "first");
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:1,c:1", MUSTER_RPC_OK,
           "round 3 forming");
    get(horovod, "/horovod/j.s/c0/global/1", NULL);
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/b0/global/1", "late",
           MUSTER_RPC_FAILED_PRECONDITION, "the round of worker b0 is over");
    send(horovod, &asked, MUSTER_HOROVOD_GET, "/horovod/j.s/a0/rank_and_size/a:0", "");
    expect_response(&asked, MUSTER_RPC_OK, "0,2,0,1,0,2");
    get(horovod, "/horovod/j.s/a0/global/1", NULL);
}

static void an_ask_without_an_end_is_answered_removed(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked;
    expect(horovod, MUSTER_HOROVOD_PUT, "/horovod/j.s/muster/plan", "a:2", MUSTER_RPC_OK, "a");
    put(horovod, "/horovod/j.s/global/rank_0", "a");
    put(horovod, "/horovod/j.s/global/rank_1", "a");
    send(horovod, &asked, MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a:0", "");
    expect_response(&asked, MUSTER_RPC_OK, "-1,-1,-1,-1,-1,-1");
    get(horovod, "/horovod/j.s/muster/plan", "a:0 0,2,0,2,0,1 exited");
}

static void the_end_of_the_server_answers_whoever_waits(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked[2];
    send(horovod, &asked[0], MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a:0", "");
    send(horovod, &asked[1], MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a:0", "");
    expect_response(&asked[0], MUSTER_RPC_CANCELED, "a:0 has asked again");
    muster_horovod_quiesce(horovod);
    expect_response(&asked[1], MUSTER_RPC_UNAVAILABLE, "musterd is ending");
    expect(horovod, MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a:0", "",
           MUSTER_RPC_UNAVAILABLE, "musterd is ending");
}

static void the_end_of_a_job_removes_whoever_waits(void **state)
{
    struct muster_horovod *horovod = *state;
    struct asked asked;
    send(horovod, &asked, MUSTER_HOROVOD_GET, "/horovod/j.s/rank_and_size/a:0", "");
    drop(horovod, "/horovod/j.s/muster/plan");
    expect_response(&asked, MUSTER_RPC_OK, "-1,-1,-1,-1,-1,-1");
}

static void the_names_of_workers_are_bounded(void **state)
{
    char path[64];
    put(*state, "/horovod/j.s/w0/global/0", "x");
    for (unsigned i = 1; i < MUSTER_HOROVOD_WORKERS_MAX; i++) {
        (void)snprintf(path, sizeof path, "/horovod/j.s/w%u/global/0", i);
        get(*state, path, "x");
    }
    get(*state, "/horovod/j.s/w7/global/0", "x");
    expect(*state, MUSTER_HOROVOD_GET, "/horovod/j.s/more/global/0", "", MUSTER_RPC_UNAVAILABLE,
           "job j has 8192 workers with names already");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_path_says_job_secret_worker_scope_and_key),
        TEST(a_path_that_is_wrong_is_refused_with_what_is_wrong),
        TEST(jobs_share_nothing_and_need_their_secret),
        TEST(the_requests_of_a_static_rank_are_answered),
        TEST(the_number_of_jobs_is_bounded),
        TEST(a_plan_is_put_shown_and_removed),
        TEST(workers_that_come_before_the_first_plan_are_in_its_round),
        TEST(workers_that_reset_wait_for_each_other),
        TEST(an_exit_a_plan_and_a_late_message),
        TEST(a_plan_that_is_replaced_leaves_nothing_behind),
        TEST(the_end_of_the_server_answers_whoever_waits),
        TEST(the_end_of_a_job_removes_whoever_waits),
        TEST(the_names_of_workers_are_bounded),
        cmocka_unit_test_setup_teardown(an_idle_job_without_a_plan_is_forgotten, set_up_impatient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_ask_without_an_end_is_answered_removed, set_up_impatient,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
