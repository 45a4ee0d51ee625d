/* Random and mutated bytes in shared memory and on its sockets, from a seed: at most the link is
 * lost, and connections that are no member's are rejected and counted. */
#include "tests/conformance/rig.h"
#include "worker/base/cleanup.h"
#include "worker/fabric/shm/shm.h"
#include "worker/memory/shared_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

enum { LIVES = 80, WRITES = 30, LARGE_BYTES = 100000 };

static const struct rig_transport memory_only = {.name = "shared memory", .transports = "shm"};
static unsigned seed;

/* A member that the test simulates. */
struct pretender {
    int socket, memory_fd;
    unsigned char *memory; /* as the dialler's side, each ring once */
};

static int call(const struct rig *rig)
{
    struct muster_shm_address address;
    struct sockaddr_un remote = {.sun_family = AF_UNIX};
    assert_true(muster_shm_address_parse(rig->peers[0].addresses[0], &address));
    memcpy(remote.sun_path + 1, address.name, strlen(address.name));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.name));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&remote, size), 0);
    return fd;
}

static struct muster_shm_packet hello_of(const struct rig *rig, const char *token)
{
    struct muster_shm_packet packet = {.kind = SHM_HELLO};
    struct muster_hello hello = {.generation = rig->generation, .rank = 1};
    memcpy(hello.from, rig->peers[1].member, sizeof hello.from);
    memcpy(hello.to, rig->peers[0].member, sizeof hello.to);
    (void)snprintf(hello.token, sizeof hello.token, "%s", token);
    muster_hello_encode(&hello, packet.hello);
    return packet;
}

/* 0 if the connection has ended, else the verdict. */
static uint64_t await_answer(struct rig *rig, int fd, struct muster_shm_packet *ret_answer)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (muster_clock_ns() < deadline_ns) {
        AUTO_CLOSE int none = -1;
        int got = muster_shm_packet_receive(fd, ret_answer, &none);
        if (got != 0) {
            return got > 0 ? ret_answer->word : 0;
        }
        rig_progress(rig, 0, 1);
    }
    fail_msg("no answer");
    return 0;
}

/* Dials rank 0 as rank 1. Its memory has the nonce of the hello, or another one. */
static struct pretender pretend(struct rig *rig, const char *token, bool honest,
                                uint64_t *ret_verdict)
{
    struct pretender pretender = {.socket = call(rig), .memory_fd = -1};
    void *base = NULL;
    struct muster_shm_packet answer;
    struct muster_shm_packet hello = hello_of(rig, token);
    assert_int_equal(muster_shared_memory_create("test", SHM_MEMORY_BYTES, &pretender.memory_fd),
                     MUSTER_OK);
    assert_int_equal(muster_shared_memory_map(pretender.memory_fd, SHM_MEMORY_BYTES, &base),
                     MUSTER_OK);
    pretender.memory = base;
    memset(hello.nonce, 42, sizeof hello.nonce);
    struct muster_shm_memory *memory = base;
    memset(memory->sides[0].nonce, honest ? 42 : 43, SHM_NONCE_BYTES);
    assert_true(muster_shm_packet_send(pretender.socket, &hello, pretender.memory_fd));
    *ret_verdict = await_answer(rig, pretender.socket, &answer);
    return pretender;
}

static void forget(struct pretender *pretender)
{
    close(pretender->socket);
    close(pretender->memory_fd);
    munmap(pretender->memory, SHM_MEMORY_BYTES);
}

/* Writing ------------------------------------------------------------------------------------ */

static uint32_t below(uint32_t bound)
{
    return (uint32_t)rand_r(&seed) % bound;
}

static struct muster_frame random_frame(const struct rig *rig)
{
    struct muster_frame frame = {
        .kind = (enum muster_frame_kind)(1 + below(8)),
        .key = {.generation = rig->generation - below(2),
                .sequence = 1 + below(2),
                .ordinal = below(4)},
        .call = rig_call,
        .total = below(4) == 0 ? LARGE_BYTES : below(3000),
        .length = below(3000),
    };
    frame.length = frame.kind == MUSTER_FRAME_EAGER     ? (uint32_t)frame.total % 5000
                   : frame.kind == MUSTER_FRAME_SEGMENT ? frame.length
                   : frame.kind == MUSTER_FRAME_OFFER   ? below(MUSTER_OFFER_MAX + 1)
                   : frame.kind == MUSTER_FRAME_ABORT   ? frame.length % 200
                                                        : 0;
    frame.offset = frame.kind == MUSTER_FRAME_SEGMENT || below(2) == 0 ? below(3) : 0;
    return frame;
}

/* Appends the frame to the ring. */
static void write_frame(const struct pretender *pretender, const unsigned char *bytes, size_t size)
{
    struct muster_shm_memory *memory = (struct muster_shm_memory *)pretender->memory;
    uint64_t written = atomic_load(&memory->sides[0].written.bytes);
    unsigned char *ring = pretender->memory + SHM_HEADER_BYTES;
    for (size_t i = 0; i < size; i++) {
        ring[(written + i) % SHM_RING_BYTES] = bytes[i];
    }
    written += (size + MUSTER_CACHE_LINE - 1) & -(uint64_t)MUSTER_CACHE_LINE;
    atomic_store(&memory->sides[0].written.bytes, written);
}

/* Valid frames with random fields, and sometimes a wrong count or byte. */
static void write_randomly(const struct rig *rig, const struct pretender *pretender)
{
    struct muster_shm_memory *memory = (struct muster_shm_memory *)pretender->memory;
    struct muster_frame frame = random_frame(rig);
    unsigned char bytes[MUSTER_FRAME_SIZE + 5000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)rand_r(&seed);
    }
    muster_frame_encode_unchecked(&frame, bytes);
    for (uint32_t i = below(16) == 0 ? 3 : 0; i > 0; i--) {
        bytes[below(MUSTER_FRAME_SIZE)] = (unsigned char)rand_r(&seed);
    }
    write_frame(pretender, bytes, MUSTER_FRAME_SIZE + (size_t)frame.length);
    if (below(32) == 0) {
        atomic_fetch_add(&memory->sides[0].written.bytes, (uint64_t)rand_r(&seed) << below(33));
    }
    if (below(8) == 0) {
        atomic_store(&memory->sides[0].read.bytes, (uint64_t)rand_r(&seed) << below(33));
    }
    atomic_store(&memory->sides[0].offers[below(SHM_OFFERS_MAX)], below(3));
}

static void say_randomly(const struct pretender *pretender)
{
    struct muster_shm_packet packet = {.kind = SHM_ANSWER + below(6),
                                       .word = below(3),
                                       .generation = (uint64_t)rand_r(&seed) << below(33)};
    bool has_fd = packet.kind == SHM_DESCRIPTOR || packet.kind == SHM_ALLOCATION;
    packet.generation = below(2) == 0 ? packet.generation : SHM_MEMORY_BYTES;
    (void)muster_shm_packet_send(pretender->socket, &packet, has_fd ? pretender->memory_fd : -1);
}

static void post_some(struct rig *rig, struct rig_counter *counter,
                      struct muster_transfer *transfers, unsigned char *data)
{
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t size = i % 2 == 0 ? below(3000) : LARGE_BYTES;
        unsigned char *at = data + (size_t)i * LARGE_BYTES;
        transfers[i] = i < 4 ? rig_receive(rig, 1, 1, at, size) : rig_send(rig, 1, 1, at, size);
        transfers[i].key.ordinal = i % 4;
        rig_post(rig, 0, counter, &transfers[i]);
    }
}

/* Opens a link as rank 1. */
static struct pretender join(struct rig *rig)
{
    static const struct muster_shm_packet confirm = {.kind = SHM_CONFIRM};
    uint64_t verdict = 0;
    struct pretender pretender = pretend(rig, "a token that both ends have", true, &verdict);
    assert_int_equal(verdict, MUSTER_WELCOME);
    assert_true(muster_shm_packet_send(pretender.socket, &confirm, -1));
    rig_progress(rig, 0, 1);
    return pretender;
}

static void live(unsigned char *data)
{
    struct rig rig;
    struct rig_counter counter = {.left = 6};
    struct muster_transfer transfers[6];
    rig_init(&rig, &memory_only, 2);
    struct pretender pretender = join(&rig);
    post_some(&rig, &counter, transfers, data);
    for (uint32_t i = below(WRITES); i > 0; i--) {
        write_randomly(&rig, &pretender);
        if (below(8) == 0) {
            say_randomly(&pretender);
        }
        rig_progress(&rig, 0, 1);
    }
    forget(&pretender);
    rig_progress(&rig, 0, 1);
    muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
    rig_finish(&rig);
}

static void test_whatever_a_member_writes_at_most_its_link_is_lost(void **state)
{
    (void)state;
    unsigned char *data = calloc(6, LARGE_BYTES);
    for (int i = 0; i < LIVES; i++) {
        live(data);
    }
    free(data);
}

/* The receiver grants the message, and does not read memory by the offer. */
static void test_an_invalid_offer_is_granted_instead(void **state)
{
    (void)state;
    static unsigned char data[LARGE_BYTES];
    struct rig rig;
    struct rig_counter counter = {.left = 1};
    rig_init(&rig, &memory_only, 2);
    struct pretender pretender = join(&rig);
    struct muster_transfer receive = rig_receive(&rig, 1, 1, data, LARGE_BYTES);
    rig_post(&rig, 0, &counter, &receive);
    rig_progress(&rig, 0, 1);
    const struct muster_shm_memory *memory = (const struct muster_shm_memory *)pretender.memory;
    uint64_t said = atomic_load(&memory->sides[1].written.bytes);
    const struct muster_frame frame = {.kind = MUSTER_FRAME_OFFER,
                                       .key = receive.key,
                                       .call = rig_call,
                                       .total = LARGE_BYTES,
                                       .length = 1};
    unsigned char bytes[MUSTER_FRAME_SIZE + 1] = {0};
    muster_frame_encode_unchecked(&frame, bytes);
    write_frame(&pretender, bytes, sizeof bytes);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (atomic_load(&memory->sides[1].written.bytes) == said &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 1);
    }
    unsigned char grant[MUSTER_FRAME_SIZE];
    struct muster_frame answer;
    memcpy(grant, pretender.memory + SHM_HEADER_BYTES + SHM_RING_BYTES + said, sizeof grant);
    assert_int_equal(muster_frame_decode_unchecked(grant, &answer), MUSTER_OK);
    assert_int_equal(answer.kind, MUSTER_FRAME_GRANT);
    assert_int_equal(answer.offset, 0);
    forget(&pretender);
    rig_progress(&rig, 0, 1);
    muster_fabric_withdraw(rig.fabrics[0], rig.generation, 0, 1);
    rig_finish(&rig);
}

/* No members --------------------------------------------------------------------------------- */

static void expect_refused(struct rig *rig, uint64_t count)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (muster_fabric_figures(rig->fabrics[0]).connections_rejected < count &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 1);
    }
    assert_int_equal(muster_fabric_figures(rig->fabrics[0]).connections_rejected, count);
}

static void test_connections_that_are_no_members_are_rejected_and_counted(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t verdict = 0;
    rig_init(&rig, &memory_only, 2);
    int silent = call(&rig);
    close(silent);
    expect_refused(&rig, 1);
    int garbage = call(&rig);
    assert_int_equal(send(garbage, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
    expect_refused(&rig, 2);
    close(garbage);
    int bare = call(&rig);
    const struct muster_shm_packet wake = {.kind = SHM_WAKE};
    assert_true(muster_shm_packet_send(bare, &wake, -1));
    expect_refused(&rig, 3);
    close(bare);
    struct pretender liar = pretend(&rig, "another token", true, &verdict);
    assert_int_equal(verdict, MUSTER_REFUSED_TOKEN);
    expect_refused(&rig, 4);
    forget(&liar);
    rig_finish(&rig);
}

static void test_a_member_without_the_memory_of_its_hello_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    uint64_t verdict = 0;
    rig_init(&rig, &memory_only, 2);
    struct pretender liar = pretend(&rig, "a token that both ends have", false, &verdict);
    assert_int_equal(verdict, MUSTER_REFUSED_MEMORY);
    forget(&liar);
    rig_finish(&rig);
}

/* A generation in which rank 0 can reach rank 1 by no transport. */
static void expect_unreachable(struct rig *rig)
{
    const struct muster_peer there = rig->peers[1];
    unsigned char byte = 0;
    struct rig_counter counter = {.left = 1};
    (void)snprintf(rig->peers[1].addresses[0], MUSTER_ADDRESS_SIZE, "shm://0-1/1/nobody");
    (void)snprintf(rig->peers[1].addresses[1], MUSTER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    rig_begin(rig);
    struct muster_transfer send = rig_send(rig, 1, 1, &byte, 1);
    rig_post(rig, 0, &counter, &send);
    assert_int_equal(rig_wait(rig, 0, &counter), MUSTER_REJOIN);
    rig->peers[1] = there;
    rig_begin(rig);
}

static void test_a_member_falls_back_to_tcp_after_its_own_dials_failed(void **state)
{
    (void)state;
    static const struct rig_transport both = {.name = "shared memory, then tcp",
                                              .transports = "shm,tcp"};
    struct rig rig;
    uint64_t verdict = 0;
    rig_init(&rig, &both, 2);
    expect_unreachable(&rig);
    struct pretender liar = pretend(&rig, "a token that both ends have", false, &verdict);
    assert_int_equal(verdict, MUSTER_REFUSED_MEMORY);
    rig_run(&rig, rig_exchange, NULL);
    forget(&liar);
    rig_finish(&rig);
}

int main(void)
{
    muster_random_bytes(&seed, sizeof seed);
    print_message("seed %u\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_a_member_writes_at_most_its_link_is_lost),
        cmocka_unit_test(test_an_invalid_offer_is_granted_instead),
        cmocka_unit_test(test_connections_that_are_no_members_are_rejected_and_counted),
        cmocka_unit_test(test_a_member_without_the_memory_of_its_hello_is_refused),
        cmocka_unit_test(test_a_member_falls_back_to_tcp_after_its_own_dials_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
