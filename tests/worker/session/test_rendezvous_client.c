/* The client against a small server in the test that sends scripted replies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/descriptors.h"
#include "worker/base/clock.h"
#include "worker/session/rendezvous_client.h"

enum { REPLIES_MAX = 8, REQUEST_MAX = 8192 };

/* Sends one reply to each request, in order, on one connection if the client leaves it open. */
struct server {
    int listener;
    char url[64];
    pthread_t thread;
    const char *replies[REPLIES_MAX]; /* NULL: close without a reply */
    size_t count;
    bool hold_last;    /* the last request gets no reply */
    atomic_int served; /* requests read */
    char last_request[REQUEST_MAX];
};

static bool read_request(int fd, char *buffer)
{
    size_t used = 0;
    while (used < REQUEST_MAX - 1) {
        ssize_t got = read(fd, buffer + used, REQUEST_MAX - 1 - used);
        if (got <= 0) {
            return false;
        }
        used += (size_t)got;
        buffer[used] = '\0';
        const char *end = strstr(buffer, "\r\n\r\n");
        const char *length = strstr(buffer, "Content-Length: ");
        if (end != NULL && length != NULL &&
            used >= (size_t)(end + 4 - buffer) + strtoul(length + 16, NULL, 10)) {
            return true;
        }
    }
    return false;
}

/* The server's thread: reads requests and sends the replies of its list, one each. */
static void *serve(void *argument)
{
    struct server *server = argument;
    int fd = -1;
    for (size_t i = 0; i < server->count;) {
        if (fd < 0) {
            fd = accept(server->listener, NULL, NULL);
            if (fd < 0) {
                break;
            }
        }
        if (!read_request(fd, server->last_request)) {
            (void)close(fd);
            fd = -1;
            continue;
        }
        const char *reply = server->replies[i++];
        atomic_fetch_add(&server->served, 1);
        bool held = server->hold_last && i == server->count;
        if (held) {
            char byte;
            (void)!read(fd, &byte, 1); /* returns when the client hangs up */
        } else if (reply != NULL) {
            (void)!write(fd, reply, strlen(reply));
        }
        if (reply == NULL) {
            (void)close(fd);
            fd = -1;
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return NULL;
}

static void start(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &length), 0);
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop(struct server *server)
{
    (void)shutdown(server->listener, SHUT_RDWR);
    (void)pthread_join(server->thread, NULL);
    (void)close(server->listener);
}

static struct muster_retry_policy retry_policy(uint32_t attempt_ms, uint32_t total_ms)
{
    return (struct muster_retry_policy){.attempt_ms = attempt_ms,
                                        .deadline_ns = muster_clock_after_ms(total_ms)};
}

static const char truncated[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n"
    "{\"pending\":\"x\"";
static const char empty_object[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    "{}";
static const char unavailable[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
    "47\r\n\r\n"
    "{\"code\":\"unavailable\",\"message\":\"disk is full\"}";
static const char refused[] =
    "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
    "{\"code\":\"unauthenticated\",\"message\":\"wrong token\"}";
static const char alien[] =
    "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n"
    "<p>no</p>";

static void a_call_posts_json_with_the_token(void **state)
{
    (void)state;
    struct server server = {.replies = {empty_object, empty_object}, .count = 2};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    enum muster_rpc_code code = MUSTER_RPC_UNKNOWN;
    start(&server);
    struct muster_retry_policy long_enough = retry_policy(20000, 20000);
    assert_int_equal(muster_client_create(server.url, "s3cret", &client), MUSTER_OK);
    assert_int_equal(muster_client_call(client, MUSTER_RPC_WATCH, json_pack("{s:s}", "job", "x"),
                                        &long_enough, &answer, &code),
                     MUSTER_OK);
    assert_int_equal(code, MUSTER_RPC_OK);
    assert_int_equal(json_object_size(answer), 0);
    json_decref(answer);
    assert_int_equal(muster_client_call(client, MUSTER_RPC_JOIN, json_pack("{s:s}", "job", "y"),
                                        &long_enough, &answer, NULL),
                     MUSTER_OK);
    json_decref(answer);
    stop(&server);
    assert_non_null(strstr(server.last_request, "POST /muster.v1.Rendezvous/Join HTTP/1.1\r\n"));
    assert_non_null(strstr(server.last_request, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(server.last_request, "\r\nAuthorization: Bearer s3cret\r\n"));
    assert_null(strstr(server.last_request, "Expect:"));
    assert_non_null(strstr(server.last_request, "{\"job\":\"y\"}"));
    muster_client_destroy(client);
}

static void a_call_to_an_overloaded_server_is_retried(void **state)
{
    (void)state;
    struct server server = {.replies = {unavailable, NULL, empty_object}, .count = 3};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    start(&server);
    struct muster_retry_policy long_enough = retry_policy(20000, 20000);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_WATCH, json_object(), &long_enough, &answer, NULL),
        MUSTER_OK);
    json_decref(answer);
    stop(&server);
    assert_int_equal(atomic_load(&server.served), 3);
    muster_client_destroy(client);
}

static void a_refusal_is_returned_at_once_with_its_text(void **state)
{
    (void)state;
    struct server server = {.replies = {refused, alien, truncated}, .count = 3};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    enum muster_rpc_code code = MUSTER_RPC_OK;
    start(&server);
    struct muster_retry_policy long_enough = retry_policy(20000, 20000);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &long_enough, &answer, &code),
        MUSTER_INVALID);
    assert_int_equal(code, MUSTER_RPC_UNAUTHENTICATED);
    assert_non_null(strstr(muster_last_error(), "wrong token"));
    assert_non_null(strstr(muster_last_error(), server.url));
    assert_int_not_equal(
        muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &long_enough, &answer, &code),
        MUSTER_OK);
    assert_non_null(strstr(muster_last_error(), "not from a musterd"));
    assert_int_equal(/* truncated JSON */
                     muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &long_enough,
                                        &answer, &code),
                     MUSTER_FATAL);
    stop(&server);
    assert_null(answer);
    muster_client_destroy(client);
}

static void no_server_ends_at_the_deadline_and_names_the_url(void **state)
{
    (void)state;
    struct server server = {.count = 0};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    enum muster_rpc_code code = MUSTER_RPC_OK;
    start(&server);
    stop(&server); /* no server listens at the port any more */
    struct muster_retry_policy short_one = retry_policy(5000, 300);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &short_one, &answer, &code),
        MUSTER_RETRY);
    assert_int_equal(code, MUSTER_RPC_UNAVAILABLE);
    assert_non_null(strstr(muster_last_error(), server.url));
    assert_non_null(strstr(muster_last_error(), "Connection refused"));
    muster_client_destroy(client);
}

static void without_a_free_descriptor_a_call_fails_at_once(void **state)
{
    (void)state;
    struct server server = {.count = 0};
    struct muster_client *client = NULL;
    struct rlimit before;
    json_t *answer = NULL;
    start(&server);
    stop(&server); /* it could not accept a connection without descriptors */
    struct muster_retry_policy long_one = retry_policy(5000, 20000);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    descriptors_exhaust(&before);
    muster_status status =
        muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &long_one, &answer, NULL);
    descriptors_restore(&before);
    assert_int_equal(status, MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), server.url));
    assert_non_null(strstr(muster_last_error(), "no descriptor left"));
    struct muster_retry_policy short_one = retry_policy(5000, 300);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_JOIN, json_object(), &short_one, &answer, NULL),
        MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "Connection refused"));
    muster_client_destroy(client);
}

static void a_server_that_never_answers_times_out(void **state)
{
    (void)state;
    struct server server = {.replies = {empty_object}, .count = 1, .hold_last = true};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    start(&server);
    struct muster_retry_policy short_one = retry_policy(200, 20000);
    short_one.attempts = 1;
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_WATCH, json_object(), &short_one, &answer, NULL),
        MUSTER_RETRY);
    assert_non_null(strstr(muster_last_error(), "no answer within"));
    muster_client_destroy(client);
    stop(&server);
}

static void *interrupt_after_request(void *argument)
{
    void **both = argument;
    struct server *server = both[0];
    while (atomic_load(&server->served) == 0) {
        (void)sched_yield();
    }
    muster_client_interrupt(both[1]);
    return NULL;
}

static void another_thread_interrupts_a_held_call(void **state)
{
    (void)state;
    struct server server = {.replies = {empty_object}, .count = 1, .hold_last = true};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    pthread_t thread;
    enum muster_rpc_code code = MUSTER_RPC_OK;
    start(&server);
    struct muster_retry_policy long_enough = retry_policy(60000, 60000);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    void *both[] = {&server, client};
    assert_int_equal(pthread_create(&thread, NULL, interrupt_after_request, both), 0);
    int64_t begun_ns = muster_clock_ns();
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_WATCH, json_object(), &long_enough, &answer, &code),
        MUSTER_ENDED);
    assert_true(muster_clock_ns() - begun_ns < 30000000000); /* less than the 60 s of the call */
    assert_int_equal(code, MUSTER_RPC_CANCELED);
    (void)pthread_join(thread, NULL);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_WATCH, json_object(), &long_enough, &answer, &code),
        MUSTER_ENDED);
    muster_client_destroy(client);
    stop(&server);
}

static void too_long_an_answer_is_refused(void **state)
{
    (void)state;
    size_t size = (size_t)MUSTER_RESPONSE_MAX_BYTES + 4096;
    char *too_long = malloc(size);
    assert_non_null(too_long);
    int used = snprintf(too_long, size, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", size);
    memset(too_long + used, ' ', size - (size_t)used);
    too_long[size - 1] = '\0';
    struct server server = {.replies = {too_long}, .count = 1};
    struct muster_client *client = NULL;
    json_t *answer = NULL;
    start(&server);
    struct muster_retry_policy long_enough = retry_policy(20000, 20000);
    assert_int_equal(muster_client_create(server.url, NULL, &client), MUSTER_OK);
    assert_int_equal(
        muster_client_call(client, MUSTER_RPC_GET_JOB, json_object(), &long_enough, &answer, NULL),
        MUSTER_FATAL);
    assert_non_null(strstr(muster_last_error(), "an answer of more than"));
    muster_client_destroy(client);
    stop(&server);
    free(too_long);
}

static void a_token_that_would_break_the_header_is_refused(void **state)
{
    (void)state;
    struct muster_client *client = NULL;
    assert_int_equal(muster_client_create("http://127.0.0.1:1", "a\r\nb: c", &client),
                     MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "token"));
    assert_null(client);
}

static void the_local_address_towards_loopback_is_loopback(void **state)
{
    (void)state;
    struct muster_client *client = NULL;
    char address[64] = "";
    assert_int_equal(muster_client_create("http://127.0.0.1:7070", NULL, &client), MUSTER_OK);
    assert_int_equal(muster_client_local_address(client, address, sizeof address), MUSTER_OK);
    assert_string_equal(address, "127.0.0.1");
    muster_client_destroy(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_posts_json_with_the_token),
        cmocka_unit_test(a_call_to_an_overloaded_server_is_retried),
        cmocka_unit_test(a_refusal_is_returned_at_once_with_its_text),
        cmocka_unit_test(no_server_ends_at_the_deadline_and_names_the_url),
        cmocka_unit_test(without_a_free_descriptor_a_call_fails_at_once),
        cmocka_unit_test(a_server_that_never_answers_times_out),
        cmocka_unit_test(another_thread_interrupts_a_held_call),
        cmocka_unit_test(too_long_an_answer_is_refused),
        cmocka_unit_test(a_token_that_would_break_the_header_is_refused),
        cmocka_unit_test(the_local_address_towards_loopback_is_loopback),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
