/* How a bundle dials missing connections, and which answers and attempts it accepts. The test plays
 * the peer of rank 0. */
#include "tests/conformance/rig.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/hello.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONNECTIONS_MAX = MUSTER_CONNECTIONS_MAX };

/* The peer that the test plays in place of rank 1. */
struct peer {
    uint32_t connections; /* of a link */
    struct rig_transport transport;
    struct rig rig;
    int listener;
    int fds[CONNECTIONS_MAX]; /* that rank 0 has dialled, in this order; -1: closed */
    struct muster_hello hellos[CONNECTIONS_MAX];
    struct rig_counter counter; /* of what rank 0 sends */
    struct muster_transfer send;
    unsigned char byte;
};

static int listen_here(char ret_address[MUSTER_ADDRESS_SIZE])
{
    struct muster_socket_address address = {.size = sizeof address.storage};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address.storage, &address.size), 0);
    muster_address_print(&address, ret_address);
    return fd;
}

/* Drives rank 0 until `size` bytes have arrived. Returns 0 if the stream has ended. */
static size_t receive(struct peer *peer, int fd, unsigned char *bytes, size_t size)
{
    size_t have = 0;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (have < size && muster_clock_ns() < deadline_ns) {
        rig_progress(&peer->rig, 0, 1);
        ssize_t got = recv(fd, bytes + have, size - have, MSG_DONTWAIT);
        if (got == 0) {
            return 0;
        }
        have += got > 0 ? (size_t)got : 0;
    }
    assert_int_equal(have, size);
    return have;
}

/* Accepts the next connection that rank 0 dials, and reads its hello. */
static int await_dial(struct peer *peer, struct muster_hello *ret_hello)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    int fd = -1;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (fd < 0 && muster_clock_ns() < deadline_ns) {
        rig_progress(&peer->rig, 0, 1);
        fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
    }
    assert_true(fd >= 0);
    assert_int_equal(receive(peer, fd, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(muster_hello_decode(bytes, ret_hello), MUSTER_OK);
    return fd;
}

static void answer_with(int fd, enum muster_verdict verdict)
{
    unsigned char bytes[MUSTER_ANSWER_SIZE];
    muster_answer_encode(verdict, bytes);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

/* Rank 0 has dialled, the first connection is open, the others wait for an answer. */
static void open_link(struct peer *peer)
{
    struct rig *rig = &peer->rig;
    peer->transport = (struct rig_transport){
        .name = "tcp", .transports = "tcp", .options.tcp_connections = peer->connections};
    rig_init(rig, &peer->transport, 2);
    rig_replace(rig, 1);
    peer->listener = listen_here(rig->peers[1].addresses[0]);
    rig->generation++;
    rig_begin_one(rig, 0);
    peer->counter = (struct rig_counter){.left = 1};
    peer->send = rig_send(rig, 1, 1, &peer->byte, 1);
    rig_post(rig, 0, &peer->counter, &peer->send);
    for (uint32_t i = 0; i < peer->connections; i++) {
        peer->fds[i] = await_dial(peer, &peer->hellos[i]);
        assert_int_equal(peer->hellos[i].index, i);
        if (i == 0) {
            answer_with(peer->fds[0], MUSTER_WELCOME);
        }
    }
}

static void hang_up(struct peer *peer, uint32_t index)
{
    assert_int_equal(close(peer->fds[index]), 0);
    peer->fds[index] = -1;
}

static void finish_peer(struct peer *peer)
{
    for (uint32_t i = 0; i < peer->connections; i++) {
        if (peer->fds[i] >= 0) {
            hang_up(peer, i);
        }
    }
    assert_int_equal(close(peer->listener), 0);
    muster_fabric_withdraw(peer->rig.fabrics[0], peer->rig.generation, 0, 1);
    rig_finish(&peer->rig);
}

static enum muster_verdict dial_rank_0(struct peer *peer, int *ret_fd)
{
    struct muster_hello hello = peer->hellos[0];
    struct muster_socket_address address;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    enum muster_verdict verdict = MUSTER_WAIT;
    memcpy(hello.from, peer->rig.peers[1].member, sizeof hello.from);
    memcpy(hello.to, peer->rig.peers[0].member, sizeof hello.to);
    hello.index = 1;
    hello.rank = 1;
    muster_hello_encode(&hello, bytes);
    assert_int_equal(muster_address_parse(peer->rig.peers[0].addresses[0], &address), MUSTER_OK);
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*ret_fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(send(*ret_fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    assert_int_equal(receive(peer, *ret_fd, bytes, MUSTER_ANSWER_SIZE), MUSTER_ANSWER_SIZE);
    assert_int_equal(muster_answer_decode(bytes, &verdict), MUSTER_OK);
    return verdict;
}

/* There is room for CONNECTIONS_MAX. Attempts of rank 0 itself take no room while they are pending.
 */
static void a_bundle_has_no_more_connections_than_fit(void **state)
{
    (void)state;
    struct peer peer = {.connections = CONNECTIONS_MAX};
    int fds[CONNECTIONS_MAX];
    open_link(&peer);
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        bool fits = i + 1 < CONNECTIONS_MAX;
        assert_int_equal(dial_rank_0(&peer, &fds[i]),
                         fits ? MUSTER_WELCOME : MUSTER_REFUSED_CROSSED);
    }
    for (uint32_t i = 1; i < CONNECTIONS_MAX; i++) {
        unsigned char byte;
        answer_with(peer.fds[i], MUSTER_WELCOME);
        assert_int_equal(receive(&peer, peer.fds[i], &byte, 1), 0);
    }
    const struct muster_fabric_figures figures = muster_fabric_figures(peer.rig.fabrics[0]);
    assert_int_equal(figures.connections_opened, CONNECTIONS_MAX - 1);
    assert_int_equal(figures.links_lost, 0);
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        assert_int_equal(close(fds[i]), 0);
    }
    finish_peer(&peer);
}

/* Another member listens there now. */
static void a_successor_at_the_peers_address_gets_no_connection(void **state)
{
    (void)state;
    struct peer peer = {.connections = 3};
    open_link(&peer);
    for (int times = 0; times < 2; times++) {
        for (uint32_t i = 1; i < peer.connections; i++) {
            answer_with(peer.fds[i], MUSTER_REFUSED_UNKNOWN);
            unsigned char byte;
            assert_int_equal(receive(&peer, peer.fds[i], &byte, 1), 0);
            hang_up(&peer, i);
        }
        for (uint32_t i = 1; i < peer.connections; i++) { /* rank 0 dials again, a little later */
            peer.fds[i] = await_dial(&peer, &peer.hellos[i]);
            assert_memory_equal(peer.hellos[i].to, peer.rig.peers[1].member,
                                sizeof peer.hellos[i].to);
        }
    }
    const struct muster_fabric_figures figures = muster_fabric_figures(peer.rig.fabrics[0]);
    assert_int_equal(figures.connections_opened, 0);
    assert_int_equal(figures.links_lost, 0);
    assert_int_equal(peer.counter.status, MUSTER_OK);
    finish_peer(&peer);
}

/* Pending attempts are closed with the link. */
static void pending_attempts_end_with_their_link(void **state)
{
    (void)state;
    struct peer peer = {.connections = 3};
    open_link(&peer);
    answer_with(peer.fds[1], MUSTER_WELCOME); /* too late, or just in time to be the last one */
    hang_up(&peer, 0);
    hang_up(&peer, 1);
    for (uint32_t i = 2; i < peer.connections; i++) {
        unsigned char byte;
        assert_int_equal(receive(&peer, peer.fds[i], &byte, 1), 0);
    }
    const struct muster_fabric_figures figures = muster_fabric_figures(peer.rig.fabrics[0]);
    assert_int_equal(figures.links_lost, 1);
    rig_progress(&peer.rig, 0, 300); /* longer than until it would dial again */
    assert_int_equal(accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC), -1);
    finish_peer(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bundle_has_no_more_connections_than_fit),
        cmocka_unit_test(a_successor_at_the_peers_address_gets_no_connection),
        cmocka_unit_test(pending_attempts_end_with_their_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
