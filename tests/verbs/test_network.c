/* What happens to the network of RDMA devices, between two of a guest: cables are pulled,
 * interfaces go down, packets are lost, or are too large for what is on their way. */
#include "tests/conformance/rig_flow.h"
#include "tests/support/guest.h"
#include "tests/support/sweep.h"
#include "tests/support/verbs_spy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LOG_BYTES = 4096 };

static void take_turns(uint32_t rank, struct muster_fabric_options *options)
{
    if (options != NULL) {
        options->verbs.device = rank % 2 == 0 ? "rxe0" : "rxe1";
    }
}

static const struct rig_transport network = {.name = "verbs between two devices",
                                             .verbs = {.use = MUSTER_VERBS_REQUIRED, .gid = -1},
                                             .prepare = take_turns};
/* The loopback is not touched by what happens here. */
static const struct rig_transport with_tcp = {.name = "verbs between two devices, else TCP",
                                              .listen = "127.0.0.1",
                                              .verbs = {.use = MUSTER_VERBS_POSSIBLY, .gid = -1},
                                              .prepare = take_turns};

/* A port goes down ------------------------------------------------------------------------------
 */

/* With it goes the TCP connection of the link, which the guest leads over its loopback. */
static void pull_cable(void)
{
    guest_shell("tc qdisc add dev lo root netem loss 100%%");
    guest_plug(0, false);
}

static void put_cable_back(void)
{
    guest_plug(0, true);
    guest_shell("tc qdisc del dev lo root");
}

static void switch_off(void)
{
    guest_switch(1, false);
}

static void switch_on(void)
{
    guest_switch(1, true);
}

static void fail_device(void)
{
    verbs_spy_make_fatal(true);
    guest_plug(0, false);
}

static void mend_device(void)
{
    verbs_spy_make_fatal(false);
    guest_plug(0, true);
}

static void strike_and_mend(void (*strike)(void), const char *words, void (*mend)(void))
{
    struct rig rig;
    rig_flow_start(strike);
    rig_init(&rig, &network, 2);
    rig_flow_expect_lost(&rig, words);
    mend();
    rig_flow_go_on(&rig);
    assert_true(verbs_spy_pairs() > 0);
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static void a_cable_is_pulled_and_put_back(void **state)
{
    (void)state;
    strike_and_mend(pull_cable, "RDMA device rxe", put_cable_back);
}

static void an_interface_goes_down_and_comes_back(void **state)
{
    (void)state;
    strike_and_mend(switch_off, "RDMA device rxe", switch_on);
}

static void a_device_that_is_gone_ends_its_links(void **state)
{
    (void)state;
    strike_and_mend(fail_device, "RDMA device rxe0: local catastrophic error", mend_device);
}

static void a_port_that_went_down_meanwhile_is_noticed_and_tcp_serves(void **state)
{
    (void)state;
    struct rig rig;
    rig_flow_start(NULL);
    rig_init(&rig, &with_tcp, 2);
    rig_run(&rig, rig_exchange, NULL);
    assert_true(verbs_spy_pairs() > 0);
    guest_plug(0, false);
    rig_flow.struck = true;
    rig_flow_expect_lost(&rig, "RDMA device rxe");
    rig_flow_go_on(&rig);
    assert_int_equal(verbs_spy_pairs(), 0);
    guest_plug(0, true);
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

/* Packets ---------------------------------------------------------------------------------------
 */

static void lost_packets_are_sent_again(void **state)
{
    (void)state;
    static const uint64_t counts[] = {3000};
    const struct sweep sweep = {
        .counts = counts, .count_count = 1, .brief = true, .place = SWEEP_BETWEEN_DEVICES};
    guest_shell("tc qdisc add dev eth0 root netem loss 1%%");
    sweep_even(3, 3, &sweep);
    guest_shell("tc -s qdisc show dev eth0 | grep -q 'dropped [1-9]'");
    guest_shell("tc qdisc del dev eth0 root");
}

static void the_smaller_mtu_counts(void **state)
{
    (void)state;
    struct rig rig;
    guest_shell("ip link set eth1 mtu 1500");
    rig_flow_start(NULL);
    rig_init(&rig, &network, 2);
    rig_flow_expect_moved(&rig);
    rig_finish(&rig);
    rig_flow_finish();
    guest_shell("ip link set eth1 mtu 4200");
}

/* Exchanges, and returns what was logged meanwhile; owned. */
static char *exchange_and_read_log(struct rig *rig)
{
    int log = memfd_create("log", MFD_CLOEXEC);
    int before = dup(STDERR_FILENO);
    char *text = calloc(1, LOG_BYTES);
    assert_true(log >= 0 && before >= 0 && dup2(log, STDERR_FILENO) >= 0);
    rig_run(rig, rig_exchange, NULL);
    (void)dup2(before, STDERR_FILENO);
    assert_true(pread(log, text, LOG_BYTES - 1, 0) >= 0);
    close(before);
    close(log);
    return text;
}

static void where_large_packets_do_not_come_through_links_are_tcp(void **state)
{
    (void)state;
    struct rig rig;
    guest_shell("ip link set sw1 mtu 1500");
    rig_init(&rig, &with_tcp, 2);
    char *text = exchange_and_read_log(&rig);
    if (strstr(text, "not over RDMA: ") == NULL ||
        strstr(text, "no packets as large as the RDMA devices' (MTU)") == NULL) {
        fail_msg("\"%s\" does not speak of the MTU", text);
    }
    assert_int_equal(verbs_spy_pairs(), 0);
    free(text);
    rig_finish(&rig);
    guest_shell("ip link set sw1 mtu 4200");
    verbs_spy_expect_nothing_held();
}

/* Addresses -------------------------------------------------------------------------------------
 */

enum { GID_IPV4 = 1, GID_IPV6 = 2 }; /* in the order in which the interfaces get them */

/* With rules that send it over the wire, as the guest has them for IPv4. */
static void give_ipv6(uint32_t index)
{
    uint32_t table = 1000 + index;
    guest_shell("ip -6 addr add fd00::%u/64 dev eth%u nodad", index + 1, index);
    guest_shell("ip -6 rule add pref 10 iif eth%u lookup local", index);
    guest_shell("ip -6 rule add pref 20 from fd00::%u to fd00::/64 lookup %u", index + 1, table);
    guest_shell("ip -6 route add local fd00::%u dev eth%u table %u", index + 1, index, table);
    guest_shell("ip -6 route add fd00::/64 dev eth%u src fd00::%u table %u", index, index + 1,
                table);
    guest_shell(
        "for i in $(seq 600); do"
        " grep -qs ^fd00: /sys/class/infiniband/rxe%u/ports/1/gids/%d && exit 0;"
        " sleep 0.05; done; exit 1",
        index, GID_IPV6);
}

static void let_rank_1_have_ipv4(uint32_t rank, struct muster_fabric_options *options)
{
    take_turns(rank, options);
    if (options != NULL && rank == 1) {
        options->verbs.gid = GID_IPV4;
    }
}

static void addresses_of_ipv6_serve_and_do_not_mix(void **state)
{
    (void)state;
    struct rig_transport ipv6 = network;
    struct rig rig;
    give_ipv6(0);
    give_ipv6(1);
    guest_shell("ip -6 rule add pref 100 lookup local && ip -6 rule del pref 0");
    ipv6.verbs.gid = GID_IPV6;
    rig_flow_start(NULL);
    rig_init(&rig, &ipv6, 2);
    assert_non_null(strstr(rig.peers[0].addresses[0], "verbs://[fd00::1]:"));
    rig_flow_expect_moved(&rig);
    rig_finish(&rig);
    rig_flow_finish();

    ipv6.prepare = let_rank_1_have_ipv4;
    rig_init(&rig, &ipv6, 2);
    struct rig_tally tally = rig_send_unasked(&rig);
    assert_int_equal(tally.status, MUSTER_REJOIN);
    /* Who was called says why; the caller, that it was told so. */
    if (strstr(tally.reason, "MUSTER_VERBS_GID") == NULL &&
        strstr(tally.reason, "refused: not over RDMA") == NULL) {
        fail_msg("\"%s\" does not say why", tally.reason);
    }
    rig_finish(&rig);
    verbs_spy_expect_nothing_held();
}

int main(int count, char **arguments)
{
    (void)count;
    guest_enter(arguments[0]);
    verbs_spy_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cable_is_pulled_and_put_back),
        cmocka_unit_test(an_interface_goes_down_and_comes_back),
        cmocka_unit_test(a_device_that_is_gone_ends_its_links),
        cmocka_unit_test(a_port_that_went_down_meanwhile_is_noticed_and_tcp_serves),
        cmocka_unit_test(lost_packets_are_sent_again),
        cmocka_unit_test(the_smaller_mtu_counts),
        cmocka_unit_test(where_large_packets_do_not_come_through_links_are_tcp),
        cmocka_unit_test(addresses_of_ipv6_serve_and_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
