/* The checksum of frame headers. */
#include "worker/base/checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* RFC 3720, appendix B.4, and the check value of the usual catalogues. */
static void known_texts_have_the_checksums_of_the_standard(void **state)
{
    (void)state;
    unsigned char bytes[32];
    assert_int_equal(muster_checksum((const unsigned char *)"123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(muster_checksum(bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(muster_checksum(bytes, sizeof bytes), 0x62a8ab43);
    for (unsigned char i = 0; i < sizeof bytes; i++) {
        bytes[i] = i;
    }
    assert_int_equal(muster_checksum(bytes, sizeof bytes), 0x46dd794e);
}

static void the_instruction_and_the_table_agree_for_all_sizes(void **state)
{
    (void)state;
    unsigned char bytes[200];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 37 + i / 7);
    }
    for (size_t size = 0; size <= sizeof bytes; size++) {
        assert_int_equal(muster_checksum(bytes, size), muster_checksum_by_table(bytes, size));
    }
}

static void each_flipped_bit_changes_the_checksum_of_a_header(void **state)
{
    (void)state;
    unsigned char bytes[92] = {0};
    uint32_t before = muster_checksum(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_int_not_equal(muster_checksum(bytes, sizeof bytes), before);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_the_checksums_of_the_standard),
        cmocka_unit_test(the_instruction_and_the_table_agree_for_all_sizes),
        cmocka_unit_test(each_flipped_bit_changes_the_checksum_of_a_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
