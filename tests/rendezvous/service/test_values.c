/* Add, CompareAndSwap, Delete, CountKeys and Waits for several keys, over restarts of the server.
 */
#include "rendezvous/service/values.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ID "33333333-3333-4333-8333-333333333333"
#define OTHER_ID "44444444-4444-4444-8444-44444444444a"

struct fixture {
    char folder[64];
    char path[128];
    struct muster_store *store;
    struct muster_service *service;
};

static void start(struct fixture *fixture)
{
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.settings.settle_ms = 1;
    config.settings.lease_ms = 3600000; /* no member dies, however slow the machine is */
    fixture->service = test_local_service_open(&config, fixture->path, &fixture->store);
}

static void stop(struct fixture *fixture)
{
    test_local_service_close(fixture->service, fixture->store);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    (void)snprintf(fixture->folder, sizeof fixture->folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/jobs.db", fixture->folder);
    start(fixture);
    struct test_call call;
    test_call_start(&call, fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'j','member':'%s','host':'h','maxSize':1}", test_member(0));
    test_call_expect(&call, MUSTER_RPC_OK, "");
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    struct fixture *fixture = *state;
    stop(fixture);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s%s", fixture->path, ends[i]);
        (void)remove(path);
    }
    assert_int_equal(rmdir(fixture->folder), 0);
    free(fixture);
    return 0;
}

static void restart(struct fixture *fixture)
{
    stop(fixture);
    start(fixture);
}

/* Calls the method with {"job": "j", fields}; the named part of the response is this text. */
static void expect(struct fixture *fixture, enum muster_rpc_method method, const char *fields,
                   const char *part, const char *text)
{
    struct test_call call;
    test_call_start(&call, fixture->service, method, NULL, "{'job':'j',%s}", fields);
    assert_true(test_call_wait(&call));
    const json_t *found = test_part(call.json, part);
    char shown[64];
    if (json_is_boolean(found)) {
        (void)snprintf(shown, sizeof shown, "%s", json_is_true(found) ? "true" : "false");
    } else if (json_is_integer(found)) {
        (void)snprintf(shown, sizeof shown, "%lld", (long long)json_integer_value(found));
    } else {
        (void)snprintf(shown, sizeof shown, "%s", test_part_text(call.json, part));
    }
    if (call.code != MUSTER_RPC_OK || strcmp(shown, text) != 0) {
        fail_msg("%s {%s}: %s is \"%s\": %s", muster_rpc_method_name(method), fields, part, shown,
                 test_part_text(call.json, "message"));
    }
    test_call_finish(&call);
}

static void expect_error(struct fixture *fixture, enum muster_rpc_method method, const char *fields,
                         enum muster_rpc_code code, const char *text)
{
    struct test_call call;
    test_call_start(&call, fixture->service, method, NULL, "{'job':'j',%s}", fields);
    test_call_expect(&call, code, text);
}

static void sums_are_decimal_numbers_that_survive_a_restart(void **state)
{
    struct fixture *fixture = *state;
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':'5'", "value", "5");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':-7", "value", "-2");
    restart(fixture);
    expect(fixture, MUSTER_RPC_ADD, "'key':'n'", "value", "-2");
    expect(fixture, MUSTER_RPC_GET, "'key':'n'", "value", "LTI="); /* "-2" */
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','generation':1,'amount':1", "value", "1");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':1", "value", "-1");
}

static void a_request_that_is_sent_again_counts_once(void **state)
{
    struct fixture *fixture = *state;
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" ID "'", "value", "3");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" OTHER_ID "'", "value",
           "6");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" ID "'", "value", "3");
    restart(fixture);
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" ID "'", "value", "3");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':1", "value", "7");
    /* The last 128 of a key are remembered, whatever else happens to it. */
    char fields[128];
    for (int i = 0; i < MUSTER_VALUE_REQUESTS_MAX - 2; i++) {
        (void)snprintf(fields, sizeof fields,
                       "'key':'n','amount':1,'requestId':'55555555-5555-4555-8555-%012d'", i);
        struct test_call call;
        test_call_start(&call, fixture->service, MUSTER_RPC_ADD, NULL, "{'job':'j',%s}", fields);
        test_call_expect(&call, MUSTER_RPC_OK, "");
    }
    expect(fixture, MUSTER_RPC_PUT, "'key':'n','value':'OA=='", "none", "");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" ID "'", "value", "3");
    expect(fixture, MUSTER_RPC_ADD, fields, "value", "133");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':1", "value", "9"); /* 8, put above */
    expect(fixture, MUSTER_RPC_ADD,
           "'key':'n','amount':1,'requestId':'66666666-5555-4555-8555-000000000000'", "value",
           "10");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':3,'requestId':'" ID "'", "value", "13");
}

static void a_put_that_comes_again_later_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    expect(fixture, MUSTER_RPC_PUT, "'key':'n','value':'MQ==','requestId':'" ID "'", "none", "");
    expect(fixture, MUSTER_RPC_PUT, "'key':'n','value':'Mg=='", "none", "");
    restart(fixture);
    expect(fixture, MUSTER_RPC_PUT, "'key':'n','value':'MQ==','requestId':'" ID "'", "none", "");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':0", "value", "2");
}

static void what_cannot_be_added_is_refused_and_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    expect(fixture, MUSTER_RPC_ADD, "'key':'n','amount':'9223372036854775807'", "value",
           "9223372036854775807");
    expect_error(fixture, MUSTER_RPC_ADD, "'key':'n','amount':1", MUSTER_RPC_INVALID_ARGUMENT,
                 "9223372036854775807 + 1 needs more than 64 bits");
    expect(fixture, MUSTER_RPC_ADD, "'key':'n'", "value", "9223372036854775807");
    expect_error(fixture, MUSTER_RPC_ADD, "'key':'n','amount':'9223372036854775808'",
                 MUSTER_RPC_INVALID_ARGUMENT, "amount");
    expect_error(fixture, MUSTER_RPC_ADD, "'key':'n','amount':1.5", MUSTER_RPC_INVALID_ARGUMENT,
                 "amount");
    expect_error(fixture, MUSTER_RPC_ADD, "'key':'n','requestId':'7'", MUSTER_RPC_INVALID_ARGUMENT,
                 "requestId");
    expect_error(fixture, MUSTER_RPC_ADD, "'amount':1", MUSTER_RPC_INVALID_ARGUMENT, "key");
    expect_error(fixture, MUSTER_RPC_ADD, "'keys':['n'],'amount':1", MUSTER_RPC_INVALID_ARGUMENT,
                 "key");
    expect_error(fixture, MUSTER_RPC_ADD, "'key':'n','generation':7", MUSTER_RPC_ABORTED,
                 "generation 7");
    /* "", "1x", " 1", "+1", "1" and a 0, 40 digits */
    static const char *const values[] = {
        "",     "MXg=", "IDE=",
        "KzE=", "MQA=", "MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMQ=="};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char fields[128];
        (void)snprintf(fields, sizeof fields, "'key':'text','value':'%s'", values[i]);
        expect(fixture, MUSTER_RPC_PUT, fields, "none", "");
        expect_error(fixture, MUSTER_RPC_ADD, "'key':'text','amount':1",
                     MUSTER_RPC_INVALID_ARGUMENT, "key \"text\"");
        expect(fixture, MUSTER_RPC_GET, "'key':'text'", "value", values[i]);
    }
}

static void a_value_is_swapped_only_if_it_is_as_expected(void **state)
{
    struct fixture *fixture = *state;
    static const char first[] = "'key':'k','expected':'','value':'QQ==','requestId':'" ID "'";
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, "'key':'k','expected':'Qg==','value':'QQ=='",
           "swapped", "false");
    expect_error(fixture, MUSTER_RPC_GET, "'key':'k'", MUSTER_RPC_NOT_FOUND, "k");
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, first, "swapped", "true");
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, "'key':'k','value':'Qg=='", "value", "QQ==");
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, "'key':'k','expected':'QQ==','value':'Qg=='",
           "value", "Qg==");
    restart(fixture);
    /* The same request again was made then. */
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, first, "swapped", "true");
    expect(fixture, MUSTER_RPC_GET, "'key':'k'", "value", "Qg==");
}

static void a_deleted_value_is_gone_after_a_restart(void **state)
{
    struct fixture *fixture = *state;
    expect(fixture, MUSTER_RPC_PUT, "'key':'a/1','value':'QQ=='", "none", "");
    expect(fixture, MUSTER_RPC_PUT, "'key':'a/2','value':'QQ=='", "none", "");
    expect(fixture, MUSTER_RPC_PUT, "'key':'b','value':'QQ=='", "none", "");
    expect(fixture, MUSTER_RPC_PUT, "'key':'a/3','generation':1", "none", "");
    expect(fixture, MUSTER_RPC_COUNT_KEYS, "'prefix':'a/'", "count", "2");
    expect(fixture, MUSTER_RPC_COUNT_KEYS, "'prefix':''", "count", "3");
    expect(fixture, MUSTER_RPC_COUNT_KEYS, "'generation':1", "count", "1");
    expect(fixture, MUSTER_RPC_DELETE, "'key':'a/1'", "deleted", "true");
    expect(fixture, MUSTER_RPC_DELETE, "'key':'a/1'", "deleted", "false");
    restart(fixture);
    expect_error(fixture, MUSTER_RPC_GET, "'key':'a/1'", MUSTER_RPC_NOT_FOUND, "a/1");
    expect(fixture, MUSTER_RPC_COUNT_KEYS, "'prefix':'a/'", "count", "1");
    expect_error(fixture, MUSTER_RPC_COUNT_KEYS, "'generation':9", MUSTER_RPC_ABORTED, "9");
}

static void a_wait_for_several_keys_ends_when_all_are_there(void **state)
{
    struct fixture *fixture = *state;
    struct test_call wait;
    test_call_start(&wait, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','keys':['a','b','c'],'timeoutMs':15000}");
    assert_true(wait.held);
    expect(fixture, MUSTER_RPC_PUT, "'key':'a'", "none", "");
    expect(fixture, MUSTER_RPC_ADD, "'key':'c'", "value", "0");
    expect(fixture, MUSTER_RPC_DELETE, "'key':'a'", "deleted", "true");
    expect(fixture, MUSTER_RPC_PUT, "'key':'b'", "none", "");
    assert_false(wait.answered); /* a is gone again */
    expect(fixture, MUSTER_RPC_COMPARE_AND_SWAP, "'key':'a','value':'QQ=='", "swapped", "true");
    test_call_expect(&wait, MUSTER_RPC_OK, "");
    expect(fixture, MUSTER_RPC_WAIT, "'key':'a','keys':['b','c']", "value", "QQ==");
    expect_error(fixture, MUSTER_RPC_WAIT, "'keys':['a','d'],'timeoutMs':1",
                 MUSTER_RPC_DEADLINE_EXCEEDED, "key \"d\"");
    expect_error(fixture, MUSTER_RPC_WAIT, "'keys':['a',''],'timeoutMs':1",
                 MUSTER_RPC_INVALID_ARGUMENT, "keys[1]");
    expect_error(fixture, MUSTER_RPC_WAIT, "'keys':[]", MUSTER_RPC_INVALID_ARGUMENT, "key");
    test_call_start(&wait, fixture->service, MUSTER_RPC_WAIT, NULL,
                    "{'job':'j','keys':['never'],'timeoutMs':15000}");
    assert_true(wait.held);
    muster_service_quiesce(fixture->service);
    test_call_expect(&wait, MUSTER_RPC_UNAVAILABLE, "ending");
}

static void a_record_that_no_musterd_has_written_is_refused(void **state)
{
    (void)state;
    static const unsigned char too_short[] = {2, 0, 0, 0};
    static const unsigned char too_many[129 * 24 + 1] = {129};
    struct muster_values values = {0};
    assert_int_equal(muster_values_load(&values, 0, "k", NULL, 0), MUSTER_INVALID);
    assert_int_equal(muster_values_load(&values, 0, "k", too_short, 4), MUSTER_INVALID);
    assert_int_equal(muster_values_load(&values, 0, "k", too_many, sizeof too_many),
                     MUSTER_INVALID);
    assert_int_equal(values.count, 0);
    assert_int_equal(muster_values_load(&values, 0, "k", "\0v", 2), MUSTER_OK);
    struct muster_value_response value;
    assert_true(muster_values_get(&values, 0, "k", &value));
    assert_int_equal(value.value_size, 1);
    assert_memory_equal(value.value, "v", 1);
    muster_values_finish(&values);
}

int main(void)
{
#define STORED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        STORED(sums_are_decimal_numbers_that_survive_a_restart),
        STORED(a_request_that_is_sent_again_counts_once),
        STORED(a_put_that_comes_again_later_changes_nothing),
        STORED(what_cannot_be_added_is_refused_and_changes_nothing),
        STORED(a_value_is_swapped_only_if_it_is_as_expected),
        STORED(a_deleted_value_is_gone_after_a_restart),
        STORED(a_wait_for_several_keys_ends_when_all_are_there),
        cmocka_unit_test(a_record_that_no_musterd_has_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
