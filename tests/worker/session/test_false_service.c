/* A service that answers falsely: garbage, wrong types, ranks that cannot be, another member's
 * answer, bodies and headers that do not end. Whatever it says, a member gets one clear error
 * within its limits, or goes on; it neither crashes nor waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/support/crew.h"
#include "tests/support/false_server.h"
#include "tests/support/service.h"
#include "tests/support/web.h"
#include "worker/base/clock.h"

enum {
    JOIN_MS = 1500,
    LIMIT_MS = 30000, /* for JOIN_MS and whatever else, on a busy machine */
    PAIR = 2,
    HUGE_HEADERS = 100000, /* far more than a client should read */
};

static void expect_clear_error(muster_status status, const char *lie)
{
    const char *text = muster_last_error();
    if (status == MUSTER_OK || text[0] == '\0' || strchr(text, '\n') != NULL) {
        fail_msg("%s: %s, \"%s\"", lie, muster_status_name(status), text);
    }
}

static muster_status open_member(const char *url, const char *job, uint32_t size,
                                 muster_session **ret_session)
{
    muster_options options;
    muster_options_init(&options);
    options.rendezvous = url;
    options.job = job;
    options.min_size = size;
    options.max_size = size;
    options.target_size = size;
    options.join_timeout_ms = JOIN_MS;
    options.call_timeout_ms = 2 * JOIN_MS;
    options.leave_on_sigterm = 0;
    options.measure = 0;
    return muster_open(&options, ret_session);
}

/* Answers that are no musterd's
 * --------------------------------------------------------------------- */

/* What is sent in answer to every request; then the connection is closed. */
struct raw_lie {
    const char *name, *text;
    const char *error; /* what the error has, or NULL */
};

static const struct raw_lie raw_lies[] = {
    {"nothing", "", NULL},
    {"garbage", "\x01\x02\xff not http at all\r\n\r\n\r\n", NULL},
    {"no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "JSON"},
    {"no JSON", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "JSON"},
    {"a list", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "JSON"},
    {"neither waiting nor formed", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
     "the answer to Join"},
    {"a number for an object", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"formed\":5}",
     "the answer to Join"},
    {"a truncated body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"formed\":", NULL},
    {"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", NULL},
    {"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}", NULL},
    {"a broken chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", NULL},
    {"a redirection",
     "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
     "HTTP 302, and not from a musterd"},
    {"an error of a proxy", "HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\n<p>no</p>",
     "HTTP 500, and not from a musterd"},
    {"an overloaded proxy", "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n<p>no</p>", NULL},
    {"an unknown code",
     "HTTP/1.1 400 Bad\r\nContent-Length: 33\r\n\r\n{\"code\":\"nonsense\",\"message\":\"no\"}",
     NULL},
    {"an error that is none",
     "HTTP/1.1 500 Bad\r\nContent-Length: 27\r\n\r\n{\"code\":\"ok\",\"message\":\"no\"}", NULL},
    {"an error of the wrong type", "HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\n{\"code\":5}",
     NULL},
};

static bool send_raw(struct false_exchange *exchange)
{
    const struct raw_lie *lie = exchange->server->user;
    (void)web_send(exchange->fd, lie->text, strlen(lie->text));
    (void)shutdown(exchange->fd, SHUT_RDWR);
    return true;
}

static void answers_that_are_no_musterd_s_are_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof raw_lies / sizeof raw_lies[0]; i++) {
        struct false_server server = {.function = send_raw, .user = (void *)&raw_lies[i]};
        muster_session *session = NULL;
        assert_true(false_server_start(&server));
        int64_t begin_ms = muster_clock_ms();
        muster_status status = open_member(server.url, "lie", 1, &session);
        expect_clear_error(status, raw_lies[i].name);
        if (raw_lies[i].error != NULL && strstr(muster_last_error(), raw_lies[i].error) == NULL) {
            fail_msg("%s: \"%s\"", raw_lies[i].name, muster_last_error());
        }
        assert_in_range(muster_clock_ms() - begin_ms, 0, LIMIT_MS);
        false_server_stop(&server);
    }
}

/* Answers without an end
 * ---------------------------------------------------------------------------- */

static bool send_headers_without_end(struct false_exchange *exchange)
{
    atomic_ulong *sent = exchange->server->user;
    static const char line[] = "X-More: and more and more and more and more and more\r\n";
    bool open = web_send(exchange->fd, "HTTP/1.1 200 OK\r\n", 17);
    for (unsigned i = 0; open && !false_server_stops(exchange->server); i++) {
        open = web_send(exchange->fd, line, sizeof line - 1);
        atomic_fetch_add(sent, 1);
    }
    return true;
}

static bool send_continues_without_end(struct false_exchange *exchange)
{
    atomic_ulong *sent = exchange->server->user;
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    bool open = true;
    while (open && !false_server_stops(exchange->server)) {
        open = web_send(exchange->fd, line, sizeof line - 1);
        atomic_fetch_add(sent, 1);
    }
    return true;
}

static bool send_body_without_end(struct false_exchange *exchange)
{
    static char piece[65536];
    memset(piece, ' ', sizeof piece);
    bool open = web_send(exchange->fd, "HTTP/1.1 200 OK\r\n\r\n", 19);
    while (open && !false_server_stops(exchange->server)) {
        open = web_send(exchange->fd, piece, sizeof piece);
    }
    return true;
}

/* A byte now and then. */
static bool send_slowly(struct false_exchange *exchange)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    bool open = web_send(exchange->fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", 43);
    while (open && !false_server_stops(exchange->server)) {
        (void)nanosleep(&pause, NULL);
        open = web_send(exchange->fd, " ", 1);
    }
    return true;
}

static void answers_without_an_end_are_cut_off(void **state)
{
    (void)state;
    static const false_server_function functions[] = {
        send_headers_without_end, send_continues_without_end, send_body_without_end, send_slowly};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        atomic_ulong sent = 0;
        struct false_server server = {.function = functions[i], .user = &sent};
        muster_session *session = NULL;
        assert_true(false_server_start(&server));
        int64_t begin_ms = muster_clock_ms();
        expect_clear_error(open_member(server.url, "endless", 1, &session), "an endless answer");
        assert_in_range(muster_clock_ms() - begin_ms, 0, LIMIT_MS);
        unsigned joins = false_server_count(&server, "Join");
        false_server_stop(&server);
        assert_in_range(atomic_load(&sent), 0, HUGE_HEADERS * joins);
    }
}

/* Answers that contradict themselves, or are another's
 * ------------------------------------------------ */

/* The true answer to Join, in which something is changed. */
struct changed {
    const char *name;
    uint32_t size;    /* of the job */
    const char *path; /* "formed.peers.0.member" */
    const char *json; /* what stands there then */
};

static const struct changed changes[] = {
    {"a rank that does not exist", 1, "formed.rank", "7"},
    {"a rank below 0", 1, "formed.rank", "-1"},
    {"a rank that is no number", 1, "formed.rank", "\"first\""},
    {"a size that is not the members'", 1, "formed.size", "2"},
    {"a size beyond any bound", 1, "formed.size", "4294967295"},
    {"no size", 1, "formed.size", "0"},
    {"a local rank that does not exist", 1, "formed.localRank", "1"},
    {"a cross rank that does not exist", 1, "formed.crossRank", "3"},
    {"a generation 0", 1, "formed.generation", "\"0\""},
    {"a generation below 0", 1, "formed.generation", "\"-3\""},
    {"a generation that is no number", 1, "formed.generation", "\"first\""},
    {"no hosts", 1, "formed.hosts", "[]"},
    {"a host without members", 1, "formed.hosts.0.size", "0"},
    {"a host with more members than there are", 1, "formed.hosts.0.size", "4000000000"},
    {"no peers", 1, "formed.peers", "[]"},
    {"peers that are no list", 1, "formed.peers", "{}"},
    {"another member's answer", 1, "formed.peers.0.member",
     "\"99999999-9999-4999-8999-999999999999\""},
    {"a member that is no UUID", 1, "formed.peers.0.member", "\"me\""},
    {"a source that does not exist", 1, "formed.state.source", "5"},
    {"stale ranks that do not exist", 1, "formed.state.stale", "[9]"},
    {"another member's rank", PAIR, "formed.rank", "1"},
    {"one member at two ranks", PAIR, "formed.peers.0.member", "\"=formed.peers.1.member\""},
    {"hosts in another order of sizes", PAIR, "formed.hosts.0.size", "3"},
};

static json_t *find(json_t *json, const char *path, char *last, size_t size_bytes)
{
    const char *dot = strchr(path, '.');
    (void)snprintf(last, size_bytes, "%.*s", dot != NULL ? (int)(dot - path) : (int)strlen(path),
                   path);
    if (dot == NULL || json == NULL) {
        return json;
    }
    json_t *next = json_is_array(json) ? json_array_get(json, strtoul(last, NULL, 10))
                                       : json_object_get(json, last);
    return find(next, dot + 1, last, size_bytes);
}

/* False: the answer has nothing there, as it is "waiting". */
static bool change(json_t *json, const struct changed *changed)
{
    char last[64];
    json_t *where = find(json, changed->path, last, sizeof last);
    json_t *what = json_loads(changed->json, JSON_DECODE_ANY, NULL);
    const char *text = json_string_value(what);
    if (text != NULL && text[0] == '=') { /* what stands elsewhere */
        char other[64];
        json_t *from = find(json, text + 1, other, sizeof other);
        json_t *copy = json_copy(json_object_get(from, other));
        json_decref(what);
        what = copy;
    }
    if (where == NULL || what == NULL) {
        json_decref(what);
        return false;
    }
    assert_true(json_is_object(where));
    return json_object_set_new(where, last, what) == 0;
}

static bool change_join(struct false_exchange *exchange)
{
    json_t *json = strcmp(exchange->method, "Join") == 0 && exchange->status == 200
                       ? json_loads(exchange->reply, 0, NULL)
                       : NULL;
    bool changed = json_object_get(json, "formed") != NULL && change(json, exchange->server->user);
    if (changed) {
        (void)false_server_send_json(exchange, 200, json);
    }
    json_decref(json);
    return changed;
}

struct opener {
    const char *url, *job;
    uint32_t size;
    muster_status status;
    char error[512];
};

/* If it can be opened, a collective or a commit ends in time, whatever its status. */
static void *open_and_close(void *user)
{
    struct opener *opener = user;
    muster_session *session = NULL;
    opener->status = open_member(opener->url, opener->job, opener->size, &session);
    if (opener->status == MUSTER_OK) {
        int32_t one = 1;
        int32_t all = 0;
        opener->status =
            muster_allreduce(session, MUSTER_GLOBAL, &one, &all, 1, MUSTER_INT32, MUSTER_SUM, NULL);
    }
    (void)snprintf(opener->error, sizeof opener->error, "%s", muster_last_error());
    muster_close(session);
    return NULL;
}

static void answers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct false_server server = {
            .function = change_join, .user = (void *)&changes[i], .to_port = group_service.port};
        struct opener openers[PAIR];
        pthread_t threads[PAIR];
        char job[32];
        unsigned refused = 0;
        (void)snprintf(job, sizeof job, "changed-%zu", i);
        assert_true(false_server_start(&server));
        int64_t begin_ms = muster_clock_ms();
        for (uint32_t k = 0; k < changes[i].size; k++) {
            openers[k] = (struct opener){.url = server.url, .job = job, .size = changes[i].size};
            assert_int_equal(pthread_create(&threads[k], NULL, open_and_close, &openers[k]), 0);
        }
        for (uint32_t k = 0; k < changes[i].size; k++) {
            (void)pthread_join(threads[k], NULL);
            refused += openers[k].status != MUSTER_OK ? 1 : 0;
            print_message("%s: %s: %s\n", changes[i].name, muster_status_name(openers[k].status),
                          openers[k].error);
        }
        assert_in_range(muster_clock_ms() - begin_ms, 0, LIMIT_MS);
        if (refused == 0) {
            fail_msg("%s: it was believed", changes[i].name);
        }
        false_server_stop(&server);
    }
}

/* In a running job
 * ------------------------------------------------------------------------------------ */

/* From the first Watch on, every answer to it is false, each in another way. */
static bool lie_to_watches(struct false_exchange *exchange)
{
    static const char *const bodies[] = {
        "",
        "nonsense",
        "[]",
        "{\"revoked\":5}",
        "{\"pending\":\"yes\"}",
        "{\"doubted\":[{\"rank\":-1}]}",
        "{\"doubted\":\"all\"}",
        "{\"revoked\":false,\"doubted\":[{\"rank\":0,\"member\":\"me\",\"host\":\"../x\"}]}",
    };
    if (strcmp(exchange->method, "Watch") != 0) {
        return false;
    }
    unsigned kind = exchange->number % (sizeof bodies / sizeof bodies[0]);
    (void)false_server_send(exchange, exchange->number % 3 == 2 ? 500 : 200, bodies[kind]);
    return true;
}

static void compute_on(struct crew_member *member)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    struct false_server *server = member->crew->user;
    uint64_t generation = muster_generation(member->session);
    int32_t mine = 1;
    int32_t all = 0;
    while (all < PAIR || false_server_count(server, "Watch") < 6) {
        MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &mine, &all, 1,
                                           MUSTER_INT32, MUSTER_SUM, NULL));
        /* All leave the loop at the same count. */
        int32_t seen = (int32_t)false_server_count(server, "Watch");
        int32_t least = 0;
        MEMBER_OK(member, muster_allreduce(member->session, MUSTER_GLOBAL, &seen, &least, 1,
                                           MUSTER_INT32, MUSTER_MIN, NULL));
        (void)nanosleep(&pause, NULL);
        if (least >= 6) {
            break;
        }
        all = 0;
    }
    MEMBER_CHECK(member, muster_generation(member->session) == generation);
}

static void false_answers_to_a_watch_do_not_stop_a_job(void **state)
{
    (void)state;
    struct test_service service;
    const char *const extra[] = {"--lease-ms=60000", "--suspect-ms=60000", NULL};
    assert_true(test_service_start(&service, extra));
    struct false_server server = {.function = lie_to_watches, .to_port = service.port};
    assert_true(false_server_start(&server));
    struct crew crew = {.url = server.url,
                        .job = "watched",
                        .count = PAIR,
                        .hosts = 1,
                        .function = compute_on,
                        .user = &server};
    int failed = crew_run(&crew);
    false_server_stop(&server);
    assert_int_equal(test_service_stop(&service), 0);
    assert_int_equal(failed, 0);
}

/* Of values. */
static bool lie_about_values(struct false_exchange *exchange)
{
    static const char *const bodies[] = {"{\"value\":5}", "{\"value\":\"%%%\"}", "[]",
                                         "{\"value\":{}}"};
    bool lies = strcmp(exchange->method, "Get") == 0 || strcmp(exchange->method, "Add") == 0 ||
                strcmp(exchange->method, "CompareAndSwap") == 0;
    if (lies) {
        (void)false_server_send(exchange, 200, bodies[exchange->number % 4]);
    }
    return lies;
}

static void false_values_are_errors(void **state)
{
    (void)state;
    struct false_server server = {.function = lie_about_values, .to_port = group_service.port};
    muster_session *session = NULL;
    assert_true(false_server_start(&server));
    assert_int_equal(open_member(server.url, "values", 1, &session), MUSTER_OK);
    for (int i = 0; i < 4; i++) {
        muster_value value = {.data = NULL};
        int64_t sum = 77;
        int swapped = 77;
        const muster_value_swap swap = {.desired = "x", .desired_size_bytes = 1};
        expect_clear_error(muster_value_get(session, "k", NULL, &value), "a value");
        assert_null(value.data);
        muster_status added = muster_value_add(session, "k", 1, NULL, &sum);
        assert_true(added != MUSTER_OK ? sum == 77 : sum == 5); /* 5 is a number that it may be */
        expect_clear_error(
            muster_value_compare_and_swap(session, "k", &swap, NULL, &swapped, &value), "a swap");
        assert_int_equal(swapped, 77);
    }
    muster_close(session);
    false_server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_are_no_musterd_s_are_errors),
        cmocka_unit_test(answers_without_an_end_are_cut_off),
        cmocka_unit_test(answers_that_cannot_be_are_refused),
        cmocka_unit_test(false_answers_to_a_watch_do_not_stop_a_job),
        cmocka_unit_test(false_values_are_errors),
    };
    return test_service_built()
               ? cmocka_run_group_tests(tests, test_service_setup, test_service_teardown)
               : 77;
}
