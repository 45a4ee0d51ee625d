/* Requests that no worker sends: any method with any field of any type, cut short, or noise. Each
 * gets a response in one line, the server goes on, and the next one can load what it has stored.
 * MUSTER_SEED repeats a run. */
#include "tests/support/caller.h"
#include "tests/support/part.h"
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 150, CALLS = 500, CALLS_AFTER = 50, BODY_SIZE = 2048, MEMBERS = 4, DEPTH_MAX = 20 };

static uint64_t dice;
static unsigned responses[MUSTER_RPC_UNAUTHENTICATED + 1]; /* by code */

static uint32_t below(uint32_t bound)
{
    return test_random_below(&dice, bound);
}

struct text {
    char bytes[BODY_SIZE];
    size_t size_bytes;
};

static void add(struct text *text, const char *bytes, size_t size_bytes)
{
    if (text->size_bytes + size_bytes <= sizeof text->bytes) {
        memcpy(text->bytes + text->size_bytes, bytes, size_bytes);
        text->size_bytes += size_bytes;
    }
}

static void add_word(struct text *text, const char *word)
{
    add(text, word, strlen(word));
}

#define PICK(words) (words)[below(sizeof(words) / sizeof(words)[0])]

/* Adds a JSON value that a field may not expect: extreme numbers, wrong types, wrong texts, or a
 * nested list or object. */
static void add_wild(struct text *text, uint32_t depth)
{
    static const char *const values[] = {
        "0",
        "1",
        "-1",
        "4",
        "16384",
        "16385",
        "4294967295",
        "4294967296",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e308",
        "1e999",
        "0.5",
        "null",
        "true",
        "false",
        "\"\"",
        "\"0\"",
        "\"18446744073709551615\"",
        "\"18446744073709551616\"",
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"\xc3\xa9\xe2\x82\xac\"",
        "\"\xff\xfe\"",
        "\"AAEC\"",
        "\"====\"",
        "\"..\"",
        "\"a b\"",
        "\"LEAVE_REASON_FINISHED\"",
        "\"LEAVE_REASON_FAILED\"",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "[null]",
        "[\"tcp://a:1\",\"tcp://b:2\"]",
        "[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]",
    };
    if (below(40) != 0 || depth == 0) {
        add_word(text, PICK(values));
        return;
    }
    bool list = below(2) == 0;
    add_word(text, list ? "[" : "{\"job\":");
    add_wild(text, depth - 1);
    add_word(text, list ? "]" : "}");
}

static void add_long(struct text *text)
{
    uint32_t length = 60 + below(400);
    add_word(text, "\"");
    for (uint32_t i = 0; i < length; i++) {
        add_word(text, "x");
    }
    add_word(text, "\"");
}

/* Mostly valid, so that the calls reach the routes. */
static void add_field(struct text *text, const char *name)
{
    static const char *const jobs[] = {"\"j\"", "\"k\"", "\"m\""};
    static const char *const reasons[] = {"\"LEAVE_REASON_FINISHED\"", "\"LEAVE_REASON_PLANNED\"",
                                          "\"LEAVE_REASON_FAILED\""};
    static const char *const small[] = {"0", "1", "2", "3", "\"1\"", "\"2\""};
    add_word(text, "\"");
    add_word(text, name);
    add_word(text, "\":");
    uint32_t way = below(20);
    if (way == 0) {
        add_wild(text, DEPTH_MAX);
    } else if (way == 1) {
        add_long(text);
    } else if (strcmp(name, "job") == 0) {
        add_word(text, PICK(jobs));
    } else if (strcmp(name, "member") == 0) {
        add_word(text, "\"");
        add_word(text, test_member(below(MEMBERS)));
        add_word(text, "\"");
    } else if (strcmp(name, "host") == 0 || strcmp(name, "key") == 0) {
        add_word(text, "\"h\"");
    } else if (strcmp(name, "addresses") == 0) {
        add_word(text, "[\"tcp://a:1\"]");
    } else if (strcmp(name, "value") == 0) {
        add_word(text, "\"AAEC\"");
    } else if (strcmp(name, "reason") == 0) {
        add_word(text, PICK(reasons));
    } else if (strcmp(name, "why") == 0) {
        add_word(text, "\"because\\n\"");
    } else if (strstr(name, "Known") != NULL) {
        add_word(text, below(2) == 0 ? "true" : "false");
    } else {
        add_word(text, PICK(small));
    }
}

static void make_body(struct text *text)
{
    static const char *const names[] = {
        "job",    "member",  "host",    "addresses",  "stateVersion", "generation", "order",
        "pid",    "minSize", "maxSize", "targetSize", "progress",     "suspect",    "why",
        "reason", "key",     "value",   "timeoutMs",  "pendingKnown", "leaveKnown",
    };
    text->size_bytes = 0;
    add_word(text, "{");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (i < 2 ? below(30) != 0 : below(3) != 0) {
            if (text->size_bytes > 1) {
                add_word(text, ",");
            }
            add_field(text, names[i]);
        }
    }
    add_word(text, "}");
    for (uint32_t noise = below(12) == 0 ? 1 + below(4) : 0; noise > 0; noise--) {
        text->bytes[below((uint32_t)text->size_bytes)] = (char)below(256);
    }
    if (below(20) == 0) {
        text->size_bytes = below((uint32_t)text->size_bytes + 1);
    }
}

/* A response is an object; an error has a message of one line, and is never an internal one. */
static void judge(const struct text *text, const struct test_call *call)
{
    const char *message = test_part_text(call->json, "message");
    bool valid =
        call->code == MUSTER_RPC_OK || (message[0] != '\0' && strpbrk(message, "\r\n") == NULL);
    if (!json_is_object(call->json) || call->code == MUSTER_RPC_INTERNAL || !valid) {
        fail_msg("%s \"%s\" for %.*s", muster_rpc_code_name(call->code), message,
                 (int)text->size_bytes, text->bytes);
    }
    responses[call->code]++;
}

static void one_call(struct muster_service *service, struct test_call *call, struct text *text)
{
    make_body(text);
    test_call_start_bytes(call, service, (enum muster_rpc_method)below(MUSTER_RPC_METHOD_COUNT),
                          below(30) == 0 ? "token" : NULL, text->bytes, text->size_bytes);
    if (call->held && below(8) == 0) {
        muster_rpc_disconnected(service, &call->request.id);
    }
}

/* A service on this store gets count calls. */
static void serve(const char *path, uint32_t count)
{
    static struct test_call calls[CALLS];
    static struct text texts[CALLS];
    struct muster_service_config config;
    struct muster_service *service = NULL;
    struct muster_store *store = NULL;
    muster_service_config_init(&config);
    config.settings.settle_ms = 0;
    if (muster_store_sqlite_open(path, &store) != MUSTER_OK ||
        muster_service_create(&config, store, &service) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    for (uint32_t i = 0; i < count; i++) {
        one_call(service, &calls[i], &texts[i]);
    }
    muster_service_quiesce(service);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(test_call_wait(&calls[i]));
        judge(&texts[i], &calls[i]);
        test_call_finish(&calls[i]);
    }
    muster_service_destroy(service);
    muster_store_close(store);
}

static void any_call_gets_a_response_and_what_is_stored_can_be_loaded(void **state)
{
    (void)state;
    /* In memory if possible: SQLite waits for the disk when a store is closed. */
    bool shm = access("/dev/shm", W_OK) == 0;
    char folder[64];
    char path[96];
    (void)snprintf(folder, sizeof folder, "%s/muster-test-XXXXXX", shm ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/jobs.db", folder);
    dice = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        serve(path, CALLS);
        serve(path, CALLS_AFTER); /* by a server that has loaded the store of the first */
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    for (int code = 0; code <= MUSTER_RPC_UNAUTHENTICATED; code++) {
        if (responses[code] > 0) {
            print_message("%u %s\n", responses[code],
                          muster_rpc_code_name((enum muster_rpc_code)code));
        }
    }
    assert_true(responses[MUSTER_RPC_OK] > ROUNDS); /* otherwise all of it was noise */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_gets_a_response_and_what_is_stored_can_be_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
