/* Connections to a worker's port from anything but members: nothing hangs, nothing is lost, and
 * they are counted. */
#include "tests/conformance/rejection_suite.h"
#include "tests/conformance/rig_child.h"
#include "tests/support/descriptors.h"
#include "worker/base/bytes.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/wire/frame.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static const struct rig_transport tcp = {.name = "tcp", .transports = "tcp"};

/* Drives rank 0 until it reports, or no longer reports, that it lacks descriptors. */
static void await_exhausted(struct rig *rig, bool wanted)
{
    char reason[MUSTER_REASON_SIZE];
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (muster_fabric_out_of_descriptors(rig->fabrics[0], rig->generation, reason) != wanted &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 5);
    }
    assert_int_equal(muster_fabric_out_of_descriptors(rig->fabrics[0], rig->generation, reason),
                     wanted);
    assert_true(!wanted || strstr(reason, "no descriptor left for a peer's connection") != NULL);
}

static void a_connection_for_which_there_is_no_descriptor_is_accepted_later(void **state)
{
    (void)state;
    struct rig rig;
    struct rlimit before;
    rig_init(&rig, &tcp, 2);
    int fd = rejection_suite_connect(&rig, 0); /* only the kernel has accepted it so far */
    assert_true(fd >= 0);
    descriptors_exhaust(&before);
    await_exhausted(&rig, true);
    descriptors_restore(&before);
    await_exhausted(&rig, false);
    close(fd);
    rejection_suite_await(&rig, 1);
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

enum { STRANGERS_EACH = 4, STRANGERS_MS = 150 };

static void unidentified_connections_make_room_for_members(void **state)
{
    (void)state;
    struct rig rig;
    struct rlimit before;
    int fds[2 * STRANGERS_EACH];
    rig_init(&rig, &tcp, 2);
    for (uint32_t i = 0; i < 2 * STRANGERS_EACH; i++) {
        fds[i] = rejection_suite_connect(&rig, i % 2);
        assert_true(fds[i] >= 0);
    }
    int64_t until_ns = muster_clock_after_ms(STRANGERS_MS);
    do {
        rig_progress(&rig, 0, 5);
        rig_progress(&rig, 1, 5);
    } while (muster_clock_ns() < until_ns);
    descriptors_exhaust(&before);
    rig_run(&rig, rig_exchange, NULL);
    descriptors_restore(&before);
    assert_true(muster_fabric_figures(rig.fabrics[0]).connections_rejected +
                    muster_fabric_figures(rig.fabrics[1]).connections_rejected >=
                2);
    for (uint32_t i = 0; i < 2 * STRANGERS_EACH; i++) {
        close(fds[i]);
    }
    rig_finish(&rig);
}

static void an_address_of_another_host_is_invalid(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0.0.0.0", "::", "host", "", "127.0.0.1:http", "192.0.2.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct muster_fabric *fabric = NULL;
        const struct fabric_wish wish = {
            .transports = "tcp", .options.listen = wrong[i], .fabric.member = "m"};
        assert_int_equal(fabrics_make(&wish, &fabric), MUSTER_INVALID);
        assert_null(fabric);
        assert_non_null(strstr(muster_last_error(), wrong[i]));
    }
}

/* Another version ---------------------------------------------------------------------------- */

enum { VERSION_AT = 8, CHECKSUM_AT = 12 };

static const char *print_versions(void)
{
    static char text[80];
    (void)snprintf(text, sizeof text, "its wire version is %d, this member's is %d",
                   MUSTER_WIRE_VERSION + 1, MUSTER_WIRE_VERSION);
    return text;
}

/* Rank 0 refuses a dialler of the next version. What it logs meanwhile. */
static void log_of_refusal(struct rig *rig, char *ret_text, size_t size)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    const struct muster_hello hello = rejection_suite_hello(rig);
    muster_hello_encode(&hello, bytes);
    muster_bytes_put(bytes + VERSION_AT, MUSTER_WIRE_VERSION + 1, 2);
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(log != NULL && before >= 0);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    int fd = rejection_suite_connect(rig, 0);
    rejection_suite_send(fd, bytes, sizeof bytes);
    rejection_suite_await(rig, 1);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    close(fd);
    rewind(log);
    ret_text[fread(ret_text, 1, size - 1, log)] = '\0';
    (void)fclose(log);
}

static void a_dialler_of_another_version_is_logged_with_both_versions(void **state)
{
    (void)state;
    char text[1024];
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    log_of_refusal(&rig, text, sizeof text);
    if (strstr(text, print_versions()) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, print_versions());
    }
    rig_run(&rig, rig_exchange, NULL);
    rig_finish(&rig);
}

/* A socket in place of rank 1. */
static int listen_as_rank_1(struct rig *rig)
{
    struct muster_socket_address address;
    assert_int_equal(muster_address_parse_host("127.0.0.1", &address), MUSTER_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address.storage, &address.size), 0);
    muster_address_print(&address, rig->peers[1].addresses[0]);
    rig->peers[1].address_count = 1;
    return fd;
}

/* Drives rank 0 until it has dialled and sent its hello. */
static int accept_hello(struct rig *rig, int listener)
{
    unsigned char bytes[MUSTER_HELLO_SIZE];
    size_t have = 0;
    int fd = -1;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (have < sizeof bytes && muster_clock_ns() < deadline_ns) {
        rig_progress(rig, 0, 1);
        fd = fd < 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : fd;
        ssize_t got = fd < 0 ? 0 : recv(fd, bytes + have, sizeof bytes - have, MSG_DONTWAIT);
        have += got > 0 ? (size_t)got : 0;
    }
    assert_int_equal(have, sizeof bytes);
    return fd;
}

/* Whatever verdict a peer of another version has: this one may mean something else there. */
static void a_peer_that_answers_in_another_version_is_an_error_with_both_versions(void **state)
{
    (void)state;
    static const enum muster_verdict verdicts[] = {MUSTER_REFUSED_VERSION, MUSTER_WELCOME,
                                                   (enum muster_verdict)999};
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        struct rig rig;
        unsigned char answer[MUSTER_ANSWER_SIZE];
        unsigned char byte = 1;
        struct rig_counter counter = {.left = 1};
        rig_init(&rig, &tcp, 2);
        rig_replace(&rig, 1);
        int listener = listen_as_rank_1(&rig);
        rig.generation++;
        rig_begin_one(&rig, 0);
        struct muster_transfer send_byte = rig_send(&rig, 1, 1, &byte, 1);
        rig_post(&rig, 0, &counter, &send_byte);
        int fd = accept_hello(&rig, listener);
        muster_answer_encode(verdicts[i], answer);
        muster_bytes_put(answer + VERSION_AT, MUSTER_WIRE_VERSION + 1, 2);
        muster_bytes_put(answer + CHECKSUM_AT, crc32(0, answer, CHECKSUM_AT), 4);
        rejection_suite_send(fd, answer, sizeof answer);
        assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
        if (strncmp(counter.reason, "link to rank 1 (host host-1): ", 30) != 0 ||
            strstr(counter.reason, print_versions()) == NULL) {
            fail_msg("\"%s\" does not name the rank and \"%s\"", counter.reason, print_versions());
        }
        close(fd);
        close(listener);
        rig_finish(&rig);
    }
}

/* A process of its own ----------------------------------------------------------------------- */

/* The process waits for a message that never arrives. */
static void wait_in_vain(struct rig *rig)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer hello = rig_send(rig, 0, 1, &byte, 1);
    rig_post(rig, 0, &counter, &hello);
    rig_progress(rig, 0, RIG_TIMEOUT_MS);
}

static void a_frozen_process_is_bounded_by_the_deadline_and_a_killed_one_is_lost(void **state)
{
    (void)state;
    const struct rig_child child = rig_child_start(&tcp, wait_in_vain);
    struct rig rig;
    rig_child_link(&child, &rig, &tcp);
    char byte = 1;
    struct rig_counter first = {.left = 1};
    struct muster_transfer hello = rig_receive(&rig, 1, 1, &byte, 1);
    rig_post(&rig, 0, &first, &hello);
    assert_int_equal(rig_wait(&rig, 0, &first), MUSTER_OK);

    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    struct rig_counter second = {.left = 1};
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
        cmocka_unit_test(a_connection_for_which_there_is_no_descriptor_is_accepted_later),
        cmocka_unit_test(unidentified_connections_make_room_for_members),
        cmocka_unit_test(an_address_of_another_host_is_invalid),
        cmocka_unit_test(a_dialler_of_another_version_is_logged_with_both_versions),
        cmocka_unit_test(a_peer_that_answers_in_another_version_is_an_error_with_both_versions),
    };
    static const struct rejection_suite_port port = {.transport = &tcp,
                                                     .answer_size = MUSTER_ANSWER_SIZE};
    return rejection_suite_run(&port) + cmocka_run_group_tests(tests, NULL, NULL);
}
