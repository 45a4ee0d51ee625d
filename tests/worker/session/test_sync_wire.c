/* What a sync sends besides the state: decoded as it was encoded, and checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/support/schedules.h"
#include "worker/session/sync_wire.h"

enum { RUNS = 300, BUFFERS = 5 };

static uint64_t seed;

static void expect_text(const char *text)
{
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", muster_last_error(), text);
    }
}

/* A name of 0 to 63 characters. */
static void fill_name(char name[MUSTER_REGISTERED_BUFFER_NAME_SIZE])
{
    uint32_t length = test_random_below(&seed, MUSTER_REGISTERED_BUFFER_NAME_SIZE);
    memset(name, 'x', MUSTER_REGISTERED_BUFFER_NAME_SIZE); /* after the end, too: it stays here */
    for (uint32_t i = 0; i < length; i++) {
        name[i] = (char)('a' + test_random_below(&seed, 26));
    }
    name[length] = '\0';
}

static void a_layout_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        struct muster_registered_buffer buffers[BUFFERS];
        const struct muster_state sent = {.buffers = buffers,
                                          .count = test_random_below(&seed, BUFFERS + 1)};
        unsigned char count_bytes[MUSTER_BUFFER_COUNT_SIZE];
        unsigned char bytes[BUFFERS * MUSTER_OUTLINE_SIZE];
        struct muster_outline got[BUFFERS];
        uint32_t count = UINT32_MAX;
        for (uint32_t j = 0; j < sent.count; j++) {
            fill_name(buffers[j].name);
            buffers[j].size_bytes = test_random(&seed);
        }
        muster_buffer_count_encode(sent.count, count_bytes);
        assert_int_equal(muster_buffer_count_decode(count_bytes, sizeof count_bytes, &count),
                         MUSTER_OK);
        assert_int_equal(count, sent.count);
        muster_outlines_encode(&sent, bytes);
        assert_int_equal(
            muster_outlines_decode(bytes, (size_t)count * MUSTER_OUTLINE_SIZE, count, got),
            MUSTER_OK);
        for (uint32_t j = 0; j < sent.count; j++) {
            assert_string_equal(got[j].name, buffers[j].name);
            assert_int_equal(got[j].size_bytes, buffers[j].size_bytes);
        }
    }
}

static void a_state_header_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        const struct muster_state_header sent = {.version = test_random(&seed) >> 1,
                                                 .committed_generation = test_random(&seed) >> 1};
        struct muster_state_header got = {0};
        unsigned char bytes[MUSTER_STATE_HEADER_SIZE];
        muster_state_header_encode(&sent, bytes);
        assert_int_equal(muster_state_header_decode(bytes, sizeof bytes, &got), MUSTER_OK);
        assert_int_equal(got.version, sent.version);
        assert_int_equal(got.committed_generation, sent.committed_generation);
    }
}

static void an_outline_is_its_name_filled_up_with_zeros_and_its_size(void **state)
{
    (void)state;
    struct muster_registered_buffer buffer = {.name = "step\0rest", .size_bytes = 0x0102030405};
    const struct muster_state layout = {.buffers = &buffer, .count = 1};
    static const unsigned char expected[MUSTER_OUTLINE_SIZE] = {'s', 't', 'e', 'p', [64] = 5,
                                                                4,   3,   2,   1};
    unsigned char bytes[MUSTER_OUTLINE_SIZE];
    muster_outlines_encode(&layout, bytes);
    assert_memory_equal(bytes, expected, sizeof bytes);
}

static void what_no_source_sends_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[2 * MUSTER_OUTLINE_SIZE] = {0};
    struct muster_outline outlines[2];
    uint32_t count = 77;
    struct muster_state_header header = {.version = 77};
    memset(outlines, 0xee, sizeof outlines);

    assert_int_equal(muster_buffer_count_decode(bytes, 3, &count), MUSTER_FATAL);
    expect_text("of 3 bytes, expected 4");
    muster_buffer_count_encode(MUSTER_REGISTERED_BUFFERS_MAX + 1, bytes);
    assert_int_equal(muster_buffer_count_decode(bytes, 4, &count), MUSTER_FATAL);
    expect_text("1025 state buffers, at most 1024");
    assert_int_equal(count, 77);

    assert_int_equal(muster_outlines_decode(bytes, sizeof bytes - 1, 2, outlines), MUSTER_FATAL);
    expect_text("of 143 bytes, expected 144");
    memset(bytes + MUSTER_OUTLINE_SIZE, 'n', MUSTER_REGISTERED_BUFFER_NAME_SIZE);
    assert_int_equal(muster_outlines_decode(bytes, sizeof bytes, 2, outlines), MUSTER_FATAL);
    expect_text("state buffer 1 has a name of more than 63 bytes");
    assert_int_equal((unsigned char)outlines[0].name[0], 0xee);

    assert_int_equal(muster_state_header_decode(bytes, 15, &header), MUSTER_FATAL);
    expect_text("of 15 bytes, expected 16");
    muster_state_header_encode(&(struct muster_state_header){.version = UINT64_MAX}, bytes);
    assert_int_equal(muster_state_header_decode(bytes, 16, &header), MUSTER_FATAL);
    expect_text("state of version 18446744073709551615");
    assert_int_equal(header.version, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_is_decoded_as_it_was_encoded),
        cmocka_unit_test(a_state_header_is_decoded_as_it_was_encoded),
        cmocka_unit_test(an_outline_is_its_name_filled_up_with_zeros_and_its_size),
        cmocka_unit_test(what_no_source_sends_is_refused),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
