/* The heads and bodies of requests over HTTP: what is read, and what is refused in which words. */
#include "rendezvous/service/jobs.h"
#include "tests/rendezvous/http/served.h"

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
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/grpc\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/jsonp\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD "Content-Type: application/connect+json\r\n\r\n{}", 415,
         "invalid_argument"},
        {"POST " PATH "ListJobs" HEAD TYPE "Content-Encoding: br\r\n\r\n{}", 501, "unimplemented"},
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

/* Another reader of such a head would see other requests than the server does. */
static void heads_that_can_be_read_in_two_ways_are_refused(void **state)
{
    struct fixture *fixture = *state;
#define POST_LIST "POST " PATH "ListJobs HTTP/1.1\r\n" TYPE
#define CHUNKS "\r\n2\r\n{}\r\n0\r\n\r\n"
    static const struct {
        const char *text;
        const char *named;
    } cases[] = {
        {POST_LIST "Host: t\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "Content-Length"},
        {POST_LIST "Host: t\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}  ",
         "Content-Length"},
        {POST_LIST "Host: t\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n" CHUNKS,
         "Transfer-Encoding"},
        {POST_LIST "Host: t\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" CHUNKS,
         "Transfer-Encoding"},
        {POST_LIST "Host: t\r\nTransfer-Encoding: gzip, chunked\r\n" CHUNKS, "Transfer-Encoding"},
        {POST_LIST "Host: t\r\nTransfer-Encoding: gzip\r\n\r\n{}", "Transfer-Encoding"},
        {"POST " PATH "ListJobs HTTP/1.0\r\n" TYPE "Transfer-Encoding: chunked\r\n" CHUNKS,
         "Transfer-Encoding"},
        {POST_LIST "Content-Length: 2\r\n\r\n{}", "Host"},
        {POST_LIST "Host: a\r\nHost: b\r\nContent-Length: 2\r\n\r\n{}", "Host"},
        {POST_LIST "Host: \r\nContent-Length: 2\r\n\r\n{}", "Host"},
        {POST_LIST "Host: a b\r\nContent-Length: 2\r\n\r\n{}", "Host"},
        {POST_LIST "Host: a/b\r\nContent-Length: 2\r\n\r\n{}", "Host"},
        {POST_LIST "Host: t\r\nContent-Length : 2\r\n\r\n{}", "header"},
        {POST_LIST "Host: t\r\nX: a\x01\r\nContent-Length: 2\r\n\r\n{}", "header"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = open_connection(fixture);
        assert_true(web_send(fd, cases[i].text, strlen(cases[i].text)));
        struct web_response response = web_read(fd);
        assert_non_null(strstr(test_part_text(response.json, "message"), cases[i].named));
        expect(response, 400, "invalid_argument");
        assert_true(web_closed(fd));
        (void)close(fd);
    }
    static const char old[] =
        "POST " PATH "ListJobs HTTP/1.0\r\n" TYPE "Content-Length: 2\r\n\r\n{}";
    int fd = open_connection(fixture);
    assert_true(web_send(fd, old, sizeof old - 1));
    expect(web_read(fd), 200, "");
    (void)close(fd);
}

/* What libmicrohttpd refuses by itself, also as a later request of a connection: JSON, counted. */
static void what_the_library_refuses_is_json_too_and_counted(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *text;
        int status;
        const char *code;
    } cases[] = {
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unimplemented"},
        {"GET / HTTP/3.7\r\nHost: test\r\n\r\n", 505, "unimplemented"},
        {"POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE "Content-Length: zz\r\n\r\n", 400,
         "invalid_argument"},
        {"POST " PATH "ListJobs HTTP/1.1\r\nHost: test\r\n" TYPE
         "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
         400, "invalid_argument"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        enum muster_rpc_code code = muster_rpc_code_parse(cases[i / 2].code);
        uint64_t before = atomic_load(&fixture->service->metrics.refusals[code]);
        int fd = open_connection(fixture);
        if (i % 2 == 1) {
            assert_true(web_post(fd, "ListJobs", "", "{}"));
            expect(web_read(fd), 200, "");
        }
        assert_true(web_send(fd, cases[i / 2].text, strlen(cases[i / 2].text)));
        struct web_response response = web_read(fd);
        assert_non_null(strcasestr(response.head, "content-type: application/json"));
        expect(response, cases[i / 2].status, cases[i / 2].code);
        assert_true(web_closed(fd));
        (void)close(fd);
        assert_int_equal(atomic_load(&fixture->service->metrics.refusals[code]), before + 1);
    }
}

static void a_client_of_http_2_is_told_what_to_speak(void **state)
{
    struct fixture *fixture = *state;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    int fd = open_connection(fixture);
    assert_true(web_send(fd, preface, sizeof preface - 1));
    struct web_response response = web_read(fd);
    assert_non_null(strstr(test_part_text(response.json, "message"), "HTTP/1.1"));
    expect(response, 505, "unimplemented");
    (void)close(fd);
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
        {"GetJob?encoding=xml&message=%7B%7D", 415, "invalid_argument"},
        {"GetJob?message=%7B%7D", 415, "invalid_argument"},
        {"GetJob", 415, "invalid_argument"},
        {"GetJob?encoding=json&message=%7B%7D&connect=v2", 400, "invalid_argument"},
        {"GetJob?encoding=json&message=%7B%7D&compression=br", 501, "unimplemented"},
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
    if (response.status == 0) { /* a reset overtook the answer */
        assert_false(sent);
        web_response_finish(&response);
    } else {
        expect(response, 431, "resource_exhausted");
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(heads_that_are_wrong_are_refused),
        TEST(heads_that_can_be_read_in_two_ways_are_refused),
        TEST(what_the_library_refuses_is_json_too_and_counted),
        TEST(a_client_of_http_2_is_told_what_to_speak),
        TEST(gets_carry_their_message_in_the_query),
        TEST(a_get_has_no_body),
        TEST(garbage_is_answered_or_cut_off),
        TEST(bodies_over_the_bound_are_refused),
        TEST(chunked_bodies_are_read),
        TEST(huge_headers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
