/* The service over HTTP: jobs, held requests, slow clients and closed connections. */
#include "rendezvous/service/transactions.h"
#include "tests/rendezvous/http/served.h"

enum { STOPS = 100, AT_ONCE = 8 };

/* The next response on this member's connection has revoked: true. */
static void expect_revoked(const struct fixture *fixture, unsigned member)
{
    struct web_response response = web_read(fixture->fds[member]);
    assert_int_equal(response.status, 200);
    assert_true(json_is_true(test_part(response.json, "revoked")));
    web_response_finish(&response);
}

static void a_job_of_four_lives_from_join_to_end(void **state)
{
    struct fixture *fixture = *state;
    char body[256];
    form(fixture, 4);
    for (unsigned i = 0; i < 4; i++) {
        send_watch(fixture, i, 1);
    }
    (void)snprintf(body, sizeof body,
                   "{'job':'j','member':'%s','generation':1,'reason':'LEAVE_REASON_PLANNED'}",
                   test_member(3));
    expect(post(fixture, "Leave", body), 200, "");
    expect(web_read(fixture->fds[3]), 400, "failed_precondition");
    for (unsigned i = 0; i < 3; i++) {
        expect_revoked(fixture, i);
        send_join(fixture, i, 1, 4);
    }
    for (unsigned i = 0; i < 3; i++) {
        struct web_response response = web_read(fixture->fds[i]);
        assert_int_equal(test_part_number(response.json, "formed.generation"), 2);
        assert_int_equal(test_part_number(response.json, "formed.size"), 3);
        web_response_finish(&response);
        send_watch(fixture, i, 2);
    }
    (void)snprintf(body, sizeof body,
                   "{'job':'j','member':'%s','generation':2,'suspect':2,'why':'no answer'}",
                   test_member(0));
    expect(post(fixture, "Report", body), 200, "");
    for (unsigned i = 0; i < 3; i++) {
        expect_revoked(fixture, i);
        send_join(fixture, i, 2, 4); /* the suspect, too: a sign of life */
    }
    for (unsigned i = 0; i < 3; i++) {
        expect(web_read(fixture->fds[i]), 200, "");
        send_watch(fixture, i, 3);
    }
    expect(post(fixture, "Resize", "{'job':'j','targetSize':2}"), 200, "");
    struct web_response response = web_read(fixture->fds[2]);
    assert_true(json_is_true(test_part(response.json, "leave")));
    web_response_finish(&response);
    expect(post(fixture, "EndJob", "{'job':'j','why':'enough'}"), 200, "");
    response = web_read(fixture->fds[1]);
    assert_non_null(strstr(test_part_text(response.json, "message"), "enough"));
    expect(response, 400, "failed_precondition");
    close_all(fixture, 4);
}

static void a_crowd_of_held_requests_is_answered_at_once(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        send_watch(fixture, i, 1);
    }
    expect(post(fixture, "EndJob", "{'job':'j'}"), 200, "");
    for (unsigned i = 0; i < CROWD; i++) {
        expect(web_read(fixture->fds[i]), 400, "failed_precondition");
    }
    close_all(fixture, CROWD);
}

static bool is_suspected(const struct fixture *fixture, unsigned member)
{
    struct web_response response = post(fixture, "GetJob", "{'job':'j'}");
    bool suspected = false;
    size_t index;
    json_t *listed; /* in the order of their Joins, which two threads of the server may change */
    json_array_foreach(test_part(response.json, "job.members"), index, listed)
    {
        const char *id = json_string_value(json_object_get(listed, "member"));
        suspected |= id != NULL && strcmp(id, test_member(member)) == 0 &&
                     json_is_true(json_object_get(listed, "suspected"));
    }
    web_response_finish(&response);
    return suspected;
}

static void a_closed_connection_is_seen_while_its_request_is_held(void **state)
{
    struct fixture *fixture = *state;
    char body[256];
    form(fixture, 3);
    for (unsigned i = 0; i < 3; i++) {
        send_watch(fixture, i, 1);
    }
    struct web_response response;
    int64_t deadline_ns = muster_clock_after_ms(20000);
    (void)close(fixture->fds[2]);
    bool suspected = false;
    while (!suspected && muster_clock_left_ms(deadline_ns) > 0) {
        suspected = is_suspected(fixture, 2);
    }
    assert_true(suspected); /* because of the connection: leases are 30 s here */
    (void)snprintf(body, sizeof body, "{'job':'j','member':'%s','generation':1,'suspect':2}",
                   test_member(0));
    expect(post(fixture, "Report", body), 200, "");
    for (unsigned i = 0; i < 2; i++) {
        expect_revoked(fixture, i);
        send_join(fixture, i, 1, 3);
    }
    for (unsigned i = 0; i < 2; i++) {
        response = web_read(fixture->fds[i]);
        assert_int_equal(test_part_number(response.json, "formed.size"), 2);
        web_response_finish(&response);
    }
    close_all(fixture, 2);
}

/* The job is locked, as while a long change of it is made. Nobody who reads sockets waits for it.
 */
static void closed_connections_of_a_locked_job_hold_up_no_other(void **state)
{
    enum { MEMBERS = 32, REQUESTS = 64 };
    struct fixture *fixture = *state;
    struct muster_transaction transaction;
    form(fixture, MEMBERS);
    assert_true(muster_transaction_begin_internal(fixture->service, "j", &transaction));
    close_all(fixture, MEMBERS);
    for (unsigned i = 0; i < REQUESTS; i++) {
        expect(post(fixture, "GetJob", "{'job':'other'}"), 404, "not_found");
    }
    muster_transaction_end(&transaction);
}

static void a_wrong_token_is_refused(void **state)
{
    struct fixture *fixture = *state;
    static const char join[] =
        "{'job':'t','member':'00000000-0000-4000-8000-000000000001','host':'h','maxSize':1}";
    static const char *const wrong[] = {"", "Authorization: Bearer wrong\r\n",
                                        "Authorization: Basic c2VjcmV0\r\n",
                                        "Authorization: Bearer \r\n"};
    int fd = open_connection(fixture);
    assert_true(web_post(fd, "Join", "Authorization: Bearer secret\r\n", join));
    expect(web_read(fd), 200, "");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(web_post(fd, "GetJob", wrong[i], "{'job':'t'}"));
        expect(web_read(fd), 401, "unauthenticated");
    }
    assert_true(web_post(fd, "GetJob", "authorization: bearer secret\r\n", "{'job':'t'}"));
    expect(web_read(fd), 200, "");
    (void)close(fd);
}

/* Does not wait for responses, so that the requests arrive while the server stops. */
static void garbage_does_no_harm_while_the_server_stops(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 0; round < STOPS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            fixture->fds[i] = open_connection(fixture);
            assert_true(web_send(fixture->fds[i], "GET / HTTP/9.9\r\n\r\n", 18));
        }
        stop(fixture);
        close_all(fixture, AT_ONCE);
        start(fixture, SLOW_MS);
    }
}

/* Sends the text byte by byte until the server closes the connection; false: it does not. */
static bool drip(int fd, const char *text, size_t size_bytes)
{
    int64_t deadline_ns = muster_clock_after_ms(20 * SLOW_MS);
    for (size_t i = 0; muster_clock_left_ms(deadline_ns) > 0; i++) {
        if (!web_send(fd, text + i % size_bytes, 1)) {
            return true;
        }
        (void)usleep(10000); /* the test is about slow clients */
    }
    return false;
}

static void slow_clients_are_cut_off(void **state)
{
    struct fixture *fixture = *state;
    int fd = open_connection(fixture);
    assert_true(drip(fd, "x", 1)); /* a head without an end */
    (void)close(fd);
    static const char head[] =
        "POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE "Content-Length: 100000\r\n\r\n";
    fd = open_connection(fixture);
    assert_true(web_send(fd, head, sizeof head - 1));
    assert_true(drip(fd, " ", 1));
    (void)close(fd);
    fd = open_connection(fixture);
    assert_true(web_closed(fd)); /* this one sends nothing */
    (void)close(fd);
}

static void a_held_request_is_not_slow(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2);
    int64_t begun_ms = muster_clock_ms();
    int fd = open_connection(fixture);
    assert_true(web_post(fd, "Wait", "", "{'job':'j','key':'k','timeoutMs':1600}"));
    expect(web_read(fd), 504, "deadline_exceeded");
    assert_true(muster_clock_ms() - begun_ms >= 1600);
    (void)close(fd);
    close_all(fixture, 2);
}

static void the_timeout_of_a_client_bounds_the_hold(void **state)
{
    struct fixture *fixture = *state;
    static const char join[] =
        "{'job':'w','member':'00000000-0000-4000-8000-000000000001','host':'h','minSize':2}";
    int fd = open_connection(fixture);
    assert_true(web_post(fd, "Join", "Connect-Timeout-Ms: 100\r\n", join));
    struct web_response response = web_read(fd);
    assert_int_equal(response.status, 200);
    assert_int_equal(test_part_number(response.json, "waiting.members"), 1);
    assert_int_equal(test_part_number(response.json, "waiting.minSize"), 2);
    web_response_finish(&response);
    (void)close(fd);
}

static void requests_held_when_the_server_stops_are_answered(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 4);
    for (unsigned i = 0; i < 4; i++) {
        send_watch(fixture, i, 1);
    }
    /* Once this is answered, the four requests before it were handled or are in the server's
     * sockets. Both are correct below. */
    expect(post(fixture, "ListJobs", "{}"), 200, "");
    muster_http_stop(fixture->http);
    fixture->http = NULL;
    for (unsigned i = 0; i < 4; i++) {
        struct web_response response = web_read(fixture->fds[i]);
        assert_true(response.status == 503 || response.status == 0);
        web_response_finish(&response);
    }
    close_all(fixture, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_of_four_lives_from_join_to_end),
        TEST(a_crowd_of_held_requests_is_answered_at_once),
        TEST(a_closed_connection_is_seen_while_its_request_is_held),
        TEST(closed_connections_of_a_locked_job_hold_up_no_other),
        TEST(a_wrong_token_is_refused),
        TEST(garbage_does_no_harm_while_the_server_stops),
        IMPATIENT(slow_clients_are_cut_off),
        IMPATIENT(a_held_request_is_not_slow),
        TEST(the_timeout_of_a_client_bounds_the_hold),
        TEST(requests_held_when_the_server_stops_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
