/* Binary proto, gzip and streams over a socket: what stock Connect clients send, and what they must
 * never send. Each request has a connection of its own, which the server closes at the end. */
#include "tests/rendezvous/http/served.h"

#include "rendezvous/coding/envelope.h"
#include "rendezvous/coding/gzip.h"
#include "rendezvous/coding/proto.h"
#include "rendezvous/routes/rpc.h"

#include <sys/socket.h>

enum { ANSWER_SIZE = 1 << 20, BIG = 40000 };

struct answer {
    int status;
    char head[2048];
    char *body; /* owned, terminated; chunks are put together */
    size_t size_bytes;
};

static void answer_finish(struct answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

/* Puts the chunks together where they are. */
static size_t join_chunks(char *body)
{
    size_t size_bytes = 0;
    const char *at = body;
    for (;;) {
        char *data = NULL;
        size_t length = strtoul(at, &data, 16);
        if (length == 0 || data == at) {
            return size_bytes;
        }
        data += 2;
        memmove(body + size_bytes, data, length);
        size_bytes += length;
        at = data + length + 2;
    }
}

static struct answer read_answer(int fd)
{
    struct answer answer = {.body = calloc(1, ANSWER_SIZE)};
    assert_non_null(answer.body);
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used + 1 < ANSWER_SIZE) {
        got = recv(fd, answer.body + used, ANSWER_SIZE - 1 - used, 0);
        used += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    char *end = memmem(answer.body, used, "\r\n\r\n", 4);
    assert_non_null(end);
    size_t head = (size_t)(end - answer.body) + 4;
    assert_true(head < sizeof answer.head);
    memcpy(answer.head, answer.body, head);
    memmove(answer.body, answer.body + head, used - head);
    answer.size_bytes = used - head;
    memset(answer.body + answer.size_bytes, 0, head);
    answer.status = (int)strtol(answer.head + sizeof "HTTP/1.1", NULL, 10);
    if (strcasestr(answer.head, "transfer-encoding: chunked") != NULL) {
        answer.size_bytes = join_chunks(answer.body);
        answer.body[answer.size_bytes] = '\0';
    }
    return answer;
}

static int send_request(const struct fixture *fixture, const char *method, const char *headers,
                        const void *body, size_t size_bytes)
{
    char head[1024];
    int fd = open_connection(fixture);
    int length = snprintf(head, sizeof head,
                          "POST " PATH
                          "%s HTTP/1.1\r\nHost: t\r\nConnection: close\r\n%s"
                          "Content-Length: %zu\r\n\r\n",
                          method, headers, size_bytes);
    assert_true(web_send(fd, head, (size_t)length));
    assert_true(web_send(fd, body, size_bytes));
    return fd;
}

static struct answer ask(const struct fixture *fixture, const char *method, const char *headers,
                         const void *body, size_t size_bytes)
{
    return read_answer(send_request(fixture, method, headers, body, size_bytes));
}
#define PROTO "Content-Type: application/proto\r\n"
#define JSON "Content-Type: application/json\r\n"
#define STREAM_JSON "Content-Type: application/connect+json\r\n"
#define STREAM_PROTO "Content-Type: application/connect+proto\r\n"
#define ASK(fixture, method, headers, bytes) ask(fixture, method, headers, bytes, sizeof(bytes) - 1)

static void expect_error(struct answer answer, int status, const char *named)
{
    if (answer.status != status || strstr(answer.body, named) == NULL) {
        fail_msg("status %d: %s", answer.status, answer.body);
    }
    assert_non_null(strcasestr(answer.head, "content-type: application/json"));
    answer_finish(&answer);
}

static json_t *decode(const char *method, const char *bytes, size_t size_bytes)
{
    json_t *json = NULL;
    assert_int_equal(
        muster_proto_decode(muster_proto_find(method)->response, bytes, size_bytes, &json),
        MUSTER_OK);
    return json;
}

static void put_big_value(const struct fixture *fixture)
{
    static char body[BIG + 64];
    int head = snprintf(body, sizeof body, "{\"job\":\"j\",\"key\":\"k\",\"value\":\"");
    memset(body + head, 'A', BIG);
    (void)snprintf(body + head + BIG, 8, "\"}");
    struct answer answer = ask(fixture, "Put", JSON, body, strlen(body));
    assert_int_equal(answer.status, 200);
    answer_finish(&answer);
}

static void binary_proto_works_beside_json(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2);
    struct answer answer = ASK(fixture, "Put", PROTO, "\x0a\x01j\x1a\x01k\x22\x02hi");
    assert_int_equal(answer.status, 200);
    assert_non_null(strcasestr(answer.head, "content-type: application/proto"));
    assert_int_equal(answer.size_bytes, 0);
    answer_finish(&answer);
    answer = ASK(fixture, "Get", PROTO, "\x0a\x01j\x1a\x01k");
    assert_int_equal(answer.size_bytes, 4);
    assert_memory_equal(answer.body, "\x0a\x02hi", 4);
    answer_finish(&answer);
    answer = ASK(fixture, "Get", JSON, "{\"job\":\"j\",\"key\":\"k\"}");
    assert_string_equal(answer.body, "{\"value\":\"aGk=\"}");
    answer_finish(&answer);
    answer = ASK(fixture, "GetJob", PROTO, "\x0a\x01j");
    json_t *json = decode("GetJob", answer.body, answer.size_bytes);
    assert_string_equal(test_part_text(json, "job.phase"), "JOB_PHASE_RUNNING");
    assert_int_equal(json_array_size(test_part(json, "job.members")), 2);
    json_decref(json);
    answer_finish(&answer);
    close_all(fixture, 2);
}

static void wrong_binary_proto_is_refused_with_the_fields_name(void **state)
{
    struct fixture *fixture = *state;
    expect_error(ASK(fixture, "Get", PROTO, "\x08\x01"), 400, "job: has wire type 0, not 2");
    expect_error(ASK(fixture, "Get", PROTO, "\x0a\x05j"), 400, "job: the message is cut off");
    expect_error(ASK(fixture, "Get", PROTO, "\x0a\x01j"), 400, "key: missing or empty");
    expect_error(ASK(fixture, "Get", PROTO, ""), 400, "invalid_argument");
    expect_error(ASK(fixture, "Get", "Content-Type: application/grpc\r\n", ""), 415,
                 "application/proto");
    expect_error(ASK(fixture, "Get", STREAM_JSON, ""), 415, "application/json or");
    expect_error(ASK(fixture, "WatchStream", JSON, "{}"), 415, "this method streams");
}

static void gzip_is_read_and_written(void **state)
{
    struct fixture *fixture = *state;
    static const char get[] = "{\"job\":\"j\",\"key\":\"k\"}";
    char *packed = NULL;
    char *plain = NULL;
    size_t packed_bytes = 0;
    size_t plain_bytes = 0;
    form(fixture, 2);
    put_big_value(fixture);
    assert_int_equal(muster_gzip_pack(get, sizeof get - 1, &packed, &packed_bytes), MUSTER_OK);
    struct answer answer =
        ask(fixture, "Get", JSON "Content-Encoding: gzip\r\nAccept-Encoding: br, gzip\r\n", packed,
            packed_bytes);
    assert_int_equal(answer.status, 200);
    assert_non_null(strcasestr(answer.head, "content-encoding: gzip"));
    assert_true(answer.size_bytes < BIG / 10);
    assert_int_equal(
        muster_gzip_unpack(answer.body, answer.size_bytes, 2 * BIG, &plain, &plain_bytes),
        MUSTER_OK);
    assert_int_equal(plain_bytes, sizeof "{\"value\":\"\"}" - 1 + BIG);
    free(plain);
    answer_finish(&answer);
    static const char *const refused[] = {"", "Accept-Encoding: gzip;q=0\r\n",
                                          "Accept-Encoding: gzip;q=0.0, br\r\n"};
    for (size_t i = 0; i < 3; i++) {
        char headers[128];
        (void)snprintf(headers, sizeof headers, JSON "%s", refused[i]);
        answer = ask(fixture, "Get", headers, get, sizeof get - 1);
        assert_null(strcasestr(answer.head, "content-encoding"));
        assert_int_equal(answer.size_bytes, plain_bytes);
        answer_finish(&answer);
    }
    expect_error(ask(fixture, "Get", JSON "Content-Encoding: gzip\r\n", get, sizeof get - 1), 400,
                 "gzip: damaged");
    expect_error(ask(fixture, "Get", JSON "Content-Encoding: gzip\r\n", packed, packed_bytes - 3),
                 400, "gzip: cut off");
    expect_error(ask(fixture, "Get", JSON "Content-Encoding: br\r\n", get, sizeof get - 1), 501,
                 "only identity and gzip");
    free(packed);
    close_all(fixture, 2);
}

static void a_packed_bomb_is_refused(void **state)
{
    struct fixture *fixture = *state;
    size_t bomb_bytes = (size_t)64 * MUSTER_BODY_MAX_BYTES;
    char *zeros = calloc(1, bomb_bytes);
    char *packed = NULL;
    size_t packed_bytes = 0;
    assert_non_null(zeros);
    assert_int_equal(muster_gzip_pack(zeros, bomb_bytes, &packed, &packed_bytes), MUSTER_OK);
    free(zeros);
    assert_true(packed_bytes < MUSTER_BODY_MAX_BYTES);
    expect_error(ask(fixture, "Get", PROTO "Content-Encoding: gzip\r\n", packed, packed_bytes), 413,
                 "becomes more than 262144 bytes");
    free(packed);
}

static void a_get_is_binary_and_packed_too(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2);
    static const struct {
        const char *query;
        int status;
        const char *wanted;
    } rows[] = {
        {"GetJob?connect=v1&encoding=proto&base64=1&message=CgFq", 200, "JOB"},
        {"GetJob?encoding=proto&message=%0A%01j", 200, "JOB"},
        {"GetJob?encoding=proto&message=%0A%05j", 400, "job: the message is cut off"},
        {"GetJob?encoding=proto&base64=1&message=CgFq&compression=gzip", 400, "gzip: damaged"},
        {"GetJob?encoding=json&base64=1&compression=gzip&"
         "message=H4sIAAAAAAACA6tWyspPUrJSylKqBQCvNQtGCwAAAA",
         200, "\"name\":\"j\""},
        {"WatchStream?encoding=json&message=%7B%7D", 405, "use POST"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        int fd = open_connection(fixture);
        int length = snprintf(text, sizeof text,
                              "GET " PATH "%s HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
                              rows[i].query);
        assert_true(web_send(fd, text, (size_t)length));
        struct answer answer = read_answer(fd);
        if (answer.status != rows[i].status) {
            fail_msg("%s: status %d, %s", rows[i].query, answer.status, answer.body);
        }
        if (strcmp(rows[i].wanted, "JOB") == 0) {
            json_t *json = decode("GetJob", answer.body, answer.size_bytes);
            assert_string_equal(test_part_text(json, "job.name"), "j");
            json_decref(json);
        } else {
            assert_non_null(strstr(answer.body, rows[i].wanted));
        }
        answer_finish(&answer);
    }
    close_all(fixture, 2);
}

/* Streams ------------------------------------------------------------------------------------- */

static int open_stream(const struct fixture *fixture, const char *headers, const char *message,
                       size_t size_bytes)
{
    size_t closed_bytes = 0;
    char *closed = muster_envelope_close(0, message, size_bytes, &closed_bytes);
    assert_non_null(closed);
    int fd = send_request(fixture, "WatchStream", headers, closed, closed_bytes);
    free(closed);
    return fd;
}

/* The next envelope of a stream's answer; *flags 2: it is the end. Owned by the caller. */
static json_t *next_message(const struct answer *answer, size_t *at, unsigned *ret_flags)
{
    assert_true(*at + MUSTER_ENVELOPE_HEAD_BYTES <= answer->size_bytes);
    const unsigned char *head = (const unsigned char *)answer->body + *at;
    size_t length = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    const char *message = answer->body + *at + MUSTER_ENVELOPE_HEAD_BYTES;
    *ret_flags = head[0];
    *at += MUSTER_ENVELOPE_HEAD_BYTES + length;
    assert_true(*at <= answer->size_bytes);
    char *plain = NULL;
    size_t plain_bytes = length;
    if ((head[0] & MUSTER_ENVELOPE_PACKED) != 0) {
        assert_int_equal(muster_gzip_unpack(message, length, ANSWER_SIZE, &plain, &plain_bytes),
                         MUSTER_OK);
        message = plain;
    }
    bool binary = strcasestr(answer->head, "connect+proto") != NULL && head[0] != 2;
    json_t *json = binary ? decode("WatchStream", message, plain_bytes)
                          : json_loadb(message, plain_bytes, 0, NULL);
    free(plain);
    assert_non_null(json);
    return json;
}

static int open_member_stream(const struct fixture *fixture, unsigned member)
{
    char message[128];
    int length =
        snprintf(message, sizeof message, "{\"job\":\"j\",\"member\":\"%s\",\"generation\":\"1\"}",
                 test_member(member));
    return open_stream(fixture, STREAM_JSON, message, (size_t)length);
}

/* leave, then the end of the generation, each in a message of its own; then the stream is over. */
static void a_member_sees_every_change_in_one_stream(void **state)
{
    struct fixture *fixture = *state;
    unsigned flags = 0;
    size_t at = 0;
    form(fixture, 3);
    int fd = open_member_stream(fixture, 2);
    expect(post(fixture, "Resize", "{'job':'j','targetSize':2}"), 200, "");
    char head[4096] = "";
    while (strstr(head, "\"leave\":true") == NULL) { /* the first message has arrived */
        assert_true(recv(fd, head, sizeof head - 1, MSG_PEEK) > 0);
        size_t length = 0;
        ssize_t got = recv(fd, head, sizeof head - 1, MSG_PEEK);
        for (ssize_t i = 0; i < got; i++) { /* the text without the NULs of envelopes */
            head[length] = head[i];
            length += head[i] != '\0';
        }
        head[length] = '\0';
    }
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{'job':'j','member':'%s','generation':1,'reason':"
                   "'LEAVE_REASON_PLANNED'}",
                   test_member(0));
    expect(post(fixture, "Leave", body), 200, "");
    struct answer answer = read_answer(fd);
    assert_int_equal(answer.status, 200);
    json_t *json = next_message(&answer, &at, &flags);
    assert_true(json_is_true(test_part(json, "watch.leave")));
    assert_true(json_is_false(test_part(json, "watch.revoked")));
    json_decref(json);
    json = next_message(&answer, &at, &flags);
    assert_true(json_is_true(test_part(json, "watch.revoked")));
    json_decref(json);
    json = next_message(&answer, &at, &flags);
    assert_int_equal(flags, MUSTER_ENVELOPE_END);
    assert_int_equal(json_object_size(json), 0);
    json_decref(json);
    assert_int_equal(at, answer.size_bytes);
    answer_finish(&answer);
    close_all(fixture, 3);
}

static void a_newer_request_of_the_member_ends_its_stream(void **state)
{
    struct fixture *fixture = *state;
    unsigned flags = 0;
    size_t at = 0;
    form(fixture, 2);
    int older = open_member_stream(fixture, 1);
    send_watch(fixture, 1, 1); /* whichever is there first is replaced by the other */
    int newer = open_member_stream(fixture, 1);
    expect(post(fixture, "EndJob", "{'job':'j'}"), 200, "");
    struct answer answers[] = {read_answer(older), read_answer(newer)};
    for (int i = 0; i < 2; i++) {
        at = 0;
        json_t *json = next_message(&answers[i], &at, &flags);
        const char *code = test_part_text(json, "error.code");
        assert_int_equal(flags, MUSTER_ENVELOPE_END);
        if (strcmp(code, "canceled") != 0 && strcmp(code, "failed_precondition") != 0) {
            fail_msg("the stream ended with %s", answers[i].body + 5);
        }
        json_decref(json);
        answer_finish(&answers[i]);
    }
    close_all(fixture, 2);
}

/* A viewer sees the job as it is, then what changes, then its end; binary and packed. */
static void a_viewer_sees_the_job_until_it_ends(void **state)
{
    struct fixture *fixture = *state;
    unsigned flags = 0;
    unsigned messages = 0;
    bool resized = false;
    size_t at = 0;
    json_t *json = NULL;
    form(fixture, 8);
    int fd = open_stream(fixture, STREAM_PROTO "Connect-Accept-Encoding: gzip\r\n", "\x0a\x01j", 3);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_PEEK), 1);
    expect(post(fixture, "Resize", "{'job':'j','targetSize':7}"), 200, "");
    expect(post(fixture, "EndJob", "{'job':'j','why':'enough'}"), 200, "");
    struct answer answer = read_answer(fd);
    assert_int_equal(answer.status, 200);
    assert_non_null(strcasestr(answer.head, "connect-content-encoding: gzip"));
    char last[64] = "";
    while (flags != MUSTER_ENVELOPE_END) {
        json = next_message(&answer, &at, &flags);
        if (flags != MUSTER_ENVELOPE_END) {
            messages++;
            resized = resized || test_part_number(json, "job.targetSize") == 7;
            (void)snprintf(last, sizeof last, "%s", test_part_text(json, "job.phase"));
        }
        json_decref(json);
    }
    assert_in_range(messages, 2, 4);
    assert_true(resized);
    assert_string_equal(last, "JOB_PHASE_ENDED");
    assert_int_equal(at, answer.size_bytes);
    answer_finish(&answer);
    close_all(fixture, 8);
}

static void expect_end(struct answer answer, const char *code, const char *named)
{
    unsigned flags = 0;
    size_t at = 0;
    assert_int_equal(answer.status, 200);
    json_t *json = next_message(&answer, &at, &flags);
    assert_int_equal(flags, MUSTER_ENVELOPE_END);
    assert_string_equal(test_part_text(json, "error.code"), code);
    if (strstr(test_part_text(json, "error.message"), named) == NULL) {
        fail_msg("no \"%s\" in %s", named, test_part_text(json, "error.message"));
    }
    json_decref(json);
    answer_finish(&answer);
}

static void errors_of_a_stream_are_its_end(void **state)
{
    struct fixture *fixture = *state;
    expect_end(read_answer(open_stream(fixture, STREAM_JSON, "{\"job\":\"x\"}", 11)), "not_found",
               "job x is not known");
    expect_end(read_answer(open_stream(fixture, STREAM_PROTO, "\x08\x01", 2)), "invalid_argument",
               "job: has wire type 0");
    expect_end(ASK(fixture, "WatchStream", STREAM_JSON, "{}"), "invalid_argument", "envelope");
    expect_end(ASK(fixture, "WatchStream", STREAM_JSON, "\x01\0\0\0\x02{}"), "invalid_argument",
               "Connect-Content-Encoding");
    expect_end(ASK(fixture, "WatchStream", STREAM_JSON "Connect-Content-Encoding: gzip\r\n",
                   "\x01\0\0\0\x02{}"),
               "invalid_argument", "gzip");
    expect_end(ASK(fixture, "WatchStream", STREAM_JSON "Connect-Content-Encoding: zstd\r\n", "{}"),
               "unimplemented", "Connect-Content-Encoding");
}

static void a_viewers_time_ends(void **state)
{
    struct fixture *fixture = *state;
    unsigned flags = 0;
    size_t at = 0;
    form(fixture, 2);
    struct answer answer = read_answer(
        open_stream(fixture, STREAM_JSON "Connect-Timeout-Ms: 900\r\n", "{\"job\":\"j\"}", 11));
    json_t *json = NULL;
    while (flags != MUSTER_ENVELOPE_END) {
        json_decref(json);
        json = next_message(&answer, &at, &flags);
    }
    assert_string_equal(test_part_text(json, "error.code"), "deadline_exceeded");
    json_decref(json);
    answer_finish(&answer);
    close_all(fixture, 2);
}

/* The server notices viewers that are gone: the last of more than the limit gets its picture. */
static void viewers_that_are_gone_make_room(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2);
    for (unsigned i = 0; i < 2 * MUSTER_VIEWERS_MAX; i++) {
        char byte;
        int fd = open_stream(fixture, STREAM_JSON, "{\"job\":\"j\"}", 11);
        assert_int_equal(recv(fd, &byte, 1, MSG_PEEK), 1);
        (void)close(fd);
    }
    int64_t deadline_ns = muster_clock_after_ms(20000);
    bool room = false;
    while (!room && muster_clock_left_ms(deadline_ns) > 0) {
        struct answer answer = read_answer(
            open_stream(fixture, STREAM_JSON "Connect-Timeout-Ms: 700\r\n", "{\"job\":\"j\"}", 11));
        room = memmem(answer.body, answer.size_bytes, "deadline_exceeded", 17) != NULL;
        answer_finish(&answer);
    }
    assert_true(room);
    close_all(fixture, 2);
}

static void a_server_that_stops_ends_streams(void **state)
{
    struct fixture *fixture = *state;
    unsigned flags = 0;
    size_t at = 0;
    form(fixture, 2);
    int fd = open_stream(fixture, STREAM_JSON, "{\"job\":\"j\"}", 11);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_PEEK), 1);
    muster_http_stop(fixture->http);
    fixture->http = NULL;
    struct answer answer = read_answer(fd);
    json_t *json = NULL;
    while (flags != MUSTER_ENVELOPE_END) {
        json_decref(json);
        json = next_message(&answer, &at, &flags);
    }
    assert_string_equal(test_part_text(json, "error.code"), "unavailable");
    json_decref(json);
    answer_finish(&answer);
    close_all(fixture, 2);
}

static void the_table_of_methods_is_the_contracts(void **state)
{
    (void)state;
    for (int i = 0; i < MUSTER_RPC_METHOD_COUNT; i++) {
        const char *name = muster_rpc_method_name((enum muster_rpc_method)i);
        const struct muster_proto_method *method = muster_proto_find(name);
        if (method == NULL) {
            fail_msg("the contract has no %s", name);
        } else {
            assert_int_equal(method->safe, muster_rpc_is_safe((enum muster_rpc_method)i));
            assert_int_equal(method->streams, strcmp(name, "WatchStream") == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(binary_proto_works_beside_json),
        TEST(wrong_binary_proto_is_refused_with_the_fields_name),
        TEST(gzip_is_read_and_written),
        TEST(a_packed_bomb_is_refused),
        TEST(a_get_is_binary_and_packed_too),
        TEST(a_member_sees_every_change_in_one_stream),
        TEST(a_newer_request_of_the_member_ends_its_stream),
        TEST(a_viewer_sees_the_job_until_it_ends),
        TEST(errors_of_a_stream_are_its_end),
        TEST(a_viewers_time_ends),
        TEST(viewers_that_are_gone_make_room),
        TEST(a_server_that_stops_ends_streams),
        cmocka_unit_test(the_table_of_methods_is_the_contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
