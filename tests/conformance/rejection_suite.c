/* Connections that are no member's, at a port for links. */
#include "tests/conformance/rejection_suite.h"

#include "worker/fabric/address/address.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { ANSWER_MAX = 256, VERSION_AT = 8 };

static const struct rejection_suite_port *tested;

/* Also to the address of another scheme, "verbs://10.0.0.1:4000". */
int rejection_suite_connect(const struct rig *rig, uint32_t rank)
{
    char text[MUSTER_ADDRESS_SIZE];
    struct muster_socket_address address;
    const char *published = strstr(rig->peers[rank].addresses[0], "://");
    (void)snprintf(text, sizeof text, "tcp%.100s", published != NULL ? published : "");
    if (muster_address_parse(text, &address) != MUSTER_OK) {
        return -1;
    }
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address.storage, address.size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void rejection_suite_await(struct rig *rig, uint64_t count)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (muster_fabric_figures(rig->fabrics[0]).connections_rejected < count &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 5);
    }
    /* A connection of a member that crossed another may have been closed, too. */
    assert_true(muster_fabric_figures(rig->fabrics[0]).connections_rejected >= count);
}

static void a_port_scanner_is_counted(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    int fd = rejection_suite_connect(&rig, 0);
    assert_true(fd >= 0);
    close(fd);
    rejection_suite_await(&rig, 1);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

void rejection_suite_send(int fd, const void *bytes, size_t size)
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

static void garbage_is_rejected_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    int fd = rejection_suite_connect(&rig, 0);
    rejection_suite_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    rejection_suite_await(&rig, 1);
    assert_hung_up(fd);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

struct muster_hello rejection_suite_hello(const struct rig *rig)
{
    struct muster_hello hello = {.generation = rig->generation, .rank = 1};
    memcpy(hello.from, rig->peers[1].member, sizeof hello.from);
    memcpy(hello.to, rig->peers[0].member, sizeof hello.to);
    (void)snprintf(hello.token, sizeof hello.token, "a token that both ends have");
    return hello;
}

static void expect_verdict_on(struct rig *rig, const unsigned char bytes[MUSTER_HELLO_SIZE],
                              enum muster_verdict expected, uint64_t refused)
{
    unsigned char answer[ANSWER_MAX];
    int fd = rejection_suite_connect(rig, 0);
    rejection_suite_send(fd, bytes, MUSTER_HELLO_SIZE);
    rejection_suite_send(fd, tested->greeting, tested->greeting_size);
    rejection_suite_await(rig, refused);
    assert_int_equal(recv(fd, answer, tested->answer_size, MSG_WAITALL), tested->answer_size);
    enum muster_verdict verdict = MUSTER_WELCOME;
    assert_int_equal(muster_answer_decode(answer, &verdict), MUSTER_OK);
    assert_int_equal(verdict, expected);
    assert_hung_up(fd);
}

static void expect_verdict(struct rig *rig, const struct muster_hello *hello,
                           enum muster_verdict expected, uint64_t refused)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    muster_hello_encode(hello, bytes);
    expect_verdict_on(rig, bytes, expected, refused);
}

static void a_dialler_of_another_version_is_answered(void **state)
{
    (void)state;
    struct rig rig;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    rig_init(&rig, tested->transport, 2);
    struct muster_hello hello = rejection_suite_hello(&rig);
    muster_hello_encode(&hello, bytes);
    bytes[VERSION_AT]++;
    expect_verdict_on(&rig, bytes, MUSTER_REFUSED_VERSION, 1);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void a_dialler_without_token_or_membership_is_answered(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    struct muster_hello hello = rejection_suite_hello(&rig);
    hello.token[3] = 'x';
    expect_verdict(&rig, &hello, MUSTER_REFUSED_TOKEN, 1);
    hello = rejection_suite_hello(&rig);
    hello.token[0] = '\0';
    expect_verdict(&rig, &hello, MUSTER_REFUSED_TOKEN, 2);
    hello = rejection_suite_hello(&rig);
    muster_random_uuid(hello.from);
    expect_verdict(&rig, &hello, MUSTER_REFUSED_UNKNOWN, 3);
    hello = rejection_suite_hello(&rig);
    muster_random_uuid(hello.to);
    expect_verdict(&rig, &hello, MUSTER_REFUSED_UNKNOWN, 4);
    hello.rank = 2; /* who is unknown is told no more */
    expect_verdict(&rig, &hello, MUSTER_REFUSED_UNKNOWN, 5);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void incomplete_hellos_do_not_keep_members_out(void **state)
{
    (void)state;
    enum { STALLED = 300 };
    static int fds[STALLED];
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    unsigned char bytes[MUSTER_HELLO_SIZE];
    struct muster_hello hello = rejection_suite_hello(&rig);
    muster_hello_encode(&hello, bytes);
    for (int i = 0; i < STALLED; i++) {
        fds[i] = rejection_suite_connect(&rig, 0);
        assert_true(fds[i] >= 0);
        rejection_suite_send(fds[i], bytes, 100);
        if (i % 50 == 0) {
            rig_progress(&rig, 0, 1);
        }
    }
    rig_run(&rig, rig_exchange, NULL);
    for (int i = 0; i < STALLED; i++) {
        close(fds[i]);
    }
    rejection_suite_await(&rig, STALLED);
    rig_finish(&rig);
}

static uint64_t rejected(struct rig *rig)
{
    return muster_fabric_figures(rig->fabrics[0]).connections_rejected;
}

/* Waits until few connections are ahead of the count. A kernel may drop a connection that is reset
 * before it is accepted, and that one is never counted: the wait ends after a moment. */
static void wait_for_count(struct rig *rig, uint64_t connected)
{
    enum { AHEAD = 64, MOMENT_MS = 100 };
    int64_t until_ns = muster_clock_after_ms(MOMENT_MS);
    while (connected > rejected(rig) + AHEAD && muster_clock_ns() < until_ns) {
        (void)sched_yield();
    }
}

/* Rank 1 connects until rank 0 has counted so many. */
static char *connect_often(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t count = *(const uint64_t *)user;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    for (uint64_t i = 0; rejected(rig) < count && muster_clock_ns() < deadline_ns; i++) {
        if (rank == 0) {
            rig_progress(rig, 0, 5);
            continue;
        }
        wait_for_count(rig, i);
        int fd = rejection_suite_connect(rig, 0);
        RIG_EXPECT(fd >= 0);
        struct linger abrupt = {.l_onoff = 1}; /* leaves no port in TIME_WAIT */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt);
        close(fd);
    }
    RIG_EXPECT(rejected(rig) >= count);
    return NULL;
}

static void ten_thousand_quick_connects_do_no_harm(void **state)
{
    (void)state;
    uint64_t count = 10000;
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    rig_run(&rig, connect_often, &count);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

static void another_token_is_a_clear_error_for_the_dialler(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, tested->transport, 2);
    muster_fabric_set_token(rig.fabrics[1], "another one");
    struct rig_counter counter = rig_send_unexpected(&rig);
    assert_int_equal(counter.status, MUSTER_REJOIN);
    if (strncmp(counter.reason, "link to rank 0 (host host-0): ", 30) != 0 ||
        strstr(counter.reason, "refused: wrong link token") == NULL) {
        fail_msg("\"%s\" does not say who refused, and why", counter.reason);
    }
    rig_finish(&rig);
}

int rejection_suite_run(const struct rejection_suite_port *port)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_scanner_is_counted),
        cmocka_unit_test(garbage_is_rejected_at_once),
        cmocka_unit_test(a_dialler_of_another_version_is_answered),
        cmocka_unit_test(a_dialler_without_token_or_membership_is_answered),
        cmocka_unit_test(incomplete_hellos_do_not_keep_members_out),
        cmocka_unit_test(ten_thousand_quick_connects_do_no_harm),
        cmocka_unit_test(another_token_is_a_clear_error_for_the_dialler),
    };
    assert_true(port->answer_size <= ANSWER_MAX);
    tested = port;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
