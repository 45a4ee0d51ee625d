/* Connections to a worker's port from anything but members: nothing hangs, nothing is lost, and
 * they are counted. */
#include "tests/conformance/rejection_suite.h"
#include "tests/conformance/rig_child.h"
#include "tests/support/descriptors.h"

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
    };
    static const struct rejection_suite_port port = {.transport = &tcp,
                                                     .answer_size = MUSTER_ANSWER_SIZE};
    return rejection_suite_run(&port) + cmocka_run_group_tests(tests, NULL, NULL);
}
