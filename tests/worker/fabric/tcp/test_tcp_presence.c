/* A member that waits for a peer: whose port refuses, does not answer, or accepts; that is stopped;
 * or whose open link outweighs its port. The test plays the peer, but for the stopped one. */
#include "tests/conformance/rig.h"
#include "tests/conformance/rig_child.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/hello.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The bounds that end a wait are 16 ms for "gone" and 240 ms for "cut off". */
enum { QUIET_MS = 40, OUTLIVES_MS = 1500 };
enum { LINKING = 1, WAITING = 2, DIALLING = 3 }; /* operations */

static void hurry(uint32_t rank, struct fabric_wish *wish)
{
    (void)rank;
    if (wish != NULL) {
        wish->fabric.quiet_ms = QUIET_MS;
    }
}

static const struct rig_transport tcp = {.name = "tcp", .transports = "tcp", .prepare = hurry};

/* What the peer of rank 0 is like. */
struct peer {
    int backlog; /* of its listener; 0: there is room for one connection */
    bool closes; /* its listener, once rank 0 has dialled; the connection stays */
    bool welcomes;
};

struct outcome {
    muster_status status;
    bool lost;
    char reason[MUSTER_REASON_SIZE];
};

static int listen_here(int backlog, char ret_address[MUSTER_ADDRESS_SIZE])
{
    struct muster_socket_address address;
    assert_int_equal(muster_address_parse_host("127.0.0.1", &address), MUSTER_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address.storage, &address.size), 0);
    assert_int_equal(listen(fd, backlog), 0);
    muster_address_print(&address, ret_address);
    return fd;
}

static struct outcome wait_for_byte(struct rig *rig, uint64_t operation, uint32_t wait_ms)
{
    const struct muster_message_key key = {.generation = rig->generation, .sequence = operation};
    struct outcome outcome = {.lost = false};
    struct rig_counter counter = {.left = 1};
    char byte = 0;
    uint32_t rank = 0;
    struct muster_wait_clock clock = {0};
    struct muster_transfer receive = rig_receive(rig, 1, operation, &byte, 1);
    rig_post(rig, 0, &counter, &receive);
    outcome.status = muster_fabric_wait_in(rig->fabrics[0], &key, &clock, &counter.finished,
                                           muster_clock_after_ms(wait_ms));
    outcome.status = outcome.status == MUSTER_OK ? counter.status : outcome.status;
    outcome.lost = muster_fabric_lost_peer(rig->fabrics[0], rig->generation, &rank, outcome.reason);
    muster_fabric_withdraw(rig->fabrics[0], rig->generation, 0, operation);
    return outcome;
}

/* Drives rank 0 until it has dialled and sent its hello. */
static int accept_dial(struct rig *rig, int listener)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    int fd = -1;
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 1, DIALLING, &byte, 1);
    rig_post(rig, 0, &counter, &send);
    while (fd < 0 && muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 1);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    size_t have = 0;
    while (have < sizeof bytes && muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 1);
        ssize_t got = recv(fd, bytes + have, sizeof bytes - have, MSG_DONTWAIT);
        have += got > 0 ? (size_t)got : 0;
    }
    assert_int_equal(have, sizeof bytes);
    muster_fabric_withdraw(rig->fabrics[0], rig->generation, 0, DIALLING);
    return fd;
}

static struct outcome wait_for(const struct peer *peer, uint32_t wait_ms)
{
    struct rig rig;
    int fd = -1;
    rig_init(&rig, &tcp, 2);
    rig_replace(&rig, 1);
    int listener = listen_here(peer->backlog, rig.peers[1].addresses[0]);
    rig.generation++;
    rig_begin_one(&rig, 0);
    if (peer->closes || peer->welcomes) {
        fd = accept_dial(&rig, listener);
    }
    if (peer->closes) {
        close(listener);
        listener = -1;
    }
    if (peer->welcomes) {
        unsigned char bytes[MUSTER_ANSWER_SIZE];
        muster_answer_encode(MUSTER_WELCOME, bytes);
        assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    }
    struct outcome outcome = wait_for_byte(&rig, WAITING, wait_ms);
    if (fd >= 0) {
        close(fd);
    }
    if (listener >= 0) {
        close(listener);
    }
    rig_finish(&rig);
    return outcome;
}

static void expect_loss(const struct outcome *outcome, const char *what, const char *more)
{
    if (outcome->status != MUSTER_REJOIN || !outcome->lost ||
        strstr(outcome->reason, what) == NULL || strstr(outcome->reason, more) == NULL) {
        fail_msg("%s, not \"%s\" and \"%s\": %s", muster_status_name(outcome->status), what, more,
                 outcome->reason);
    }
}

static void expect_deadline(const struct outcome *outcome)
{
    if (outcome->status != MUSTER_RETRY || outcome->lost) {
        fail_msg("%s: %s", muster_status_name(outcome->status), outcome->reason);
    }
}

static void who_is_gone_ends_the_wait(void **state)
{
    (void)state;
    const struct peer peer = {.backlog = SOMAXCONN, .closes = true};
    const struct outcome outcome = wait_for(&peer, RIG_TIMEOUT_MS);
    expect_loss(&outcome, "link to rank 1 (host ", "its process is gone: 3 dials in ");
}

/* The first connection, which is never accepted, takes the place in the queue; the kernel drops the
 * others. */
static void who_is_cut_off_ends_the_wait(void **state)
{
    (void)state;
    const struct peer peer = {.backlog = 0};
    const struct outcome outcome = wait_for(&peer, RIG_TIMEOUT_MS);
    expect_loss(&outcome,
                "it is cut off from this host, or its host is down: ", "were not answered");
}

static void who_accepts_may_take_until_the_deadline(void **state)
{
    (void)state;
    const struct peer peer = {.backlog = SOMAXCONN};
    const struct outcome outcome = wait_for(&peer, OUTLIVES_MS);
    expect_deadline(&outcome);
}

static void an_open_link_that_answers_outweighs_the_port(void **state)
{
    (void)state;
    const struct peer peer = {.backlog = SOMAXCONN, .closes = true, .welcomes = true};
    const struct outcome outcome = wait_for(&peer, OUTLIVES_MS);
    expect_deadline(&outcome);
}

/* In the child: the link opens. */
static void send_and_sleep(struct rig *rig)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 0, LINKING, &byte, 1);
    (void)alarm(120);
    rig_post(rig, 0, &counter, &send);
    if (rig_wait(rig, 0, &counter) == MUSTER_OK) {
        (void)pause();
    }
}

static void who_is_stopped_is_waited_for_until_the_deadline(void **state)
{
    (void)state;
    struct rig rig;
    int how = 0;
    struct rig_child child = rig_child_start(&tcp, send_and_sleep);
    rig_child_link(&child, &rig, &tcp);
    assert_int_equal(wait_for_byte(&rig, LINKING, RIG_TIMEOUT_MS).status, MUSTER_OK);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, &how, WUNTRACED), child.pid);
    assert_true(WIFSTOPPED(how));
    const struct outcome outcome = wait_for_byte(&rig, WAITING, OUTLIVES_MS);
    expect_deadline(&outcome);
    rig_child_finish(&child, &rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_gone_ends_the_wait),
        cmocka_unit_test(who_is_cut_off_ends_the_wait),
        cmocka_unit_test(who_accepts_may_take_until_the_deadline),
        cmocka_unit_test(an_open_link_that_answers_outweighs_the_port),
        cmocka_unit_test(who_is_stopped_is_waited_for_until_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
