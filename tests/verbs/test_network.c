/* Faults of the network between two RDMA devices of a guest: cables are pulled, interfaces go down,
 * packets are lost, or are too large for the way. */
#include "tests/conformance/fault_injector.h"
#include "tests/conformance/rig_flow.h"
#include "tests/support/guest.h"
#include "tests/support/sweep.h"
#include "tests/support/verbs_spy.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LOG_BYTES = 8192 };

/* What is logged ------------------------------------------------------------------------------- */

static int log_file, log_before = -1;

static void start_log(void)
{
    log_file = memfd_create("log", MFD_CLOEXEC);
    log_before = dup(STDERR_FILENO);
    assert_true(log_file >= 0 && log_before >= 0 && dup2(log_file, STDERR_FILENO) >= 0);
}

static void read_log(char ret_text[LOG_BYTES])
{
    ssize_t size = pread(log_file, ret_text, LOG_BYTES - 1, 0);
    ret_text[size > 0 ? size : 0] = '\0';
}

/* Returns after a while even if they never appear. */
static void await_in_log(const char *words)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    char text[LOG_BYTES] = "";
    while (strstr(text, words) == NULL && muster_clock_ns() < deadline_ns) {
        (void)sched_yield();
        read_log(text);
    }
}

static void finish_log(char ret_text[LOG_BYTES])
{
    read_log(ret_text);
    (void)dup2(log_before, STDERR_FILENO);
    close(log_before);
    close(log_file);
    log_before = -1;
    (void)fputs(ret_text, stderr);
}

/* The log before a test failed. */
static int show_log(void **state)
{
    char text[LOG_BYTES];
    (void)state;
    if (log_before >= 0) {
        finish_log(text);
    }
    return 0;
}

/* Links ---------------------------------------------------------------------------------------- */

static void take_turns(uint32_t rank, struct fabric_wish *wish)
{
    if (wish != NULL) {
        wish->options.verbs_device = rank % 2 == 0 ? "rxe0" : "rxe1";
    }
}

static const struct rig_transport network = {
    .name = "verbs between two devices", .transports = "verbs", .prepare = take_turns};
/* The loopback is not affected by these faults. */
static const struct rig_transport with_tcp = {
    .name = "verbs between two devices, else TCP", .options.verbs = 1, .prepare = take_turns};

/* A port goes down ----------------------------------------------------------------------------- */

/* This also ends the TCP connection of the link, which uses the guest's loopback. */
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

static void repair_device(void)
{
    verbs_spy_make_fatal(false);
    guest_plug(0, true);
}

static void fail_and_repair(void (*inject_fault)(void), const char *words, void (*repair)(void))
{
    struct rig rig;
    rig_flow_start(inject_fault);
    rig_init(&rig, &network, 2);
    rig_flow_expect_lost(&rig, words);
    repair();
    rig_flow_expect_recovered(&rig);
    assert_true(verbs_spy_pairs() > 0);
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

static void a_cable_is_pulled_and_put_back(void **state)
{
    (void)state;
    fail_and_repair(pull_cable, "RDMA device rxe", put_cable_back);
}

static void an_interface_goes_down_and_comes_back(void **state)
{
    (void)state;
    fail_and_repair(switch_off, "RDMA device rxe", switch_on);
}

static void a_device_that_is_gone_ends_its_links(void **state)
{
    (void)state;
    fail_and_repair(fail_device, "RDMA device rxe0: local catastrophic error", repair_device);
}

/* That of the receiver, which then returns credits for what it has received. */
static void unplug_receiver(void)
{
    guest_plug(0, false);
}

static void plug_receiver_in(void)
{
    guest_plug(0, true);
}

static void a_port_that_stays_down_ends_links_that_the_device_keeps(void **state)
{
    (void)state;
    verbs_spy_never_give_up(true);
    fail_and_repair(unplug_receiver,
                    "RDMA device rxe0: no acknowledgement, and its port 1 has been down for 8 s",
                    plug_receiver_in);
    verbs_spy_never_give_up(false);
}

static void a_port_that_went_down_is_noticed_and_tcp_is_used(void **state)
{
    (void)state;
    struct rig rig;
    rig_flow_start(NULL);
    rig_init(&rig, &with_tcp, 2);
    rig_run(&rig, rig_exchange, NULL);
    assert_true(verbs_spy_pairs() > 0);
    guest_plug(0, false);
    rig_flow.injected = true;
    rig_flow_expect_lost(&rig, "RDMA device rxe");
    rig_flow_expect_recovered(&rig);
    assert_int_equal(verbs_spy_pairs(), 0);
    guest_plug(0, true);
    rig_finish(&rig);
    rig_flow_finish();
    verbs_spy_expect_nothing_held();
}

/* Of several devices --------------------------------------------------------------------------- */

static void use_two_devices_each(uint32_t rank, struct fabric_wish *wish)
{
    if (wish != NULL) {
        wish->options.verbs_device = rank % 2 == 0 ? "rxe0,rxe1" : "rxe2,rxe3";
    }
}

/* One path goes between rxe0 and rxe2, one between rxe1 and rxe3. */
static const struct rig_transport two_each = {.name = "verbs, 2 paths between two devices each",
                                              .transports = "verbs",
                                              .prepare = use_two_devices_each};

/* NOLINTNEXTLINE(readability-non-const-parameter): other functions of this type change it */
static uint32_t pull_first_cable(uint32_t count, unsigned *seed)
{
    (void)count;
    (void)seed;
    guest_plug(0, false);
    return 1;
}

/* Waits until an attempt to open the path again has failed. */
static void put_first_cable_back(void)
{
    await_in_log("no further path over RDMA: RDMA device rxe0: its port 1 is");
    guest_plug(0, true);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): other functions of this type change it */
static uint32_t switch_last_off(uint32_t count, unsigned *seed)
{
    (void)count;
    (void)seed;
    guest_switch(3, false);
    return 1;
}

static void switch_last_on(void)
{
    await_in_log("no further path over RDMA: ");
    guest_switch(3, true);
}

static uint32_t count_words(const char *text, const char *words)
{
    uint32_t count = 0;
    while ((text = strstr(text, words)) != NULL) {
        text += strlen(words);
        count++;
    }
    return count;
}

/* The failed path is dialled again, which fails and is logged once by each end, and is opened when
 * it is possible. */
static void lose_one_and_go_on(uint32_t (*cut)(uint32_t count, unsigned *seed),
                               void (*repair)(void))
{
    char text[LOG_BYTES];
    start_log();
    fault_injector_run(&(struct fault_injection){
        .transport = &two_each, .connections = 2, .times = 1, .cut = cut, .repair = repair});
    finish_log(text);
    assert_in_range(count_words(text, "no further path over RDMA: "), 1, 2);
    verbs_spy_expect_nothing_held();
}

static void without_one_of_two_cables_the_link_goes_on_by_the_other(void **state)
{
    (void)state;
    lose_one_and_go_on(pull_first_cable, put_first_cable_back);
}

static void without_one_of_two_interfaces_the_link_goes_on_by_the_other(void **state)
{
    (void)state;
    lose_one_and_go_on(switch_last_off, switch_last_on);
}

/* Packets -------------------------------------------------------------------------------------- */

static void lost_packets_are_retransmitted(void **state)
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

static void where_large_packets_do_not_come_through_links_are_tcp(void **state)
{
    (void)state;
    struct rig rig;
    guest_shell("ip link set sw1 mtu 1500");
    rig_init(&rig, &with_tcp, 2);
    start_log();
    rig_run(&rig, rig_exchange, NULL);
    char text[LOG_BYTES];
    finish_log(text);
    if (strstr(text, "no link over RDMA: ") == NULL ||
        strstr(text, "no packets as large as the RDMA devices' (MTU)") == NULL) {
        fail_msg("\"%s\" does not speak of the MTU", text);
    }
    assert_int_equal(verbs_spy_pairs(), 0);
    rig_finish(&rig);
    guest_shell("ip link set sw1 mtu 4200");
    verbs_spy_expect_nothing_held();
}

/* Addresses ------------------------------------------------------------------------------------ */

/* In the order in which the interfaces get them. */
#define GID_IPV4 "1"
#define GID_IPV6 "2"

/* With rules that send packets over the cable, as the guest has them for IPv4. */
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
        " grep -qs ^fd00: /sys/class/infiniband/rxe%u/ports/1/gids/%s && exit 0;"
        " sleep 0.05; done; exit 1",
        index, GID_IPV6);
}

static void let_rank_1_have_ipv4(uint32_t rank, struct fabric_wish *wish)
{
    take_turns(rank, wish);
    if (wish != NULL && rank == 1) {
        wish->options.verbs_gid = GID_IPV4;
    }
}

static void ipv6_addresses_work_and_do_not_mix_with_ipv4(void **state)
{
    (void)state;
    struct rig_transport ipv6 = network;
    struct rig rig;
    give_ipv6(0);
    give_ipv6(1);
    guest_shell("ip -6 rule add pref 100 lookup local && ip -6 rule del pref 0");
    ipv6.options.verbs_gid = GID_IPV6;
    rig_flow_start(NULL);
    rig_init(&rig, &ipv6, 2);
    assert_non_null(strstr(rig.peers[0].addresses[0], "verbs://[fd00::1]:"));
    rig_flow_expect_moved(&rig);
    rig_finish(&rig);
    rig_flow_finish();

    ipv6.prepare = let_rank_1_have_ipv4;
    rig_init(&rig, &ipv6, 2);
    struct rig_counter counter = rig_send_unexpected(&rig);
    assert_int_equal(counter.status, MUSTER_REJOIN);
    /* The acceptor logs the reason; the dialler, that it was refused. */
    if (strstr(counter.reason, "MUSTER_VERBS_GID") == NULL &&
        strstr(counter.reason, "refused: not over RDMA") == NULL) {
        fail_msg("\"%s\" does not say why", counter.reason);
    }
    rig_finish(&rig);
    verbs_spy_expect_nothing_held();
}

int main(int count, char **arguments)
{
    (void)count;
    guest_enter(arguments[0], 4);
    verbs_spy_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cable_is_pulled_and_put_back),
        cmocka_unit_test(an_interface_goes_down_and_comes_back),
        cmocka_unit_test(a_device_that_is_gone_ends_its_links),
        cmocka_unit_test(a_port_that_stays_down_ends_links_that_the_device_keeps),
        cmocka_unit_test(a_port_that_went_down_is_noticed_and_tcp_is_used),
        cmocka_unit_test_teardown(without_one_of_two_cables_the_link_goes_on_by_the_other,
                                  show_log),
        cmocka_unit_test_teardown(without_one_of_two_interfaces_the_link_goes_on_by_the_other,
                                  show_log),
        cmocka_unit_test(lost_packets_are_retransmitted),
        cmocka_unit_test(the_smaller_mtu_counts),
        cmocka_unit_test_teardown(where_large_packets_do_not_come_through_links_are_tcp, show_log),
        cmocka_unit_test(ipv6_addresses_work_and_do_not_mix_with_ipv4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
