/* Hellos: every field comes back as it was encoded, in all of its bounds; any changed bit, another
 * version or other bytes are refused. */
#include "worker/fabric/wire/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { VERSION_AT = 8 };

static struct muster_hello example(void)
{
    struct muster_hello hello = {.generation = UINT64_C(0x1122334455667788),
                                 .rank = 0xabcdef,
                                 .ticket = 0x90a0b0c0,
                                 .index = 13,
                                 .connections = 16};
    (void)snprintf(hello.from, sizeof hello.from, "00112233-4455-6677-8899-aabbccddeeff");
    (void)snprintf(hello.to, sizeof hello.to, "m");
    memset(hello.token, 't', sizeof hello.token - 1);
    return hello;
}

static void expect_same(const struct muster_hello *hello)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    struct muster_hello decoded;
    muster_hello_encode(hello, bytes);
    assert_int_equal(muster_hello_decode(bytes, &decoded), MUSTER_OK);
    assert_int_equal(decoded.generation, hello->generation);
    assert_int_equal(decoded.rank, hello->rank);
    assert_int_equal(decoded.ticket, hello->ticket);
    assert_int_equal(decoded.index, hello->index);
    assert_int_equal(decoded.connections, hello->connections == 0 ? 1 : hello->connections);
    assert_string_equal(decoded.from, hello->from);
    assert_string_equal(decoded.to, hello->to);
    assert_string_equal(decoded.token, hello->token);
}

static void every_field_comes_back(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {0, 1, 255, 256, 65535, 65536, MUSTER_HELLO_RANKS_MAX - 1};
    static const uint64_t generations[] = {1, UINT64_MAX, UINT64_C(1) << 32};
    struct muster_hello hello = example();
    expect_same(&hello);
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        for (size_t j = 0; j < sizeof generations / sizeof generations[0]; j++) {
            for (unsigned paths = 0; paths < 16 * 17; paths++) {
                hello = example();
                hello.rank = ranks[i];
                hello.generation = generations[j];
                hello.index = (uint8_t)(paths % 16);
                hello.connections = (uint8_t)(paths / 16);
                expect_same(&hello);
            }
        }
    }
}

static void any_changed_bit_is_refused(void **state)
{
    (void)state;
    const struct muster_hello hello = example();
    unsigned char bytes[MUSTER_HELLO_SIZE];
    muster_hello_encode(&hello, bytes);
    for (size_t i = 0; i < 8 * sizeof bytes; i++) {
        struct muster_hello decoded;
        bytes[i / 8] = (unsigned char)(bytes[i / 8] ^ (1u << (i % 8)));
        muster_status status = muster_hello_decode(bytes, &decoded);
        bool version = i / 8 == VERSION_AT || i / 8 == VERSION_AT + 1;
        assert_int_equal(status, version ? MUSTER_FATAL : MUSTER_INVALID);
        if (version) {
            char wanted[64];
            (void)snprintf(wanted, sizeof wanted, "its wire version is %u, this member's is %d",
                           bytes[VERSION_AT] | bytes[VERSION_AT + 1] << 8, MUSTER_WIRE_VERSION);
            assert_string_equal(muster_last_error(), wanted);
        }
        bytes[i / 8] = (unsigned char)(bytes[i / 8] ^ (1u << (i % 8)));
    }
}

static void every_verdict_comes_back_and_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i <= MUSTER_REFUSED_RANK + 2; i++) {
        unsigned char bytes[MUSTER_ANSWER_SIZE];
        enum muster_verdict verdict = MUSTER_WAIT;
        bool known = i >= MUSTER_WELCOME && i <= MUSTER_REFUSED_RANK;
        muster_answer_encode((enum muster_verdict)i, bytes);
        assert_int_equal(muster_answer_decode(bytes, &verdict), known ? MUSTER_OK : MUSTER_INVALID);
        assert_true(!known || (verdict == (enum muster_verdict)i));
        for (int k = MUSTER_WELCOME; known && k < i; k++) {
            assert_string_not_equal(muster_verdict_text((enum muster_verdict)k),
                                    muster_verdict_text((enum muster_verdict)i));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(any_changed_bit_is_refused),
        cmocka_unit_test(every_verdict_comes_back_and_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
