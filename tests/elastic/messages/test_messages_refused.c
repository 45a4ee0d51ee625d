/* The service's messages: wrong input is refused with the name of the field, and does no harm. */
#include "elastic/messages/base64.h"
#include "elastic/messages/messages.h"
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 200 };

static uint64_t seed = 1;

static uint32_t below(uint32_t bound)
{
    return test_random_below(&seed, bound);
}

/* The status of decoding the text as a Join. */
static muster_status join_of(const char *text, struct muster_join_request *ret_join)
{
    json_t *json = NULL;
    TRY(muster_json_parse(text, strlen(text), &json));
    muster_status status = muster_join_request_decode(json, ret_join);
    json_decref(json);
    return status;
}

#define ID "01234567-89ab-4cde-8f01-23456789abcd"

static void sixty_four_bit_numbers_are_strings_and_may_be_numbers(void **state)
{
    (void)state;
    struct muster_join_request join;
    const char *text = "{\"job\":\"j\",\"member\":\"" ID
                       "\",\"host\":\"h\","
                       "\"stateVersion\":\"18446744073709551615\",\"generation\":7,"
                       "\"order\":\"3\",\"pid\":4e2,\"later\":{\"unknown\":[1]},\"minSize\":null}";
    assert_int_equal(join_of(text, &join), MUSTER_OK);
    assert_true(join.info.state_version == UINT64_MAX);
    assert_true(join.info.generation == 7);
    assert_int_equal(join.info.order, 3);
    assert_int_equal(join.info.pid, 400);
    assert_int_equal(join.min_size, 0);
    json_t *json = muster_join_request_encode(&join);
    assert_string_equal(json_string_value(json_object_get(json, "stateVersion")),
                        "18446744073709551615");
    assert_true(json_is_integer(json_object_get(json, "order")));
    json_decref(json);
}

/* Both are proto3's JSON: stock clients may be told to keep the names of the .proto. */
static void fields_may_have_the_names_of_the_proto(void **state)
{
    (void)state;
    struct muster_join_request join;
    const char *text = "{\"job\":\"j\",\"member\":\"" ID
                       "\",\"host\":\"h\",\"state_version\":\"9\",\"min_size\":2,"
                       "\"maxSize\":4,\"library_version\":\"1.2\"}";
    assert_int_equal(join_of(text, &join), MUSTER_OK);
    assert_true(join.info.state_version == 9);
    assert_int_equal(join.min_size, 2);
    assert_int_equal(join.max_size, 4);
    assert_string_equal(join.info.library, "1.2");
    static const char *const rows[][2] = {
        {"\"min_size\":-1", "minSize: not a whole number"},
        {"\"min_size\":2,\"minSize\":2", "minSize: there twice, also as min_size"},
        {"\"min_size\":null,\"minSize\":2", "minSize: there twice, also as min_size"},
        {"\"min_size\":2,\"min_size\":2", "min_size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char wrong[256];
        (void)snprintf(wrong, sizeof wrong,
                       "{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"h\",%s}", rows[i][0]);
        assert_int_equal(join_of(wrong, &join), MUSTER_INVALID);
        if (strstr(muster_last_error(), rows[i][1]) == NULL) {
            fail_msg("%s: \"%s\"", wrong, muster_last_error());
        }
    }
    /* Other spellings are unknown fields. */
    assert_int_equal(join_of("{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"h\","
                             "\"Min_Size\":3,\"minsize\":3}",
                             &join),
                     MUSTER_OK);
    assert_int_equal(join.min_size, 0);
}

static void capabilities_are_a_map_of_short_texts(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text, *error; /* error NULL: the text */
    } rows[] = {
        {"{}", "", NULL},
        {"{\"nccl\":\"2.19.3\",\"b\":\"\",\"a\":\"x=y\"}", "a=x=y\nb=\nnccl=2.19.3\n", NULL},
        {"[]", NULL, "capabilities: not an object"},
        {"{\"a\":1}", NULL, "capabilities.a: not a string"},
        {"{\"a\":\"\\n\"}", NULL, "capabilities.a: not a string of at most 63"},
        {"{\"a b\":\"\"}", NULL, "capabilities: a name"},
        {"{\"\":\"\"}", NULL, "capabilities: a name"},
        {"{\"a2345678901234567890123456789012\":\"\"}", NULL, "capabilities: a name"},
        {"{\"1\":\"\",\"2\":\"\",\"3\":\"\",\"4\":\"\",\"5\":\"\",\"6\":\"\",\"7\":\"\",\"8\":\"\","
         "\"9\":\"\"}",
         NULL, "at most 8 strings"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        struct muster_join_request join;
        (void)snprintf(text, sizeof text,
                       "{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"h\",\"capabilities\":%s}",
                       rows[i].json);
        muster_status status = join_of(text, &join);
        if (rows[i].error == NULL) {
            assert_int_equal(status, MUSTER_OK);
            assert_string_equal(join.info.capabilities, rows[i].text);
        } else {
            assert_int_equal(status, MUSTER_INVALID);
            assert_non_null(strstr(muster_last_error(), rows[i].error));
        }
    }
}

static void five_long_capabilities_are_too_many_bytes(void **state)
{
    (void)state;
    static const char value[] = "012345678901234567890123456789012345678901234567890123456789";
    char text[1024];
    struct muster_join_request join;
    (void)snprintf(text, sizeof text,
                   "{\"job\":\"j\",\"member\":\"" ID
                   "\",\"host\":\"h\",\"capabilities\":"
                   "{\"a\":\"%s\",\"b\":\"%s\",\"c\":\"%s\",\"d\":\"%s\",\"e\":\"%s\"}}",
                   value, value, value, value, value);
    assert_int_equal(join_of(text, &join), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "capabilities: 315 bytes in all, and 255"));
}

static void bad_fields_are_refused_by_name(void **state)
{
    (void)state;
#define SIX "\"1\",\"2\",\"3\",\"4\",\"5\",\"6\""
#define HEAD "{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"h\","
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"{\"member\":\"" ID "\",\"host\":\"h\"}", "job: missing"},
        {"{\"job\":\"a b\"}", "job: \"a b\""},
        {"{\"job\":7}", "job: not a string"},
        {"{\"job\":\"j\",\"member\":\"me\"}", "member: \"me\": not a UUID"},
        {"{\"job\":\"j\",\"member\":\"" ID "0\"}", "member: longer than 36"},
        {"{\"job\":\"j\",\"member\":\"" ID "\"}", "host: missing"},
        {"{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"a\\nb\"}", "host: has a control"},
        {"{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"a b\"}", "host: \"a b\": use"},
        {"{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"../etc\"}", "host: \"../etc\": use"},
        {"{\"job\":\"j\",\"member\":\"" ID "\",\"host\":\"h\u00e9\"}", "host: \"h"},
        {HEAD "\"addresses\":\"a\"}", "addresses: not an array"},
        {HEAD "\"addresses\":[\"a\",2]}", "addresses[1]: not a string"},
        {HEAD "\"addresses\":[\"a\",\"\"]}", "addresses[1]: missing"},
        {HEAD "\"addresses\":[" SIX "," SIX ",\"1\",\"2\",\"3\",\"4\",\"5\"]}",
         "addresses: more than 16 items"},
        {HEAD "\"order\":-1}", "order: not a whole number from 0 to 4294967295"},
        {HEAD "\"order\":4294967296}", "order: not a whole"},
        {HEAD "\"order\":1.5}", "order: not a whole"},
        {HEAD "\"order\":1e300}", "order: not a whole"},
        {HEAD "\"order\":\" 1\"}", "order: not a whole"},
        {HEAD "\"order\":\"+1\"}", "order: not a whole"},
        {HEAD "\"order\":\"1x\"}", "order: not a whole"},
        {HEAD "\"order\":\"\"}", "order: not a whole"},
        {HEAD "\"order\":true}", "order: not a whole"},
        {HEAD "\"order\":\"-1\"}", "order: not a whole"},
        {HEAD "\"stateVersion\":\"18446744073709551616\"}", "stateVersion: not a whole"},
        {HEAD "\"stateVersion\":[]}", "stateVersion: not a whole"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct muster_join_request join;
        memset(&join, 0x5a, sizeof join);
        assert_int_equal(join_of(cases[i].text, &join), MUSTER_INVALID);
        if (strstr(muster_last_error(), cases[i].expected) == NULL) {
            fail_msg("%s: \"%s\"", cases[i].text, muster_last_error());
        }
        assert_int_equal(join.job[0], 0x5a); /* untouched */
    }
}

static void a_long_address_is_refused_with_its_index(void **state)
{
    (void)state;
    struct muster_join_request join = {.job = "j", .info = {.host = "h", .address_count = 3}};
    (void)strcpy(join.info.id, ID);
    for (int i = 0; i < 3; i++) {
        (void)strcpy(join.info.addresses[i], "tcp://127.0.0.1:1");
    }
    json_t *json = muster_join_request_encode(&join);
    char text[MUSTER_MEMBER_ADDRESS_SIZE + 1] = "";
    memset(text, 'a', sizeof text - 1);
    assert_int_equal(json_array_set_new(json_object_get(json, "addresses"), 2, json_string(text)),
                     0);
    assert_int_equal(muster_join_request_decode(json, &join), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "addresses[2]: longer than 127 bytes");
    json_decref(json);
}

static struct muster_join_response three_ranks(void)
{
    struct muster_join_response formed = {
        .formed = true,
        .generation = 4,
        .size = 3,
        .local_size = 2,
        .cross_size = 1,
        .host_count = 2,
        .stale_count = 2,
    };
    formed.hosts = calloc(2, sizeof *formed.hosts);
    formed.peers = calloc(3, sizeof *formed.peers);
    formed.stale = calloc(2, sizeof *formed.stale);
    for (uint32_t i = 0; i < 3; i++) {
        (void)strcpy(formed.peers[i].member, ID);
    }
    for (uint32_t i = 0; i < 2; i++) {
        (void)strcpy(formed.hosts[i].name, "h");
        formed.hosts[i].size = 2 - i;
        formed.stale[i] = 1 + i;
    }
    return formed;
}

static void a_generation_that_does_not_fit_together_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        int value;
        const char *expected;
    } cases[] = {
        {"rank", 100, "formed.rank: 100"},      {"size", 1000, "formed.peers"},
        {"generation", 0, "generation"},        {"localRank", 100, "formed.localRank"},
        {"crossRank", 100, "crossRank"},        {"size", 17000, "formed.size: not a whole"},
        {"hosts", 3, "hosts: not an array"},    {"hosts", -1, "formed.hosts: 0 members"},
        {"peers", -1, "formed.peers: 0 items"},
    };
    struct muster_join_response formed = three_ranks();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *json = muster_join_response_encode(&formed);
        json_t *inner = json_object_get(json, "formed");
        json_t *value = cases[i].value < 0 ? json_array() : json_integer(cases[i].value);
        assert_int_equal(json_object_set_new(inner, cases[i].field, value), 0);
        struct muster_join_response back;
        assert_int_equal(muster_join_response_decode(json, &back), MUSTER_INVALID);
        if (strstr(muster_last_error(), cases[i].expected) == NULL) {
            fail_msg("%s: \"%s\"", cases[i].field, muster_last_error());
        }
        json_decref(json);
    }
    json_t *json = muster_join_response_encode(&formed);
    json_t *peer = json_array_get(json_object_get(json_object_get(json, "formed"), "peers"), 0);
    assert_int_equal(json_object_del(peer, "member"), 0);
    struct muster_join_response back;
    assert_int_equal(muster_join_response_decode(json, &back), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "formed.peers[0].member: missing or empty");
    json_decref(json);
    json = json_object();
    assert_int_equal(muster_join_response_decode(json, &back), MUSTER_INVALID);
    json_decref(json);
    muster_join_response_finish(&formed);
}

static void unknown_words_are_refused(void **state)
{
    (void)state;
    struct muster_leave_request leave;
    json_t *json = json_pack("{ssssss}", "job", "j", "member", "m", "reason", "LEAVE_REASON_ODD");
    assert_int_equal(muster_leave_request_decode(json, &leave), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "reason: \"LEAVE_REASON_ODD\""));
    json_object_set_new(json, "reason", json_integer(2));
    assert_int_equal(muster_leave_request_decode(json, &leave), MUSTER_OK);
    assert_int_equal(leave.reason, MUSTER_LEAVE_PLANNED);
    json_object_set_new(json, "reason", json_integer(4));
    assert_int_equal(muster_leave_request_decode(json, &leave), MUSTER_INVALID);
    json_object_set_new(json, "reason", json_integer(-1));
    assert_int_equal(muster_leave_request_decode(json, &leave), MUSTER_INVALID);
    json_decref(json);
}

static void values_are_bounded(void **state)
{
    (void)state;
    char *text = calloc(1, MUSTER_BASE64_SIZE(MUSTER_VALUE_MAX_BYTES + 1));
    char *bytes = calloc(1, MUSTER_VALUE_MAX_BYTES + 1);
    struct muster_value_request value;
    for (size_t more = 0; more < 2; more++) {
        muster_base64_encode(bytes, MUSTER_VALUE_MAX_BYTES + more, text);
        json_t *json = json_pack("{ssssss}", "job", "j", "key", "k", "value", text);
        muster_status status = muster_value_request_decode(json, &value);
        assert_int_equal(status, more == 0 ? MUSTER_OK : MUSTER_INVALID);
        json_decref(json);
    }
    assert_non_null(strstr(muster_last_error(), "value: longer than 65536 bytes"));
    assert_int_equal(value.value_size, MUSTER_VALUE_MAX_BYTES);
    muster_value_request_finish(&value);
    json_t *json = json_pack("{sssssi}", "job", "j", "key", "k", "timeoutMs", 30001);
    assert_int_equal(muster_value_request_decode(json, &value), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "timeoutMs"));
    json_object_set_new(json, "timeoutMs", json_integer(30000));
    json_object_set_new(json, "value", json_string("a*b="));
    assert_int_equal(muster_value_request_decode(json, &value), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "value: not base64 at character 1"));
    json_decref(json);
    free(bytes);
    free(text);
}

static void base64_is_the_standards(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        const char *text;
    } vectors[] = {
        /* RFC 4648, section 10 */
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
    };
    char text[32];
    char bytes[32];
    size_t size;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        muster_base64_encode(vectors[i].bytes, strlen(vectors[i].bytes), text);
        assert_string_equal(text, vectors[i].text);
        assert_int_equal(muster_base64_decode(text, strlen(text), bytes, &size), MUSTER_OK);
        assert_int_equal(size, strlen(vectors[i].bytes));
        assert_memory_equal(bytes, vectors[i].bytes, size);
        size_t bare = strcspn(text, "=");
        assert_int_equal(muster_base64_decode(text, bare, bytes, &size), MUSTER_OK);
        assert_int_equal(size, strlen(vectors[i].bytes));
    }
    assert_int_equal(muster_base64_decode("-_+/", 4, bytes, &size), MUSTER_OK);
    assert_memory_equal(bytes, "\xfb\xff\xbf", 3);
    assert_int_equal(muster_base64_decode("Zg===", 5, bytes, &size), MUSTER_INVALID);
    assert_int_equal(muster_base64_decode("Z", 1, bytes, &size), MUSTER_INVALID);
    assert_int_equal(muster_base64_decode("Z=g=", 4, bytes, &size), MUSTER_INVALID);
    assert_int_equal(muster_base64_decode("====", 4, bytes, &size), MUSTER_INVALID);
}

static void odd_texts_are_no_json(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "7",
        "{",
        "{\"a\":1}x",
        "{\"a\":1,\"a\":2}",
        "{a:1}",
        "\xff\xfe",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":99999999999999999999}",
    };
    json_t *json = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(muster_json_parse(texts[i], strlen(texts[i]), &json), MUSTER_INVALID);
        assert_memory_equal(muster_last_error(), "JSON: ", 6);
        assert_null(json);
    }
}

static void depth_is_bounded_but_not_in_strings(void **state)
{
    (void)state;
    for (int depth = 15; depth <= 16; depth++) {
        char text[128] = "{\"a\":";
        for (int i = 0; i < depth; i++) {
            (void)strcat(text, "[");
        }
        for (int i = 0; i < depth; i++) {
            (void)strcat(text, "]");
        }
        (void)strcat(text, "}");
        json_t *json = NULL;
        muster_status status = muster_json_parse(text, strlen(text), &json);
        assert_int_equal(status, depth < MUSTER_JSON_DEPTH_MAX ? MUSTER_OK : MUSTER_INVALID);
        json_decref(json);
    }
    json_t *json = NULL;
    const char *quoted = "{\"a\":\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\\\"}";
    assert_int_equal(muster_json_parse(quoted, strlen(quoted), &json), MUSTER_OK);
    json_decref(json);
}

static void random_bytes_never_do_harm(void **state)
{
    (void)state;
    static const char *const parts[] = {"{",          "}",
                                        "[",          "]",
                                        ",",          ":",
                                        "\"",         "\\",
                                        "\"job\"",    "\"j\"",
                                        "\"formed\"", "1",
                                        "-",          "1e9",
                                        "null",       "true",
                                        "\"peers\"",  "\"\"",
                                        "\xc3",       "\"size\"",
                                        "\"event\"",  "\"kind\":\"join\""};
    for (int i = 0; i < 20 * ROUNDS; i++) {
        char text[256] = "";
        for (uint32_t k = below(24); k > 0; k--) {
            (void)strcat(text, parts[below(sizeof parts / sizeof parts[0])]);
        }
        json_t *json = NULL;
        if (muster_json_parse(text, strlen(text), &json) != MUSTER_OK) {
            continue;
        }
        struct muster_join_response formed = {0};
        struct muster_event event;
        if (muster_join_response_decode(json, &formed) == MUSTER_OK) {
            muster_join_response_finish(&formed);
        }
        muster_status status = muster_event_decode(json, &event);
        (void)status;
        json_decref(json);
    }
}

static void text_that_was_cut_in_a_character_can_be_sent(void **state)
{
    (void)state;
    struct muster_watch_response watch = {.reason = "gr\xc3"};
    json_t *json = muster_watch_response_encode(&watch);
    assert_string_equal(json_string_value(json_object_get(json, "reason")), "gr?");
    json_decref(json);
}

static void an_error_of_any_length_can_be_read(void **state)
{
    (void)state;
    char text[2048] = "";
    for (int i = 0; i < 1000; i++) {
        (void)strcat(text, i == 3 ? "\n" : "\xc3\xa4");
    }
    json_t *json = json_pack("{ssss}", "code", "not_found", "message", text);
    struct muster_rpc_error error;
    assert_int_equal(muster_rpc_error_decode(json, &error), MUSTER_OK);
    assert_int_equal(error.code, MUSTER_RPC_NOT_FOUND);
    assert_int_equal(strlen(error.message), 511);
    assert_int_equal(error.message[6], ' ');
    json_decref(json);
    json = json_pack("{ss}", "code", "new_code");
    assert_int_equal(muster_rpc_error_decode(json, &error), MUSTER_OK);
    assert_int_equal(error.code, MUSTER_RPC_UNKNOWN);
    json_decref(json);
}

static void codes_and_statuses_map_both_ways(void **state)
{
    (void)state;
    for (int i = MUSTER_RPC_OK; i <= MUSTER_RPC_UNAUTHENTICATED; i++) {
        enum muster_rpc_code code = (enum muster_rpc_code)i;
        assert_int_equal(muster_rpc_code_parse(muster_rpc_code_name(code)), code);
        assert_in_range(muster_rpc_code_http(code), 200, 599);
    }
    for (int i = MUSTER_OK; i <= MUSTER_FATAL; i++) {
        muster_status status = (muster_status)i;
        assert_int_equal(muster_rpc_code_status(muster_rpc_code_of_status(status)), status);
    }
    assert_int_equal(muster_rpc_code_parse("no such code"), MUSTER_RPC_UNKNOWN);
    assert_string_equal(muster_rpc_code_name((enum muster_rpc_code)99), "unknown");
    assert_int_equal(muster_rpc_code_status(MUSTER_RPC_UNAUTHENTICATED), MUSTER_INVALID);
    assert_int_equal(muster_rpc_code_http(MUSTER_RPC_UNAUTHENTICATED), 401);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? (uint64_t)strtoull(argv[1], NULL, 0) : (uint64_t)getpid();
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_bit_numbers_are_strings_and_may_be_numbers),
        cmocka_unit_test(fields_may_have_the_names_of_the_proto),
        cmocka_unit_test(capabilities_are_a_map_of_short_texts),
        cmocka_unit_test(five_long_capabilities_are_too_many_bytes),
        cmocka_unit_test(bad_fields_are_refused_by_name),
        cmocka_unit_test(a_long_address_is_refused_with_its_index),
        cmocka_unit_test(a_generation_that_does_not_fit_together_is_refused),
        cmocka_unit_test(unknown_words_are_refused),
        cmocka_unit_test(values_are_bounded),
        cmocka_unit_test(base64_is_the_standards),
        cmocka_unit_test(odd_texts_are_no_json),
        cmocka_unit_test(depth_is_bounded_but_not_in_strings),
        cmocka_unit_test(random_bytes_never_do_harm),
        cmocka_unit_test(text_that_was_cut_in_a_character_can_be_sent),
        cmocka_unit_test(an_error_of_any_length_can_be_read),
        cmocka_unit_test(codes_and_statuses_map_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
