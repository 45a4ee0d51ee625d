/* The service over HTTP: jobs, held requests, closed connections, and what no client should send.
 */
#include "rendezvous/http/http.h"
#include "rendezvous/http/listen.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"
#include "tests/support/web.h"
#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CROWD = 256, SLOW_MS = 400, STOPS = 100, AT_ONCE = 8 };

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    struct muster_http *http;
    uint16_t port;
    int fds[CROWD];
};

static void start(struct fixture *fixture, uint32_t transfer_timeout_ms)
{
    struct muster_service_config config;
    char address[MUSTER_LISTEN_ADDRESS_SIZE];
    struct muster_http_config http = {.transfer_timeout_ms = transfer_timeout_ms};
    muster_service_config_init(&config);
    config.hold_ms = 15000;
    config.settings.lease_ms = 30000;
    config.settings.suspect_ms = 30000;
    assert_int_equal(muster_listen_open("127.0.0.1:0", &http.listen_fd), MUSTER_OK);
    assert_int_equal(muster_listen_describe(http.listen_fd, address, &fixture->port), MUSTER_OK);
    assert_int_equal(muster_store_memory_open(&fixture->store), MUSTER_OK);
    assert_int_equal(muster_service_create(&config, fixture->store, &fixture->service), MUSTER_OK);
    assert_int_equal(muster_http_start(&http, fixture->service, &fixture->http), MUSTER_OK);
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    start(*state, 30000);
    return 0;
}

static int set_up_impatient(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    start(*state, SLOW_MS);
    return 0;
}

static void stop(struct fixture *fixture)
{
    muster_http_stop(fixture->http);
    muster_service_destroy(fixture->service);
    muster_store_close(fixture->store);
}

static int tear_down(void **state)
{
    stop(*state);
    free(*state);
    return 0;
}

static int open_connection(const struct fixture *fixture)
{
    int fd = web_open(fixture->port);
    assert_true(fd >= 0);
    return fd;
}

/* One request on a connection of its own. */
static struct web_response post(const struct fixture *fixture, const char *method, const char *body)
{
    int fd = open_connection(fixture);
    assert_true(web_post(fd, method, "", body));
    struct web_response response = web_read(fd);
    (void)close(fd);
    return response;
}

static void expect(struct web_response response, int status, const char *code)
{
    if (response.status != status || strcmp(test_part_text(response.json, "code"), code) != 0) {
        fail_msg("status %d, code %s: %s", response.status, test_part_text(response.json, "code"),
                 test_part_text(response.json, "message"));
    }
    if (code[0] != '\0') {
        assert_true(strlen(test_part_text(response.json, "message")) > 0);
    }
    assert_non_null(strcasestr(response.head, "content-type: application/json"));
    web_response_finish(&response);
}

static void send_join(const struct fixture *fixture, unsigned member, unsigned generation,
                      unsigned size)
{
    char body[512];
    (void)snprintf(body, sizeof body,
                   "{'job':'j','member':'%s','host':'h%u','addresses':['tcp://a:%u'],"
                   "'generation':'%u','order':%u,'minSize':2,'maxSize':%u,'targetSize':%u}",
                   test_member(member), member / 2, member, generation, member, CROWD, size);
    assert_true(web_post(fixture->fds[member], "Join", "", body));
}

static void send_watch(const struct fixture *fixture, unsigned member, unsigned generation)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{'job':'j','member':'%s','generation':%u}",
                   test_member(member), generation);
    assert_true(web_post(fixture->fds[member], "Watch", "", body));
}

static void form(struct fixture *fixture, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        fixture->fds[i] = open_connection(fixture);
        send_join(fixture, i, 0, size);
    }
    for (unsigned i = 0; i < size; i++) {
        struct web_response response = web_read(fixture->fds[i]);
        assert_int_equal(response.status, 200);
        assert_int_equal(test_part_number(response.json, "formed.size"), size);
        assert_int_equal(test_part_number(response.json, "formed.rank"), i);
        assert_int_equal(json_array_size(test_part(response.json, "formed.peers")), size);
        web_response_finish(&response);
    }
}

static void close_all(struct fixture *fixture, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        (void)close(fixture->fds[i]);
    }
}

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

#define PATH "/muster.v1.Rendezvous/"
#define HEAD " HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n"
#define TYPE "Content-Type: application/json\r\n"

static void heads_that_are_wrong_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *text;
        int status;
        const char *code;
    } cases[] = {
        {"POST " PATH "ListJobs" HEAD TYPE "\r\n{}", 200, ""},
        {"POST " PATH "ListJobs" HEAD "Content-Type: Application/JSON; charset=utf-8\r\n\r\n{}",
         200, ""},
        {"POST " PATH "ListJobs" HEAD TYPE "Connect-Protocol-Version: 1\r\n\r\n{}", 200, ""},
        {"POST " PATH "ListJobs" HEAD "\r\n{}", 415, "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/proto\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/jsonp\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/connect+json\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD TYPE "Content-Encoding: gzip\r\n\r\n{}", 501,
         "unimplemented"},
        {"POST " PATH "ListJobs" HEAD TYPE "Connect-Protocol-Version: 2\r\n\r\n{}", 400,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD TYPE "Connect-Timeout-Ms: 12345678901\r\n\r\n{}", 400,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD TYPE "Connect-Timeout-Ms: -1\r\n\r\n{}", 400,
         "invalid_argument"},
        {"POST " PATH "Lists" HEAD TYPE "\r\n{}", 404, "unimplemented"},
        {"POST /" HEAD TYPE "\r\n{}", 404, "unimplemented"},
        {"POST /muster.v2.Rendezvous/ListJobs" HEAD TYPE "\r\n{}", 404, "unimplemented"},
        {"PUT " PATH "ListJobs" HEAD TYPE "\r\n{}", 405, "unimplemented"},
        {"GET " PATH "Join?encoding=json&message=%7B%7D HTTP/1.1\r\nHost: t\r\n\r\n", 405,
         "unimplemented"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = open_connection(fixture);
        for (int again = 0; again < 2; again++) { /* the connection can be used again */
            assert_true(web_send(fd, cases[i].text, strlen(cases[i].text)));
            expect(web_read(fd), cases[i].status, cases[i].code);
        }
        (void)close(fd);
    }
}

static void gets_carry_their_message_in_the_query(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *query;
        int status;
        const char *code;
    } cases[] = {
        {"GetJob?connect=v1&encoding=json&message=%7B%22job%22%3A%22j%22%7D", 200, ""},
        {"GetJob?message=eyJqb2IiOiJqIn0&base64=1&encoding=json", 200, ""},
        {"GetJob?message=eyJqb2IiOiJqIn0%3D&encoding=json&base64=1&connect=v1", 200, ""},
        {"ListJobs?encoding=json&message=%7B%7D", 200, ""},
        {"GetJob?encoding=json&message=%7B%22job%22%3A%22nobody%22%7D", 404, "not_found"},
        {"GetJob?encoding=json", 400, "invalid_argument"},
        {"GetJob?encoding=json&message", 400, "invalid_argument"},
        {"GetJob?encoding=json&message=%7B%00", 400, "invalid_argument"},
        {"GetJob?encoding=json&base64=1&message=%7B%7D", 400, "invalid_argument"},
        {"GetJob?encoding=proto&message=%7B%7D", 415, "invalid_argument"},
        {"GetJob?message=%7B%7D", 415, "invalid_argument"},
        {"GetJob", 415, "invalid_argument"},
        {"GetJob?encoding=json&message=%7B%7D&connect=v2", 400, "invalid_argument"},
        {"GetJob?encoding=json&message=%7B%7D&compression=gzip", 501, "unimplemented"},
    };
    form(fixture, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        int fd = open_connection(fixture);
        int size = snprintf(text, sizeof text, "GET " PATH "%s HTTP/1.1\r\nHost: test\r\n\r\n",
                            cases[i].query);
        assert_true(web_send(fd, text, (size_t)size));
        expect(web_read(fd), cases[i].status, cases[i].code);
        (void)close(fd);
    }
    close_all(fixture, 2);
}

/* The leak sanitizer fails this test if the server keeps the bodies. */
static void a_get_has_no_body(void **state)
{
    struct fixture *fixture = *state;
    static const char head[] = "GET " PATH
                               "ListJobs?encoding=json&message=%7B%7D HTTP/1.1\r\n"
                               "Host: test\r\n";
    static const char *const bodies[] = {"Content-Length: 2\r\n\r\n{}",
                                         "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"};
    int fd = open_connection(fixture);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        assert_true(web_send(fd, head, sizeof head - 1));
        assert_true(web_send(fd, bodies[i], strlen(bodies[i])));
        expect(web_read(fd), 400, "invalid_argument");
    }
    assert_true(web_send(fd, head, sizeof head - 1)); /* the connection can be used again */
    assert_true(web_send(fd, "Content-Length: 0\r\n\r\n", 21));
    expect(web_read(fd), 200, "");
    (void)close(fd);
}

static void garbage_is_answered_or_cut_off(void **state)
{
    struct fixture *fixture = *state;
    static const char *const bodies[] = {"",
                                         "{",
                                         "null",
                                         "[]",
                                         "{'job':",
                                         "\xff\xfe\xfd",
                                         "{}{}",
                                         "{'job':'j','job':'k'}",
                                         "[[[[[[[[[[[[[[[[[[[[[["};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        expect(post(fixture, "GetJob", bodies[i]), 400, "invalid_argument");
    }
    static const char *const noise[] = {"\r\n\r\n\r\n", "GARBAGE\r\n\r\n", "\x16\x03\x01\x02\x00",
                                        "POST\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"};
    for (size_t i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        int fd = open_connection(fixture);
        assert_true(web_send(fd, noise[i], strlen(noise[i])));
        (void)close(fd);
    }
    expect(post(fixture, "ListJobs", "{}"), 200, "");
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

static void bodies_over_the_bound_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static char body[300000];
    char head[512];
    memset(body, ' ', sizeof body);
    int fd = open_connection(fixture);
    int size = snprintf(head, sizeof head,
                        "POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE
                        "Content-Length: %zu\r\n\r\n",
                        sizeof body);
    assert_true(web_send(fd, head, (size_t)size));
    assert_true(web_send(fd, body, sizeof body));
    expect(web_read(fd), 413, "resource_exhausted");
    (void)close(fd);

    fd = open_connection(fixture);
    size = snprintf(head, sizeof head,
                    "POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE
                    "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
                    sizeof body);
    assert_true(web_send(fd, head, (size_t)size));
    assert_true(web_send(fd, body, sizeof body));
    assert_true(web_send(fd, "\r\n0\r\n\r\n", 7));
    expect(web_read(fd), 413, "resource_exhausted");
    (void)close(fd);

    fd = open_connection(fixture); /* too long to be read at all */
    size = snprintf(head, sizeof head,
                    "POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE
                    "Content-Length: 99999999999\r\n\r\n");
    assert_true(web_send(fd, head, (size_t)size));
    expect(web_read(fd), 413, "resource_exhausted");
    (void)close(fd);
}

static void chunked_bodies_are_read(void **state)
{
    struct fixture *fixture = *state;
    static const char text[] = "POST " PATH "GetJob HTTP/1.1\r\nHost: test\r\n" TYPE
                               "Transfer-Encoding: chunked\r\n\r\n"
                               "5\r\n{\"job\r\n6\r\n\":\"no\"\r\n1\r\n}\r\n0\r\n\r\n";
    int fd = open_connection(fixture);
    assert_true(web_send(fd, text, sizeof text - 1));
    expect(web_read(fd), 404, "not_found");
    (void)close(fd);
}

static void huge_headers_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static char text[20000];
    int used = snprintf(text, sizeof text, "POST " PATH "ListJobs" HEAD TYPE "X-Long: ");
    memset(text + used, 'x', sizeof text - (size_t)used - 1);
    int fd = open_connection(fixture);
    bool sent = web_send(fd, text, sizeof text - 1);
    struct web_response response = web_read(fd);
    assert_true(response.status == 431 || (response.status == 0 && !sent));
    web_response_finish(&response);
    (void)close(fd);
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define IMPATIENT(name) cmocka_unit_test_setup_teardown(name, set_up_impatient, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_job_of_four_lives_from_join_to_end),
        TEST(a_crowd_of_held_requests_is_answered_at_once),
        TEST(a_closed_connection_is_seen_while_its_request_is_held),
        TEST(a_wrong_token_is_refused),
        TEST(heads_that_are_wrong_are_refused),
        TEST(gets_carry_their_message_in_the_query),
        TEST(a_get_has_no_body),
        TEST(garbage_is_answered_or_cut_off),
        TEST(garbage_does_no_harm_while_the_server_stops),
        TEST(bodies_over_the_bound_are_refused),
        TEST(chunked_bodies_are_read),
        TEST(huge_headers_are_refused),
        IMPATIENT(slow_clients_are_cut_off),
        IMPATIENT(a_held_request_is_not_slow),
        TEST(the_timeout_of_a_client_bounds_the_hold),
        TEST(requests_held_when_the_server_stops_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
