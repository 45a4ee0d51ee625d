/* Connections from anything but members to the port for links over RDMA: what they do to TCP's
 * port, and wrong greetings. */
#include "tests/conformance/rejection_suite.h"
#include "tests/support/guest.h"
#include "tests/support/schedules.h"
#include "tests/support/verbs_spy.h"
#include "worker/base/log.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { GREETINGS = 25, MUTATIONS_MAX = 4 };

static const struct rig_transport verbs = {.name = "verbs", .transports = "verbs"};

/* A queue pair that does not exist, at this device's own address. */
static void make_greeting(const struct rig *rig, unsigned char ret_bytes[VERBS_GREETING_SIZE])
{
    struct muster_verbs_greeting greeting = {
        .number = 0x123456, .first_psn = 7, .mtu = IBV_MTU_1024};
    unsigned four[4] = {0};
    greeting.gid.type = MUSTER_VERBS_ROCE_2;
    memset(greeting.gid.bytes + 10, 0xff, 2);
    if (rig != NULL && sscanf(rig->peers[0].addresses[0], "verbs://%u.%u.%u.%u:", &four[0],
                              &four[1], &four[2], &four[3]) == 4) {
        for (size_t i = 0; i < 4; i++) {
            greeting.gid.bytes[12 + i] = (unsigned char)four[i];
        }
    }
    muster_verbs_greeting_encode(&greeting, ret_bytes);
}

/* Drives rank 0 until it has answered the connection, or closed it. */
static void await_answer(struct rig *rig, int fd)
{
    char byte;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    ssize_t got = -1;
    do {
        rig_progress(rig, 0, 5);
        got = recv(fd, &byte, 1, MSG_DONTWAIT);
    } while (got < 0 && errno == EAGAIN && muster_clock_ns() < deadline_ns);
    assert_true(got >= 0 || errno == ECONNRESET);
}

/* Connects with a valid hello and then sends this greeting. Rank 0 must answer or close, and hold
 * nothing afterwards. */
static void greet(const unsigned char *greeting, size_t size, bool silent)
{
    struct rig rig;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    rig_init(&rig, &verbs, 2);
    struct muster_hello hello = rejection_suite_hello(&rig);
    muster_hello_encode(&hello, bytes);
    int fd = rejection_suite_connect(&rig, 0);
    assert_true(fd >= 0);
    rejection_suite_send(fd, bytes, sizeof bytes);
    rejection_suite_send(fd, greeting, size);
    if (silent) {
        (void)shutdown(fd, SHUT_WR);
    }
    await_answer(&rig, fd);
    close(fd);
    rig_progress(&rig, 0, 5);
    rig_finish(&rig);
    verbs_spy_expect_nothing_held();
}

static void a_wrong_greeting_does_no_harm(void **state)
{
    (void)state;
    unsigned char greeting[VERBS_GREETING_SIZE];
    uint64_t random = test_seed() | 1;
    muster_log_set_level(MUSTER_LOG_ERROR);
    for (int i = 0; i < GREETINGS; i++) {
        make_greeting(NULL, greeting);
        uint32_t mutations = 1 + test_random_below(&random, MUTATIONS_MAX);
        for (uint32_t k = 0; k < mutations; k++) {
            greeting[test_random_below(&random, sizeof greeting)] =
                (unsigned char)test_random_below(&random, 256);
        }
        bool cut = test_random_below(&random, 4) == 0;
        greet(greeting, cut ? test_random_below(&random, sizeof greeting) : sizeof greeting, cut);
    }
    muster_log_set_level(MUSTER_LOG_WARN);
}

/* A peer with the token, but without that queue pair: the proof fails, and the member logs it. */
static void a_queue_pair_that_does_not_exist_is_given_up(void **state)
{
    (void)state;
    struct rig rig;
    unsigned char bytes[VERBS_HELLO_SIZE];
    char rest[VERBS_ANSWER_SIZE];
    rig_init(&rig, &verbs, 2);
    struct muster_hello hello = rejection_suite_hello(&rig);
    muster_hello_encode(&hello, bytes);
    make_greeting(&rig, bytes + MUSTER_HELLO_SIZE);
    int fd = rejection_suite_connect(&rig, 0);
    assert_true(fd >= 0);
    rejection_suite_send(fd, bytes, sizeof bytes);
    await_answer(&rig, fd);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (verbs_spy_pairs() > 0 && muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 5);
    }
    assert_int_equal(verbs_spy_pairs(), 0);
    while (recv(fd, rest, sizeof rest, 0) > 0) {
    }
    close(fd);
    rig_begin(&rig);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
    verbs_spy_expect_nothing_held();
}

static void a_hello_of_tcp_without_a_greeting_is_refused(void **state)
{
    (void)state;
    struct rig rig;
    unsigned char bytes[MUSTER_HELLO_SIZE];
    rig_init(&rig, &verbs, 2);
    struct muster_hello hello = rejection_suite_hello(&rig);
    muster_hello_encode(&hello, bytes);
    int fd = rejection_suite_connect(&rig, 0);
    assert_true(fd >= 0);
    rejection_suite_send(fd, bytes, sizeof bytes);
    (void)shutdown(fd, SHUT_WR);
    rejection_suite_await(&rig, 1);
    close(fd);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

int main(int count, char **arguments)
{
    (void)count;
    guest_need_rdma(arguments[0]);
    verbs_spy_start();
    static unsigned char greeting[VERBS_GREETING_SIZE];
    static const struct rejection_suite_port port = {.transport = &verbs,
                                                     .greeting = greeting,
                                                     .greeting_size = sizeof greeting,
                                                     .answer_size = VERBS_ANSWER_SIZE};
    make_greeting(NULL, greeting);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_greeting_does_no_harm),
        cmocka_unit_test(a_queue_pair_that_does_not_exist_is_given_up),
        cmocka_unit_test(a_hello_of_tcp_without_a_greeting_is_refused),
    };
    return rejection_suite_run(&port) + cmocka_run_group_tests(tests, NULL, NULL);
}
