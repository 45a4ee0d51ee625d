/* Probes of a member in a process of its own: it runs, computes, is stopped, is killed, or its
 * network is cut. */
#include "tests/conformance/rig.h"
#include "tests/conformance/rig_child.h"
#include "tests/support/descriptors.h"
#include "tests/support/network.h"
#include "worker/fabric/address/probe.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LONG_MS = 60 * 1000, /* for verdicts that come by an answer */
    SHORT_MS = 300,      /* where none comes */
    PROBES = 20,
};

static int home;
static int hosts[2]; /* of this process and of the child; -1: they stay at home */

static void be_at_host(uint32_t rank, struct fabric_wish *wish)
{
    if (hosts[0] >= 0) {
        test_host_enter(rank < 2 ? hosts[rank] : home);
    }
    if (wish != NULL && hosts[0] >= 0) {
        wish->options.listen = "*";
    }
}

/* In the child, whose rig has one fabric: rank 0 of it is at the child's host. */
static void be_at_childs_host(uint32_t rank, struct fabric_wish *wish)
{
    be_at_host(rank == 0 ? 1 : rank, wish);
}

static const struct rig_transport here = {
    .name = "tcp", .transports = "tcp", .prepare = be_at_host};
static const struct rig_transport there = {
    .name = "tcp", .transports = "tcp", .prepare = be_at_childs_host};

/* The child is in no call of the library: it accepts nothing. */
static void compute(struct rig *rig)
{
    (void)rig;
    (void)alarm(120);
    for (;;) {
        (void)pause();
    }
}

/* The child waits for a message that never comes, and meanwhile accepts connections. */
static void wait_in_a_call(struct rig *rig)
{
    char byte = 0;
    struct rig_counter counter = {.left = 1};
    struct muster_transfer receive = rig_receive(rig, 0, 1, &byte, 1);
    (void)alarm(120);
    if (hosts[1] >= 0) {
        test_host_enter(hosts[1]); /* it dials from there */
    }
    rig_post(rig, 0, &counter, &receive);
    muster_status status = rig_wait(rig, 0, &counter);
    (void)status;
}

static struct muster_probe_report probe(const struct rig *rig, uint32_t bound_ms)
{
    if (hosts[0] >= 0) {
        test_host_enter(hosts[0]);
    }
    bool same_host = hosts[0] < 0;
    struct muster_probe_report report = muster_peer_probe(&rig->peers[1], same_host, bound_ms);
    if (hosts[0] >= 0) {
        test_host_enter(home);
    }
    return report;
}

static void expect(const struct rig *rig, enum muster_probe_verdict verdict, uint32_t bound_ms)
{
    struct muster_probe_report report = probe(rig, bound_ms);
    assert_string_equal(muster_probe_text(report.verdict), muster_probe_text(verdict));
    bool by_an_address = verdict == MUSTER_PROBE_THERE || verdict == MUSTER_PROBE_GONE;
    assert_true((report.index < rig->peers[1].address_count) == by_an_address);
}

static void stop(const struct rig_child *child)
{
    int how = 0;
    assert_int_equal(kill(child->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child->pid, &how, WUNTRACED), child->pid);
    assert_true(WIFSTOPPED(how));
}

static void kill_and_wait(const struct rig_child *child)
{
    siginfo_t info;
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT), 0);
}

static void run_one_life(rig_child_function function)
{
    struct rig rig;
    struct rig_child child = rig_child_start(&there, function);
    rig_child_link(&child, &rig, &here);
    for (int i = 0; i < PROBES; i++) {
        expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    }
    stop(&child);
    for (int i = 0; i < PROBES; i++) {
        expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    }
    kill_and_wait(&child);
    expect(&rig, MUSTER_PROBE_GONE, LONG_MS);
    rig_child_finish(&child, &rig);
}

static void who_computes_is_there_until_it_is_killed(void **state)
{
    (void)state;
    run_one_life(compute);
}

static void who_waits_is_there_until_it_is_killed(void **state)
{
    (void)state;
    run_one_life(wait_in_a_call);
}

static int lowest_free_descriptor(void)
{
    int fd = dup(STDIN_FILENO);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void a_probe_leaves_no_descriptor_and_without_one_nothing_is_known(void **state)
{
    (void)state;
    struct rlimit limit;
    struct rig rig;
    struct rig_child child = rig_child_start(&there, compute);
    rig_child_link(&child, &rig, &here);
    int before = lowest_free_descriptor();
    expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    assert_int_equal(lowest_free_descriptor(), before);
    descriptors_exhaust(&limit);
    struct muster_probe_report report = muster_peer_probe(&rig.peers[1], true, LONG_MS);
    descriptors_restore(&limit);
    assert_int_equal(report.verdict, MUSTER_PROBE_UNKNOWN);
    rig_child_finish(&child, &rig);
}

/* The first address that a member publishes may be one at which nobody listens. */
static void one_address_that_accepts_is_enough(void **state)
{
    (void)state;
    struct rig rig;
    struct rig_child child = rig_child_start(&there, compute);
    rig_child_link(&child, &rig, &here);
    struct muster_peer *peer = &rig.peers[1];
    assert_int_equal(peer->address_count, 1);
    memcpy(peer->addresses[1], peer->addresses[0], MUSTER_ADDRESS_SIZE);
    (void)snprintf(peer->addresses[0], MUSTER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    peer->address_count = 2;
    struct muster_probe_report report = probe(&rig, LONG_MS);
    assert_int_equal(report.verdict, MUSTER_PROBE_THERE);
    assert_int_equal(report.index, 1);
    kill_and_wait(&child);
    expect(&rig, MUSTER_PROBE_GONE, LONG_MS);
    rig_child_finish(&child, &rig);
}

static void without_an_address_that_can_be_dialled_nothing_is_known(void **state)
{
    (void)state;
    static struct muster_peer peer;
    assert_int_equal(muster_peer_probe(&peer, true, LONG_MS).verdict, MUSTER_PROBE_UNKNOWN);
    peer.address_count = 2;
    (void)snprintf(peer.addresses[0], MUSTER_ADDRESS_SIZE, "shm://muster-0");
    (void)snprintf(peer.addresses[1], MUSTER_ADDRESS_SIZE, "tcp://127.0.0.1:1");
    /* Who has only addresses of this host is on it. */
    assert_int_equal(muster_peer_probe(&peer, false, LONG_MS).verdict, MUSTER_PROBE_GONE);
    assert_int_equal(muster_peer_probe(&peer, true, LONG_MS).verdict, MUSTER_PROBE_GONE);
}

/* Two hosts ----------------------------------------------------------------------------------- */

static bool at(int host, const char *command)
{
    test_host_enter(host);
    bool done = test_ip("%s", command);
    test_host_enter(home);
    return done;
}

static int make_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        hosts[i] = test_host_make();
        if (hosts[i] < 0) {
            (void)printf("only root may make network namespaces, with ip of iproute2\n");
            hosts[0] = -1;
            return 0;
        }
        test_host_enter(home);
    }
    char cable[128];
    (void)snprintf(cable, sizeof cable,
                   "link add eth0 type veth peer name eth0 netns /proc/self/fd/%d", hosts[1]);
    bool made = at(hosts[0], cable) && at(hosts[0], "link set eth0 up") &&
                at(hosts[1], "link set eth0 up") &&
                at(hosts[0], "address add 10.1.0.1/24 dev eth0") &&
                at(hosts[1], "address add 10.1.0.2/24 dev eth0");
    return made ? 0 : -1;
}

static int drop_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 2 && hosts[0] >= 0; i++) {
        close(hosts[i]);
    }
    hosts[0] = -1;
    hosts[1] = -1;
    return 0;
}

/* The packets go to a station that does not exist, as if the cable were cut somewhere; then the
 * interface is down, and the kernel knows it. */
static void a_network_that_is_cut_is_no_death(void **state)
{
    (void)state;
    struct rig rig;
    if (hosts[0] < 0) {
        skip();
    }
    struct rig_child child = rig_child_start(&there, wait_in_a_call);
    rig_child_link(&child, &rig, &here);
    expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    assert_true(
        at(hosts[0], "neighbour replace 10.1.0.2 lladdr 02:00:00:00:00:77 dev eth0 nud permanent"));
    expect(&rig, MUSTER_PROBE_CUT_OFF, SHORT_MS);
    /* A bridge, say, has the same address on both hosts: here nobody listens at it. */
    (void)snprintf(rig.peers[1].addresses[1], MUSTER_ADDRESS_SIZE, "tcp://10.1.0.1:1");
    rig.peers[1].address_count = 2;
    expect(&rig, MUSTER_PROBE_CUT_OFF, SHORT_MS);
    assert_true(at(hosts[0], "neighbour del 10.1.0.2 dev eth0"));
    expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    assert_true(at(hosts[0], "link set eth0 down"));
    expect(&rig, MUSTER_PROBE_CUT_OFF, LONG_MS);
    assert_true(at(hosts[0], "link set eth0 up"));
    expect(&rig, MUSTER_PROBE_THERE, LONG_MS);
    kill_and_wait(&child);
    expect(&rig, MUSTER_PROBE_GONE, LONG_MS);
    rig_child_finish(&child, &rig);
}

int main(void)
{
    home = test_host_here();
    hosts[0] = -1;
    hosts[1] = -1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_computes_is_there_until_it_is_killed),
        cmocka_unit_test(who_waits_is_there_until_it_is_killed),
        cmocka_unit_test(a_probe_leaves_no_descriptor_and_without_one_nothing_is_known),
        cmocka_unit_test(one_address_that_accepts_is_enough),
        cmocka_unit_test(without_an_address_that_can_be_dialled_nothing_is_known),
        cmocka_unit_test_setup_teardown(a_network_that_is_cut_is_no_death, make_hosts, drop_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
