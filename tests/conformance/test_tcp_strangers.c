/* Who else connects to a worker's port: nobody hangs, nothing is lost, and they are counted. */
#include "tests/conformance/rig_child.h"
#include "tests/support/descriptors.h"
#include "worker/fabric/address.h"
#include "worker/fabric/frame.h"
#include "worker/fabric/hello.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct rig_transport tcp = {.name = "tcp", .listen = "127.0.0.1"};

/* Connects to a fabric's port; -1 if it cannot. */
static int connect_to(const struct rig *rig, uint32_t rank)
{
    struct muster_socket_address address;
    if (muster_address_parse(rig->peers[rank].addresses[0], &address) != MUSTER_OK) {
        return -1;
    }
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address.storage, address.size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void await_refused(struct rig *rig, uint64_t count)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_PATIENCE_MS);
    while (muster_fabric_figures(rig->fabrics[0]).strangers_refused < count &&
           muster_clock_ns() < deadline_ns) {
        rig_look(rig, 0, 5);
    }
    /* A member whose call has crossed another may have hung up, too. */
    assert_true(muster_fabric_figures(rig->fabrics[0]).strangers_refused >= count);
}

static void a_port_scanner_is_counted(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    int fd = connect_to(&rig, 0);
    assert_true(fd >= 0);
    close(fd);
    await_refused(&rig, 1);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

/* Rank 0 looks until it says, or no longer says, that it lacks descriptors. */
static void await_exhausted(struct rig *rig, bool wanted)
{
    char reason[MUSTER_REASON_SIZE];
    int64_t deadline_ns = muster_clock_after_ms(RIG_PATIENCE_MS);
    while (muster_fabric_exhausted(rig->fabrics[0], rig->generation, reason) != wanted &&
           muster_clock_ns() < deadline_ns) {
        rig_look(rig, 0, 5);
    }
    assert_int_equal(muster_fabric_exhausted(rig->fabrics[0], rig->generation, reason), wanted);
    assert_true(!wanted || strstr(reason, "no descriptor left for a peer's call") != NULL);
}

static void a_call_for_which_there_is_no_descriptor_is_taken_later(void **state)
{
    (void)state;
    struct rig rig;
    struct rlimit before;
    rig_init(&rig, &tcp, 2);
    int fd = connect_to(&rig, 0); /* to the kernel, so far */
    assert_true(fd >= 0);
    descriptors_take_away(&before);
    await_exhausted(&rig, true);
    descriptors_give_back(&before);
    await_exhausted(&rig, false);
    close(fd);
    await_refused(&rig, 1);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

enum { STRANGERS_EACH = 4, STRANGERS_MS = 150 };

static void strangers_make_room_for_members(void **state)
{
    (void)state;
    struct rig rig;
    struct rlimit before;
    int fds[2 * STRANGERS_EACH];
    rig_init(&rig, &tcp, 2);
    for (uint32_t i = 0; i < 2 * STRANGERS_EACH; i++) {
        fds[i] = connect_to(&rig, i % 2);
        assert_true(fds[i] >= 0);
    }
    int64_t until_ns = muster_clock_after_ms(STRANGERS_MS);
    do {
        rig_look(&rig, 0, 5);
        rig_look(&rig, 1, 5);
    } while (muster_clock_ns() < until_ns);
    descriptors_take_away(&before);
    rig_run(&rig, rig_exchange, NULL);
    descriptors_give_back(&before);
    assert_true(muster_fabric_figures(rig.fabrics[0]).strangers_refused +
                    muster_fabric_figures(rig.fabrics[1]).strangers_refused >=
                2);
    for (uint32_t i = 0; i < 2 * STRANGERS_EACH; i++) {
        close(fds[i]);
    }
    rig_finish(&rig);
}

static void send_bytes(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void assert_hung_up(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
    close(fd);
}

static void garbage_is_refused_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    int fd = connect_to(&rig, 0);
    send_bytes(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    await_refused(&rig, 1);
    assert_hung_up(fd);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static struct muster_hello good_hello(const struct rig *rig)
{
    struct muster_hello hello = {.generation = rig->generation};
    memcpy(hello.from, rig->peers[1].member, sizeof hello.from);
    memcpy(hello.to, rig->peers[0].member, sizeof hello.to);
    (void)snprintf(hello.token, sizeof hello.token, "a token that both ends have");
    return hello;
}

static void expect_verdict(struct rig *rig, const struct muster_hello *hello,
                           enum muster_verdict expected, uint64_t refused)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    unsigned char answer[MUSTER_ANSWER_SIZE];
    muster_hello_encode(hello, bytes);
    int fd = connect_to(rig, 0);
    send_bytes(fd, bytes, sizeof bytes);
    await_refused(rig, refused);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    enum muster_verdict verdict = MUSTER_WELCOME;
    assert_int_equal(muster_answer_decode(answer, &verdict), MUSTER_OK);
    assert_int_equal(verdict, expected);
    assert_hung_up(fd);
}

static void who_lacks_the_token_or_is_no_member_is_told_so(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    struct muster_hello hello = good_hello(&rig);
    hello.token[3] = 'x';
    expect_verdict(&rig, &hello, MUSTER_REFUSED_TOKEN, 1);
    hello = good_hello(&rig);
    hello.token[0] = '\0';
    expect_verdict(&rig, &hello, MUSTER_REFUSED_TOKEN, 2);
    hello = good_hello(&rig);
    muster_random_uuid(hello.from);
    expect_verdict(&rig, &hello, MUSTER_REFUSED_STRANGER, 3);
    hello = good_hello(&rig);
    muster_random_uuid(hello.to);
    expect_verdict(&rig, &hello, MUSTER_REFUSED_STRANGER, 4);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void half_hellos_do_not_keep_members_out(void **state)
{
    (void)state;
    enum { STALLED = 300 };
    static int fds[STALLED];
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    unsigned char bytes[MUSTER_HELLO_SIZE];
    struct muster_hello hello = good_hello(&rig);
    muster_hello_encode(&hello, bytes);
    for (int i = 0; i < STALLED; i++) {
        fds[i] = connect_to(&rig, 0);
        assert_true(fds[i] >= 0);
        send_bytes(fds[i], bytes, 100);
        if (i % 50 == 0) {
            rig_look(&rig, 0, 1);
        }
    }
    rig_run(&rig, rig_exchange, NULL);
    for (int i = 0; i < STALLED; i++) {
        close(fds[i]);
    }
    await_refused(&rig, STALLED);
    rig_finish(&rig);
}

static char *connect_often(struct rig *rig, uint32_t rank, void *user)
{
    int count = *(const int *)user;
    if (rank == 0) {
        int64_t deadline_ns = muster_clock_after_ms(RIG_PATIENCE_MS);
        while (muster_fabric_figures(rig->fabrics[0]).strangers_refused < (uint64_t)count &&
               muster_clock_ns() < deadline_ns) {
            rig_look(rig, 0, 5);
        }
        RIG_EXPECT(muster_fabric_figures(rig->fabrics[0]).strangers_refused >= (uint64_t)count);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        int fd = connect_to(rig, 0);
        RIG_EXPECT(fd >= 0);
        struct linger abrupt = {.l_onoff = 1}; /* leaves no port in TIME_WAIT */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt);
        close(fd);
    }
    return NULL;
}

static void ten_thousand_quick_connects_do_no_harm(void **state)
{
    (void)state;
    int count = 10000;
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    rig_run(&rig, connect_often, &count);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void another_token_is_a_clear_error_for_the_dialler(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    muster_fabric_set_token(rig.fabrics[1], "another one");
    struct rig_tally tally = rig_send_unasked(&rig);
    assert_int_equal(tally.status, MUSTER_REJOIN);
    char expected[MUSTER_REASON_SIZE];
    (void)snprintf(expected, sizeof expected,
                   "link to rank 0 (host host-0): %s: refused: wrong link token",
                   rig.peers[0].addresses[0]);
    assert_string_equal(tally.reason, expected);
    rig_finish(&rig);
}

static void an_address_that_is_not_ours_is_invalid(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0.0.0.0", "::", "host", "", "127.0.0.1:http", "192.0.2.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct muster_fabric *fabric = NULL;
        struct muster_fabric_options options = {.member = "m", .listen = wrong[i]};
        assert_int_equal(muster_fabric_create(&options, &fabric), MUSTER_INVALID);
        assert_null(fabric);
        assert_non_null(strstr(muster_last_error(), wrong[i]));
    }
}

/* A process of its own ----------------------------------------------------------------------- */

/* It waits for a message that never comes. */
static void wait_in_vain(struct rig *rig)
{
    char byte = 0;
    struct rig_tally tally = {.left = 1};
    struct muster_transfer hello = rig_send(rig, 0, 1, &byte, 1);
    rig_post(rig, 0, &tally, &hello);
    rig_look(rig, 0, RIG_PATIENCE_MS);
}

static void a_frozen_process_is_bounded_by_the_deadline_and_a_killed_one_is_lost(void **state)
{
    (void)state;
    const struct rig_child child = rig_child_start(&tcp, wait_in_vain);
    struct rig rig;
    rig_child_meet(&child, &rig, &tcp);
    char byte = 1;
    struct rig_tally first = {.left = 1};
    struct muster_transfer hello = rig_receive(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &first, &hello);
    assert_int_equal(rig_wait(&rig, 0, &first), MUSTER_OK);

    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    struct rig_tally second = {.left = 1};
    struct muster_transfer never = rig_receive(&rig, 1, 2, &byte, 1);
    rig_post(&rig, 0, &second, &never);
    assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &second.finished,
                                        muster_clock_after_ms(50)),
                     MUSTER_RETRY);
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    assert_int_equal(rig_wait(&rig, 0, &second), MUSTER_REJOIN);
    assert_non_null(strstr(second.reason, "link to rank 1 (host host-0): "));
    rig_child_finish(&child, &rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frozen_process_is_bounded_by_the_deadline_and_a_killed_one_is_lost),
        cmocka_unit_test(a_call_for_which_there_is_no_descriptor_is_taken_later),
        cmocka_unit_test(strangers_make_room_for_members),
        cmocka_unit_test(a_port_scanner_is_counted),
        cmocka_unit_test(garbage_is_refused_at_once),
        cmocka_unit_test(who_lacks_the_token_or_is_no_member_is_told_so),
        cmocka_unit_test(half_hellos_do_not_keep_members_out),
        cmocka_unit_test(ten_thousand_quick_connects_do_no_harm),
        cmocka_unit_test(another_token_is_a_clear_error_for_the_dialler),
        cmocka_unit_test(an_address_that_is_not_ours_is_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
