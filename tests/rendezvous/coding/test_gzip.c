/* gzip there and back, its bound, damaged input; envelopes. */
#include "rendezvous/coding/envelope.h"
#include "rendezvous/coding/gzip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONG_BYTES = 100000, BOMB_BYTES = 64 * 1024 * 1024, BOUND = 256 * 1024 };

static char text[LONG_BYTES];

static void what_is_packed_is_unpacked_the_same(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, LONG_BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *packed = NULL;
        char *back = NULL;
        size_t packed_bytes = 0;
        size_t back_bytes = 0;
        assert_int_equal(muster_gzip_pack(text, sizes[i], &packed, &packed_bytes), MUSTER_OK);
        assert_true(packed_bytes < sizes[i] / 2 + 64);
        assert_int_equal(muster_gzip_unpack(packed, packed_bytes, sizes[i], &back, &back_bytes),
                         MUSTER_OK);
        assert_int_equal(back_bytes, sizes[i]);
        assert_memory_equal(back, text, sizes[i]);
        free(back);
        if (sizes[i] > 0) {
            assert_int_equal(
                muster_gzip_unpack(packed, packed_bytes, sizes[i] - 1, &back, &back_bytes),
                MUSTER_RETRY);
            assert_non_null(strstr(muster_last_error(), "becomes more than"));
        }
        free(packed);
    }
}

static void a_bomb_stops_at_the_bound(void **state)
{
    (void)state;
    char *zeros = calloc(1, BOMB_BYTES);
    char *packed = NULL;
    char *back = NULL;
    size_t packed_bytes = 0;
    size_t back_bytes = 0;
    assert_non_null(zeros);
    assert_int_equal(muster_gzip_pack(zeros, BOMB_BYTES, &packed, &packed_bytes), MUSTER_OK);
    free(zeros);
    assert_int_equal(muster_gzip_unpack(packed, packed_bytes, BOUND, &back, &back_bytes),
                     MUSTER_RETRY);
    assert_string_equal(muster_last_error(), "gzip: becomes more than 262144 bytes");
    free(packed);
}

static void damaged_input_is_refused(void **state)
{
    (void)state;
    char *packed = NULL;
    char *back = NULL;
    size_t size_bytes = 0;
    size_t back_bytes = 0;
    assert_int_equal(muster_gzip_pack(text, 5000, &packed, &size_bytes), MUSTER_OK);
    for (size_t cut = 0; cut < size_bytes; cut++) {
        char *part = malloc(cut + 1); /* of its own size, for the address sanitizer */
        assert_non_null(part);
        memcpy(part, packed, cut);
        assert_int_equal(muster_gzip_unpack(part, cut, BOUND, &back, &back_bytes), MUSTER_INVALID);
        free(part);
    }
    char *longer = malloc(size_bytes + 1);
    assert_non_null(longer);
    memcpy(longer, packed, size_bytes);
    longer[size_bytes] = 0;
    assert_int_equal(muster_gzip_unpack(longer, size_bytes + 1, BOUND, &back, &back_bytes),
                     MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "gzip: 1 bytes follow its end");
    longer[size_bytes / 2] ^= 1;
    assert_int_equal(muster_gzip_unpack(longer, size_bytes, BOUND, &back, &back_bytes),
                     MUSTER_INVALID);
    assert_int_equal(muster_gzip_unpack("{\"job\":1}", 9, BOUND, &back, &back_bytes),
                     MUSTER_INVALID);
    free(longer);
    free(packed);
}

static void an_envelope_holds_one_message(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size_bytes;
        const char *error; /* NULL: none */
    } rows[] = {
        {"\x00\x00\x00\x00\x02{}", 7, NULL},
        {"\x01\x00\x00\x00\x02{}", 7, NULL},
        {"\x00\x00\x00\x00", 4, "its head alone has 5"},
        {"\x00\x00\x00\x00\x03{}", 7, "says 3 bytes, and 2 follow"},
        {"\x00\x00\x00\x00\x01{}", 7, "says 1 bytes, and 2 follow"},
        {"\x00\xff\xff\xff\xff{}", 7, "says 4294967295 bytes, and 2 follow"},
        {"\x02\x00\x00\x00\x02{}", 7, "flags 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *message = NULL;
        size_t size_bytes = 0;
        bool packed = false;
        muster_status status =
            muster_envelope_open(rows[i].bytes, rows[i].size_bytes, &message, &size_bytes, &packed);
        if (rows[i].error == NULL) {
            assert_int_equal(status, MUSTER_OK);
            assert_int_equal(size_bytes, 2);
            assert_memory_equal(message, "{}", 2);
            assert_true(packed == (rows[i].bytes[0] == 1));
        } else {
            assert_int_equal(status, MUSTER_INVALID);
            assert_non_null(strstr(muster_last_error(), rows[i].error));
        }
    }
    size_t size_bytes = 0;
    char *closed = muster_envelope_close(MUSTER_ENVELOPE_END, text, 258, &size_bytes);
    assert_non_null(closed);
    assert_int_equal(size_bytes, 263);
    assert_memory_equal(closed, "\x02\x00\x00\x01\x02", 5);
    free(closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_is_unpacked_the_same),
        cmocka_unit_test(a_bomb_stops_at_the_bound),
        cmocka_unit_test(damaged_input_is_refused),
        cmocka_unit_test(an_envelope_holds_one_message),
    };
    for (size_t i = 0; i < LONG_BYTES; i++) {
        text[i] = (char)('a' + i % 16);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
