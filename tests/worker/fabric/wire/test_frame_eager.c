/* The short way to encode and decode an EAGER frame, against the one that serves all frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"
#include "worker/fabric/wire/frame.h"

enum { ROUNDS = 20000 };

static struct muster_frame draw_frame(uint64_t *random)
{
    struct muster_frame frame = {
        .kind = MUSTER_FRAME_EAGER,
        .key = {.generation = test_random(random),
                .sequence = test_random(random),
                .context = (uint32_t)test_random(random),
                .ordinal = (uint32_t)test_random(random),
                .lane = (uint16_t)test_random(random)},
        .call = {.type = (uint8_t)(test_random(random) % 12),
                 .root = (uint32_t)test_random(random),
                 .count = test_random(random)},
        .total = test_random(random) % (MUSTER_EAGER_MAX + 1),
        .credit = (uint32_t)(test_random(random) % MUSTER_EAGER_WINDOW_BYTES),
    };
    frame.length = (uint32_t)frame.total;
    return frame;
}

static void both_ways_have_the_same_bytes(void **state)
{
    uint64_t random = test_seed();
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const struct muster_frame frame = draw_frame(&random);
        unsigned char expected[MUSTER_FRAME_SIZE];
        unsigned char bytes[MUSTER_FRAME_SIZE];
        struct muster_call call;
        uint32_t length = 0;
        uint32_t credit = 0;
        memset(bytes, 0xff, sizeof bytes);
        muster_frame_encode_unchecked(&frame, expected);
        muster_frame_encode_eager_unchecked(&frame.key, &frame.call, frame.length, frame.credit,
                                            bytes);
        assert_memory_equal(bytes, expected, sizeof bytes);
        assert_true(muster_frame_decode_eager_unchecked(bytes, &frame.key, frame.call.type, &call,
                                                        &length, &credit));
        assert_int_equal(call.type, frame.call.type);
        assert_int_equal(call.root, frame.call.root);
        assert_int_equal(call.count, frame.call.count);
        assert_int_equal(length, frame.length);
        assert_int_equal(credit, frame.credit);
    }
}

/* Frames with some other bytes, and with a field of another frame's: what the short way takes, the
 * other one takes, too, and finds the same in it. */
static void what_the_short_way_takes_the_other_takes(void **state)
{
    uint64_t random = test_seed();
    unsigned taken = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const struct muster_frame frame = draw_frame(&random);
        struct muster_frame decoded;
        struct muster_call call;
        uint32_t length = 0;
        uint32_t credit = 0;
        unsigned char bytes[MUSTER_FRAME_SIZE];
        muster_frame_encode_unchecked(&frame, bytes);
        for (uint64_t k = 1 + test_random(&random) % 2; k > 0; k--) {
            bytes[test_random(&random) % MUSTER_FRAME_SIZE] ^=
                (unsigned char)(1 << (test_random(&random) % 8));
        }
        if (!muster_frame_decode_eager_unchecked(bytes, &frame.key, frame.call.type, &call, &length,
                                                 &credit)) {
            continue;
        }
        taken++;
        assert_int_equal(muster_frame_decode_unchecked(bytes, &decoded), MUSTER_OK);
        assert_int_equal(decoded.kind, MUSTER_FRAME_EAGER);
        assert_int_equal(decoded.key.generation, frame.key.generation);
        assert_int_equal(decoded.key.sequence, frame.key.sequence);
        assert_int_equal(decoded.key.context, frame.key.context);
        assert_int_equal(decoded.key.ordinal, frame.key.ordinal);
        assert_int_equal(decoded.key.lane, frame.key.lane);
        assert_int_equal(decoded.call.type, call.type);
        assert_int_equal(decoded.call.root, call.root);
        assert_int_equal(decoded.call.count, call.count);
        assert_int_equal(decoded.total, length);
        assert_int_equal(decoded.length, length);
        assert_int_equal(decoded.credit, credit);
    }
    assert_in_range(taken, 1, ROUNDS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_have_the_same_bytes),
        cmocka_unit_test(what_the_short_way_takes_the_other_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
