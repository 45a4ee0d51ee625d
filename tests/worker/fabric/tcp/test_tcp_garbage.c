/* Random and mutated bytes, by seed: in the decoders, and on a link, in the role of a member. */
#include "tests/conformance/rig.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/frame.h"
#include "worker/fabric/wire/hello.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { DECODES = 200000, LIVES = 150, BURST_BYTES = 4000 };

static unsigned seed;

static void random_bytes(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)rand_r(&seed);
    }
}

static struct muster_frame random_frame(void)
{
    struct muster_frame frame = {
        .kind = (enum muster_frame_kind)(1 + rand_r(&seed) % 12),
        .key = {.generation = (uint64_t)(rand_r(&seed) % 3),
                .sequence = (uint64_t)(rand_r(&seed) % 3),
                .context = (uint32_t)(rand_r(&seed) % 2),
                .ordinal = (uint32_t)(rand_r(&seed) % 3)},
        .call = {.collective = MUSTER_ALLREDUCE, .type = MUSTER_UINT8, .count = 1},
        .total = (uint64_t)(rand_r(&seed) % 3000),
    };
    frame.length = (uint32_t)(rand_r(&seed) % 3000);
    frame.length = frame.kind == MUSTER_FRAME_EAGER     ? (uint32_t)frame.total
                   : frame.kind == MUSTER_FRAME_SEGMENT ? frame.length
                   : frame.kind == MUSTER_FRAME_ABORT   ? frame.length % 200
                                                        : 0;
    frame.offset = frame.kind == MUSTER_FRAME_SEGMENT ? (uint64_t)(rand_r(&seed) % 3000) : 0;
    return frame;
}

static void a_frame_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    struct muster_frame frame = {.kind = MUSTER_FRAME_SEGMENT,
                                 .key = {.generation = UINT64_MAX - 1,
                                         .sequence = UINT64_C(0x1122334455667788),
                                         .context = 0xaabbccdd,
                                         .ordinal = 0x10203040,
                                         .lane = 0xfedc},
                                 .call = {.collective = 5,
                                          .type = 4,
                                          .op = 3,
                                          .algorithm = 2,
                                          .root = 0x90a0b0c0,
                                          .count = UINT64_C(0x8877665544332211)},
                                 .offset = 77,
                                 .total = UINT64_C(1) << 60,
                                 .length = MUSTER_FRAME_PAYLOAD_MAX,
                                 .credit = 4321};
    unsigned char bytes[MUSTER_FRAME_SIZE];
    unsigned char again[MUSTER_FRAME_SIZE];
    struct muster_frame decoded;
    muster_frame_encode(&frame, bytes);
    assert_int_equal(muster_frame_decode(bytes, &decoded), MUSTER_OK);
    muster_frame_encode(&decoded, again);
    assert_memory_equal(bytes, again, sizeof bytes);
    assert_int_equal(decoded.key.sequence, frame.key.sequence);
    assert_int_equal(decoded.call.root, frame.call.root);
    for (size_t i = 0; i < 8 * sizeof bytes; i++) {
        memcpy(again, bytes, sizeof bytes);
        again[i / 8] = (unsigned char)(again[i / 8] ^ (1u << (i % 8)));
        assert_int_equal(muster_frame_decode(again, &decoded), MUSTER_INVALID);
    }
}

static void whatever_is_decoded_is_within_its_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < DECODES; i++) {
        unsigned char bytes[MUSTER_HELLO_SIZE];
        struct muster_frame frame = random_frame();
        struct muster_hello hello;
        random_bytes(bytes, sizeof bytes);
        assert_int_not_equal(muster_hello_decode(bytes, &hello), MUSTER_OK);
        muster_frame_encode(&frame, bytes);
        if (muster_frame_decode(bytes, &frame) == MUSTER_OK) {
            assert_true(frame.length <= MUSTER_FRAME_PAYLOAD_MAX);
            assert_true(frame.kind == MUSTER_FRAME_ABORT ||
                        frame.offset + frame.length <= frame.total);
        }
    }
}

/* Dials rank 0 in the role of rank 1, and is accepted. */
static int become_member(struct rig *rig)
{
    struct muster_hello hello = {.generation = rig->generation, .rank = 1};
    unsigned char bytes[MUSTER_HELLO_SIZE];
    struct muster_socket_address address;
    memcpy(hello.from, rig->peers[1].member, sizeof hello.from);
    memcpy(hello.to, rig->peers[0].member, sizeof hello.to);
    (void)snprintf(hello.token, sizeof hello.token, "a token that both ends have");
    muster_hello_encode(&hello, bytes);
    assert_int_equal(muster_address_parse(rig->peers[0].addresses[0], &address), MUSTER_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    return fd;
}

/* Some well-formed frames, then garbage. */
static size_t fill_burst(unsigned char *burst)
{
    size_t size = 0;
    int frames = rand_r(&seed) % 6;
    for (int i = 0; i < frames && size < BURST_BYTES; i++) {
        struct muster_frame frame = random_frame();
        muster_frame_encode(&frame, burst + size);
        random_bytes(burst + size + MUSTER_FRAME_SIZE, frame.length);
        size += MUSTER_FRAME_SIZE + frame.length;
    }
    random_bytes(burst + size, MUSTER_FRAME_SIZE);
    return size + MUSTER_FRAME_SIZE;
}

static void garbage_from_a_member_only_loses_its_link(void **state)
{
    (void)state;
    static unsigned char burst[2 * BURST_BYTES + MUSTER_FRAME_SIZE];
    for (int i = 0; i < LIVES; i++) {
        const struct rig_transport tcp = {.name = "tcp", .transports = "tcp"};
        struct rig rig;
        rig_init(&rig, &tcp, 2);
        int fd = become_member(&rig);
        unsigned char data[3][1000];
        struct rig_counter counter = {.left = 3};
        struct muster_transfer receives[3];
        bool never = false;
        int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
        while (muster_fabric_figures(rig.fabrics[0]).links_opened == 0 &&
               muster_clock_ns() < deadline_ns) {
            assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &never,
                                                muster_clock_after_ms(1)),
                             MUSTER_RETRY);
        }
        for (uint32_t k = 0; k < 3; k++) {
            receives[k] = rig_receive(&rig, 1, 1, data[k], (uint64_t)(rand_r(&seed) % 1000));
            receives[k].key.ordinal = k;
            rig_post(&rig, 0, &counter, &receives[k]);
        }
        size_t size = fill_burst(burst);
        assert_int_equal(send(fd, burst, size, MSG_NOSIGNAL), size);
        (void)shutdown(fd, SHUT_WR);
        muster_status status = rig_wait(&rig, 0, &counter);
        assert_true(status == MUSTER_REJOIN || status == MUSTER_INVALID || status == MUSTER_OK);
        muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
        close(fd);
        rig_finish(&rig);
    }
}

int main(void)
{
    muster_random_bytes(&seed, sizeof seed);
    print_message("seed %u\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_decoded_as_it_was_encoded),
        cmocka_unit_test(whatever_is_decoded_is_within_its_bounds),
        cmocka_unit_test(garbage_from_a_member_only_loses_its_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
