/* Failures below links over RDMA, most of them in the middle of a large message: each becomes the
 * link's status, with the device's reason; the next generation works, and nothing is leaked. */
#include "tests/conformance/rig_child.h"
#include "tests/conformance/rig_flow.h"
#include "tests/support/guest.h"
#include "tests/support/verbs_spy.h"
#include "worker/base/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STOPPED_MS = 300, /* a stopped peer is waited for */
    LITTLE_BYTES = 64 << 10,
    NOBODY = 65534,
    PATHS = 3, /* of a link of several */
};

static const struct rig_transport verbs = {.name = "verbs", .transports = "verbs"};
static const struct rig_transport with_tcp = {.name = "verbs, else TCP", .transports = "verbs,tcp"};

static void fail_and_recover(void (*inject_fault)(void), const char *words)
{
    struct rig rig;
    rig_flow_start(inject_fault);
    rig_init(&rig, &verbs, 2);
    rig_flow_expect_lost(&rig, words);
    rig_flow_expect_recovered(&rig);
    assert_true(verbs_spy_pairs() > 0);
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

/* Pairs ---------------------------------------------------------------------------------------- */

static void break_first_pair(void)
{
    verbs_spy_break_pair(0);
}

static void break_last_pair(void)
{
    verbs_spy_break_pair(verbs_spy_pairs() - 1);
}

static void a_queue_pair_in_error_ends_its_link(void **state)
{
    (void)state;
    fail_and_recover(break_first_pair, "RDMA device ");
    fail_and_recover(break_last_pair, "RDMA device ");
}

/* Drives both until the link has all its paths. */
static char *await_paths(struct rig *rig, uint32_t rank, void *user)
{
    uint64_t others = *(const uint64_t *)user;
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    char *error = rig_exchange(rig, rank, NULL);
    while (error == NULL && muster_fabric_figures(rig->fabrics[rank]).connections_opened < others &&
           muster_clock_ns() < deadline_ns) {
        rig_progress(rig, rank, 5);
    }
    return error;
}

static void a_link_of_several_queue_pairs_goes_on_without_one(void **state)
{
    (void)state;
    struct rig rig;
    struct rig_transport several = verbs;
    uint64_t others = PATHS - 1;
    several.options.verbs_connections = PATHS;
    rig_flow_start(break_last_pair);
    rig_init(&rig, &several, 2);
    rig_run(&rig, await_paths, &others);
    assert_int_equal(verbs_spy_pairs(), 2 * PATHS);
    rig_run(&rig, rig_flow_transfer, NULL);
    assert_true(rig_flow.injected);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_flow.statuses[i], MUSTER_OK);
        assert_true(muster_fabric_figures(rig.fabrics[i]).connections_lost > 0);
    }
    assert_true(rig_filled(rig_flow.in, RIG_FLOW_BYTES, RIG_FLOW_SEED));
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static char *exchange_with_all(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    for (uint32_t step = 1; step < rig->count; step++) {
        char *error = rig_exchange_with(rig, rank, rank ^ step);
        if (error != NULL) {
            return error;
        }
    }
    return NULL;
}

static void links_use_tcp_when_queue_pairs_run_out(void **state)
{
    (void)state;
    muster_log_set_level(MUSTER_LOG_ERROR); /* each end logs it, for each link */
    for (uint32_t most = 0; most <= 4; most++) {
        struct rig rig;
        verbs_spy_limit_pairs(most);
        rig_init(&rig, &with_tcp, 4);
        rig_run(&rig, exchange_with_all, NULL);
        assert_true(verbs_spy_pairs() <= most);
        rig_finish(&rig);
        verbs_spy_expect_nothing_held();
    }
    verbs_spy_limit_pairs(UINT32_MAX);
    muster_log_set_level(MUSTER_LOG_WARN);
}

/* Processes ------------------------------------------------------------------------------------ */

static struct rig_child child;

static void kill_peer(void)
{
    (void)kill(child.pid, SIGKILL);
}

static void stop_peer(void)
{
    int how = 0;
    (void)kill(child.pid, SIGSTOP);
    (void)waitpid(child.pid, &how, WUNTRACED);
}

static void kill_oneself(void)
{
    (void)raise(SIGKILL);
}

/* The main function of a child: one end of a flow. */
static void send_large(struct rig *rig)
{
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send = rig_send(rig, 0, RIG_FLOW_SEQUENCE, rig_flow.out, RIG_FLOW_BYTES);
    rig_post(rig, 0, &counter, &send);
    (void)!rig_wait(rig, 0, &counter);
}

static void receive_large(struct rig *rig)
{
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(rig, 0, RIG_FLOW_SEQUENCE, NULL, RIG_FLOW_BYTES);
    receive.consume = rig_flow_consume;
    rig_flow.inject_fault = kill_oneself;
    rig_post(rig, 0, &counter, &receive);
    (void)!rig_wait(rig, 0, &counter);
}

static void a_sender_killed_in_a_large_message_is_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_flow_start(NULL);
    child = rig_child_start(&verbs, send_large);
    rig_child_link(&child, &rig, &verbs);
    rig_flow.inject_fault = kill_peer;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(&rig, 1, RIG_FLOW_SEQUENCE, NULL, RIG_FLOW_BYTES);
    receive.consume = rig_flow_consume;
    rig_post(&rig, 0, &counter, &receive);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    assert_true(rig_flow.injected);
    assert_non_null(strstr(counter.reason, "link to rank 1 (host host-0): "));
    rig_child_finish(&child, &rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static void a_receiver_killed_in_a_large_message_is_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_flow_start(NULL);
    child = rig_child_start(&verbs, receive_large);
    rig_child_link(&child, &rig, &verbs);
    struct rig_counter counter = {.left = 1};
    struct muster_transfer send =
        rig_send(&rig, 1, RIG_FLOW_SEQUENCE, rig_flow.out, RIG_FLOW_BYTES);
    rig_post(&rig, 0, &counter, &send);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_REJOIN);
    assert_non_null(strstr(counter.reason, "link to rank 1 (host host-0): "));
    rig_child_finish(&child, &rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static void a_sender_stopped_in_a_large_message_is_waited_for(void **state)
{
    (void)state;
    struct rig rig;
    rig_flow_start(NULL);
    child = rig_child_start(&verbs, send_large);
    rig_child_link(&child, &rig, &verbs);
    rig_flow.inject_fault = stop_peer;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(&rig, 1, RIG_FLOW_SEQUENCE, NULL, RIG_FLOW_BYTES);
    receive.consume = rig_flow_consume;
    rig_post(&rig, 0, &counter, &receive);
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    while (!rig_flow.injected && muster_clock_ns() < deadline_ns) {
        rig_progress(&rig, 0, 10);
    }
    assert_int_equal(muster_fabric_wait(rig.fabrics[0], rig.generation, &counter.finished,
                                        muster_clock_after_ms(STOPPED_MS)),
                     MUSTER_RETRY);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    assert_int_equal(rig_wait(&rig, 0, &counter), MUSTER_OK);
    assert_true(rig_filled(rig_flow.in, RIG_FLOW_BYTES, RIG_FLOW_SEED));
    rig_child_finish(&child, &rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

/* Memory --------------------------------------------------------------------------------------- */

static void limit_memory(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

static void a_process_that_may_lock_no_memory_says_so_and_uses_tcp(void **state)
{
    (void)state;
    struct rig rig;
    struct muster_fabric *fabric = NULL;
    const struct fabric_wish wish = {.transports = "verbs",
                                     .fabric.member = "00000000-0000-4000-8000-000000000001"};
    struct rig_transport possibly = with_tcp;
    possibly.transports = NULL;
    possibly.options.verbs = 1;
    limit_memory(LITTLE_BYTES);
    assert_int_not_equal(fabrics_make(&wish, &fabric), MUSTER_OK);
    assert_non_null(strstr(muster_last_error(), "this process may lock 64 KiB"));
    assert_non_null(strstr(muster_last_error(), "ulimit -l"));
    rig_init(&rig, &possibly, 4);
    rig_run(&rig, exchange_with_all, NULL);
    assert_int_equal(verbs_spy_pairs(), 0);
    rig_finish(&rig);
    verbs_spy_expect_nothing_held();
}

static char *move_and_exchange(struct rig *rig, uint32_t rank, void *user)
{
    char *error = exchange_with_all(rig, rank, user);
    return error != NULL || rank > 1 ? error : rig_flow_transfer(rig, rank, user);
}

static void links_use_tcp_when_lockable_memory_runs_out(void **state)
{
    (void)state;
    struct rig rig;
    limit_memory(RLIM_INFINITY);
    rig_init(&rig, &with_tcp, 2);
    rig_run(&rig, rig_exchange, NULL);
    size_t link_bytes = verbs_spy_region_bytes(); /* of both ends, which are in this process */
    assert_int_equal(verbs_spy_pairs() > 0, link_bytes > 0);
    rig_finish(&rig);

    rig_flow_start(NULL);
    limit_memory(link_bytes + link_bytes / 2);
    rig_init(&rig, &with_tcp, 4);
    rig_run(&rig, move_and_exchange, NULL);
    assert_true(verbs_spy_region_bytes() > 0 && verbs_spy_region_bytes() <= 2 * link_bytes);
    assert_int_equal(rig_flow.statuses[0], MUSTER_OK);
    assert_true(rig_filled(rig_flow.in, RIG_FLOW_BYTES, RIG_FLOW_SEED));
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static void lockable_memory_runs_out(void **state)
{
    (void)state;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_may_lock_no_memory_says_so_and_uses_tcp),
        cmocka_unit_test(links_use_tcp_when_lockable_memory_runs_out),
    };
    int how = 0;
    pid_t user = fork();
    if (user == 0) { /* an ordinary user: root may lock everything */
        bool changed = getuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        _exit(changed ? cmocka_run_group_tests(tests, NULL, NULL) : EXIT_FAILURE);
    }
    assert_int_equal(waitpid(user, &how, 0), user);
    assert_int_equal(how, 0);
}

int main(int count, char **arguments)
{
    (void)count;
    guest_need_rdma(arguments[0]);
    verbs_spy_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_pair_in_error_ends_its_link),
        cmocka_unit_test(a_link_of_several_queue_pairs_goes_on_without_one),
        cmocka_unit_test(links_use_tcp_when_queue_pairs_run_out),
        cmocka_unit_test(a_sender_killed_in_a_large_message_is_lost),
        cmocka_unit_test(a_receiver_killed_in_a_large_message_is_lost),
        cmocka_unit_test(a_sender_stopped_in_a_large_message_is_waited_for),
        cmocka_unit_test(lockable_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
