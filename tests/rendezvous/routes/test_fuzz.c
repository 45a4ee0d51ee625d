/* Requests that no worker sends: any method with any field of any type, cut short, or noise. What
 * comes of them is an answer in one line, and never the end of the server. MUSTER_SEED repeats a
 * run. */
#include "tests/support/caller.h"
#include "tests/support/part.h"
#include "worker/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 150, CALLS = 500, BODY_SIZE = 2048, MEMBERS = 4, DEPTH_MAX = 20 };

static uint64_t dice;
static unsigned told[MUSTER_RPC_UNAUTHENTICATED + 1]; /* answers, by code */

static uint32_t below(uint32_t bound) /* xorshift64 */
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (uint32_t)((dice >> 32) % bound);
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

static void say(struct text *text, const char *word)
{
    add(text, word, strlen(word));
}

#define PICK(words) (words)[below(sizeof(words) / sizeof(words)[0])]

static void add_wild(struct text *text, uint32_t depth)
{
    static const char *const values[] = {
        "0",
        "1",
        "-1",
        "4",
        "4096",
        "4097",
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
        say(text, PICK(values));
        return;
    }
    bool list = below(2) == 0;
    say(text, list ? "[" : "{\"job\":");
    add_wild(text, depth - 1);
    say(text, list ? "]" : "}");
}

static void add_long(struct text *text)
{
    uint32_t length = 60 + below(400);
    say(text, "\"");
    for (uint32_t i = 0; i < length; i++) {
        say(text, "x");
    }
    say(text, "\"");
}

/* Mostly what fits, so that the calls get far. */
static void add_field(struct text *text, const char *name)
{
    static const char *const jobs[] = {"\"j\"", "\"k\"", "\"m\""};
    static const char *const reasons[] = {"\"LEAVE_REASON_FINISHED\"", "\"LEAVE_REASON_PLANNED\"",
                                          "\"LEAVE_REASON_FAILED\""};
    static const char *const small[] = {"0", "1", "2", "3", "\"1\"", "\"2\""};
    say(text, "\"");
    say(text, name);
    say(text, "\":");
    uint32_t way = below(20);
    if (way == 0) {
        add_wild(text, DEPTH_MAX);
    } else if (way == 1) {
        add_long(text);
    } else if (strcmp(name, "job") == 0) {
        say(text, PICK(jobs));
    } else if (strcmp(name, "member") == 0) {
        say(text, "\"");
        say(text, test_member(below(MEMBERS)));
        say(text, "\"");
    } else if (strcmp(name, "host") == 0 || strcmp(name, "key") == 0) {
        say(text, "\"h\"");
    } else if (strcmp(name, "addresses") == 0) {
        say(text, "[\"tcp://a:1\"]");
    } else if (strcmp(name, "value") == 0) {
        say(text, "\"AAEC\"");
    } else if (strcmp(name, "reason") == 0) {
        say(text, PICK(reasons));
    } else if (strcmp(name, "why") == 0) {
        say(text, "\"because\\n\"");
    } else if (strstr(name, "Known") != NULL) {
        say(text, below(2) == 0 ? "true" : "false");
    } else {
        say(text, PICK(small));
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
    say(text, "{");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (i < 2 ? below(30) != 0 : below(3) != 0) {
            if (text->size_bytes > 1) {
                say(text, ",");
            }
            add_field(text, names[i]);
        }
    }
    say(text, "}");
    for (uint32_t noise = below(12) == 0 ? 1 + below(4) : 0; noise > 0; noise--) {
        text->bytes[below((uint32_t)text->size_bytes)] = (char)below(256);
    }
    if (below(20) == 0) {
        text->size_bytes = below((uint32_t)text->size_bytes + 1);
    }
}

/* An answer is an object; an error says why in one line, and is never our own fault. */
static void judge(const struct text *text, const struct test_call *call)
{
    const char *message = test_part_text(call->json, "message");
    bool said =
        call->code == MUSTER_RPC_OK || (message[0] != '\0' && strpbrk(message, "\r\n") == NULL);
    if (!json_is_object(call->json) || call->code == MUSTER_RPC_INTERNAL || !said) {
        fail_msg("%s \"%s\" for %.*s", muster_rpc_code_name(call->code), message,
                 (int)text->size_bytes, text->bytes);
    }
    told[call->code]++;
}

static void one_call(struct muster_service *service, struct test_call *call, struct text *text)
{
    make_body(text);
    test_call_start_bytes(call, service, (enum muster_rpc_method)below(MUSTER_RPC_METHOD_COUNT),
                          below(30) == 0 ? "token" : NULL, text->bytes, text->size_bytes);
    if (call->held && below(8) == 0) {
        muster_rpc_disconnected(service, &call->request);
    }
}

/* A service sees them all, and a second one reads what the first has stored. */
static void round_of_calls(struct muster_store *store)
{
    static struct test_call calls[CALLS];
    static struct text texts[CALLS];
    struct muster_service_config config;
    struct muster_service *service = NULL;
    muster_service_config_init(&config);
    config.settings.settle_ms = 0;
    if (muster_service_create(&config, store, &service) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        one_call(service, &calls[i], &texts[i]);
    }
    muster_service_quiesce(service);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_true(test_call_wait(&calls[i]));
        judge(&texts[i], &calls[i]);
        test_call_finish(&calls[i]);
    }
    muster_service_destroy(service);
}

static void whatever_is_asked_is_answered_and_can_be_replayed(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)muster_clock_ns();
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    dice = seed | 1;
    struct muster_store *store = NULL;
    assert_int_equal(muster_store_memory_open(&store), MUSTER_OK);
    for (int round = 0; round < ROUNDS; round++) {
        round_of_calls(store);
    }
    muster_store_close(store);
    for (int code = 0; code <= MUSTER_RPC_UNAUTHENTICATED; code++) {
        if (told[code] > 0) {
            print_message("%u %s\n", told[code], muster_rpc_code_name((enum muster_rpc_code)code));
        }
    }
    assert_true(told[MUSTER_RPC_OK] > ROUNDS); /* else it would be noise only */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_asked_is_answered_and_can_be_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
