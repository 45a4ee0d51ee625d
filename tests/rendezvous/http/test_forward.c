/* Requests that are forwarded to the server that has their job: answers, errors, ends. */
#include "rendezvous/http/forward.h"
#include "tests/rendezvous/http/served.h"

#include "worker/base/thread.h"

enum { MANY = 64, WAIT_MS = 60000 };

/* What came back of one request. */
struct asked {
    struct muster_held_request held; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool answered;
    struct muster_rpc_response response;
};

static void take(struct muster_held_request *held, struct muster_rpc_response response)
{
    struct asked *asked = (struct asked *)held;
    AUTO_LOCK(&asked->mutex);
    assert_false(asked->answered); /* once */
    asked->answered = true;
    asked->response = response;
    (void)pthread_cond_signal(&asked->changed);
}

static void begin(struct asked *asked)
{
    *asked = (struct asked){.held.respond = take};
    muster_mutex_init(&asked->mutex);
    muster_condition_init(&asked->changed);
}

static void finish(struct asked *asked)
{
    muster_rpc_response_finish(&asked->response);
    (void)pthread_cond_destroy(&asked->changed);
    (void)pthread_mutex_destroy(&asked->mutex);
}

static enum muster_rpc_code wait_for(struct asked *asked)
{
    int64_t until_ns = muster_clock_after_ms(WAIT_MS);
    AUTO_LOCK(&asked->mutex);
    while (!asked->answered) {
        assert_true(muster_condition_wait(&asked->changed, &asked->mutex, until_ns));
    }
    return asked->response.code;
}

static struct muster_forwards *create(void)
{
    const struct muster_call_files none = {.authority = NULL};
    struct muster_forwards *forwards = NULL;
    assert_int_equal(muster_forwards_create(&none, &forwards), MUSTER_OK);
    return forwards;
}

static void forward(struct muster_forwards *forwards, const char *owner,
                    enum muster_rpc_method method, const char *body, struct asked *asked)
{
    const struct muster_forward_request request = {.owner = owner,
                                                   .method = method,
                                                   .body = body,
                                                   .size_bytes = strlen(body),
                                                   .timeout_ms = UINT32_MAX};
    begin(asked);
    muster_forwards_add(forwards, &request, &asked->held);
}

static void url_of(const struct fixture *fixture, char url[64])
{
    (void)snprintf(url, 64, "http://127.0.0.1:%u", fixture->port);
}

#define VALUE_JOB "{\"job\":\"j\",\"key\":\"k\",\"value\":\"AAEC\"}"
#define JOIN                                                                             \
    "{\"job\":\"j\",\"member\":\"11111111-1111-4111-8111-111111111111\",\"host\":\"h\"," \
    "\"addresses\":[\"tcp://127.0.0.1:1\"],\"minSize\":1,\"maxSize\":1}"

/* With the owner's URL, so that the client goes there. */
static void answers_and_errors_of_the_owner_pass_back(void **state)
{
    char url[64];
    struct asked asked[3];
    struct muster_forwards *forwards = create();
    url_of(*state, url);
    forward(forwards, url, MUSTER_RPC_JOIN, JOIN, &asked[0]);
    assert_int_equal(wait_for(&asked[0]), MUSTER_RPC_OK);
    assert_string_equal(asked[0].response.owner, url);
    forward(forwards, url, MUSTER_RPC_PUT, VALUE_JOB, &asked[1]);
    assert_int_equal(wait_for(&asked[1]), MUSTER_RPC_OK);
    forward(forwards, url, MUSTER_RPC_GET, "{\"job\":\"nobody\",\"key\":\"k\"}", &asked[2]);
    assert_int_equal(wait_for(&asked[2]), MUSTER_RPC_NOT_FOUND);
    assert_string_equal(asked[2].response.owner, url);
    for (int i = 0; i < 3; i++) {
        finish(&asked[i]);
    }
    muster_forwards_destroy(forwards);
}

static void many_go_at_the_same_time(void **state)
{
    char url[64];
    struct asked *asked = calloc(MANY + 1, sizeof *asked);
    struct muster_forwards *forwards = create();
    url_of(*state, url);
    forward(forwards, url, MUSTER_RPC_JOIN, JOIN, &asked[MANY]);
    assert_int_equal(wait_for(&asked[MANY]), MUSTER_RPC_OK);
    for (int i = 0; i < MANY; i++) {
        forward(forwards, url, MUSTER_RPC_PUT, VALUE_JOB, &asked[i]);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(wait_for(&asked[i]), MUSTER_RPC_OK);
    }
    for (int i = 0; i <= MANY; i++) {
        finish(&asked[i]);
    }
    free(asked);
    muster_forwards_destroy(forwards);
}

/* Nobody listens there any more; and a server that is no musterd. */
static void an_owner_that_is_away_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    char url[64];
    struct asked asked;
    struct muster_forwards *forwards = create();
    url_of(fixture, url);
    stop(fixture);
    forward(forwards, url, MUSTER_RPC_JOIN, JOIN, &asked);
    assert_int_equal(wait_for(&asked), MUSTER_RPC_UNAVAILABLE);
    assert_non_null(memmem(asked.response.body, asked.response.size_bytes, url, strlen(url)));
    finish(&asked);
    muster_forwards_destroy(forwards);
    start(fixture, 30000);
}

#define WAIT "{\"job\":\"j\",\"key\":\"never\",\"timeoutMs\":30000}"

/* A held one ends when its client has gone, and all do when the server ends. */
static void a_request_ends_with_its_client_and_with_the_server(void **state)
{
    char url[64];
    struct asked asked[3];
    struct muster_forwards *forwards = create();
    url_of(*state, url);
    forward(forwards, url, MUSTER_RPC_JOIN, JOIN, &asked[0]);
    assert_int_equal(wait_for(&asked[0]), MUSTER_RPC_OK);
    forward(forwards, url, MUSTER_RPC_WAIT, WAIT, &asked[1]);
    forward(forwards, url, MUSTER_RPC_WAIT, WAIT, &asked[2]);
    assert_true(muster_forwards_holds(&asked[1].held.id));
    muster_forwards_disconnected(forwards, &asked[1].held.id);
    assert_int_equal(wait_for(&asked[1]), MUSTER_RPC_CANCELED);
    muster_forwards_stop(forwards);
    assert_int_equal(wait_for(&asked[2]), MUSTER_RPC_UNAVAILABLE);
    for (int i = 0; i < 3; i++) {
        finish(&asked[i]);
    }
    forward(forwards, url, MUSTER_RPC_WAIT, WAIT, &asked[0]);
    assert_int_equal(wait_for(&asked[0]), MUSTER_RPC_UNAVAILABLE);
    finish(&asked[0]);
    muster_forwards_destroy(forwards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_and_errors_of_the_owner_pass_back),
        TEST(many_go_at_the_same_time),
        TEST(an_owner_that_is_away_is_unavailable),
        TEST(a_request_ends_with_its_client_and_with_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
