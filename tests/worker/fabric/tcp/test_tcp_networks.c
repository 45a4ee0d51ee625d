/* Hosts with several networks, some of which do not work: links open over one that does. */
#include "tests/conformance/rig.h"
#include "tests/support/network.h"
#include "worker/fabric/tcp/tcp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOSTS = 3 };

static int home;
static int hosts[HOSTS];

/* Where the members of this test listen: the same on all hosts, unless a test differs. */
static struct fabric_wish wanted[HOSTS];

static void be_at_host(uint32_t rank, struct fabric_wish *wish)
{
    test_host_enter(rank < HOSTS ? hosts[rank] : home);
    if (wish != NULL) {
        const char *listen = wanted[rank].options.listen;
        wish->options.listen = listen != NULL ? listen : "*";
        wish->options.interface = wanted[rank].options.interface;
        wish->fabric.first_address = wanted[rank].fabric.first_address;
        wish->silence_ms = wanted[rank].silence_ms;
    }
}

static const struct rig_transport tcp = {.name = "tcp", .transports = "tcp", .prepare = be_at_host};

/* Runs ip(8) on a host. */
#define AT(host, ...)                      \
    do {                                   \
        test_host_enter(hosts[host]);      \
        bool done_ = test_ip(__VA_ARGS__); \
        test_host_enter(home);             \
        assert_true(done_);                \
    } while (0)

/* A virtual cable between two hosts; its ends have the same name. */
static void wire(uint32_t from, uint32_t to, const char *name)
{
    AT(from, "link add %s type veth peer name %s netns /proc/self/fd/%d", name, name, hosts[to]);
    AT(from, "link set %s up", name);
    AT(to, "link set %s up", name);
}

static void give(uint32_t host, const char *address, const char *name)
{
    AT(host, "address add %s dev %s%s", address, name,
       strchr(address, ':') != NULL ? " nodad" : "");
}

static int make_hosts(void **state)
{
    (void)state;
    memset(wanted, 0, sizeof wanted);
    for (uint32_t i = 0; i < HOSTS; i++) {
        hosts[i] = test_host_make();
        assert_true(hosts[i] >= 0);
        test_host_enter(home);
    }
    return 0;
}

static int drop_hosts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HOSTS; i++) {
        close(hosts[i]);
    }
    return 0;
}

/* Two hosts with two cables: 10.1.0.0/24 and 10.2.0.0/24. */
static void lay_two_wires(void)
{
    wire(0, 1, "eth0");
    wire(0, 1, "eth1");
    give(0, "10.1.0.1/24", "eth0");
    give(1, "10.1.0.2/24", "eth0");
    give(0, "10.2.0.1/24", "eth1");
    give(1, "10.2.0.2/24", "eth1");
}

/* Rank 0 with all the others. */
static char *exchange_with_all(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    for (uint32_t peer = 1; rank == 0 && peer < rig->count; peer++) {
        char *error = rig_exchange_with(rig, 0, peer);
        if (error != NULL) {
            return error;
        }
    }
    return rank == 0 ? NULL : rig_exchange_with(rig, rank, 0);
}

/* The link's ends at rank 0 and at the peer begin with these. */
static void assert_carried(struct rig *rig, uint32_t peer, const char *network)
{
    uint32_t ends[] = {0, peer};
    for (uint32_t i = 0; i < 2; i++) {
        char there[MUSTER_ADDRESS_SIZE];
        const struct muster_link *link = rig->fabrics[ends[i]]->links[ends[1 - i]];
        const struct muster_tcp_link *end = link->end;
        assert_int_equal(link->state, MUSTER_LINK_OPEN);
        muster_address_print(&end->path->remote, there);
        if (strstr(there, network) == NULL) {
            fail_msg("%s does not lie in %s", there, network);
        }
        assert_int_equal(muster_fabric_figures(rig->fabrics[ends[i]]).links_lost, 0);
    }
}

static void links_come_up(uint32_t count, const char *const *networks)
{
    struct rig rig;
    rig_init(&rig, &tcp, count);
    rig_run(&rig, exchange_with_all, NULL);
    for (uint32_t peer = 1; peer < count; peer++) {
        assert_carried(&rig, peer, networks[peer - 1]);
    }
    rig_finish(&rig);
}

static void link_comes_up(const char *network)
{
    links_come_up(2, &network);
}

/* Tests -------------------------------------------------------------------------------------- */

static void a_network_that_drops_everything_is_gone_round(void **state)
{
    (void)state;
    lay_two_wires();
    /* To a hardware address that nobody has: connections hang. */
    AT(0, "neighbour add 10.1.0.2 lladdr 02:00:00:00:00:77 dev eth0 nud permanent");
    AT(1, "neighbour add 10.1.0.1 lladdr 02:00:00:00:00:77 dev eth0 nud permanent");
    link_comes_up("10.2.0.");
}

static void a_network_that_is_cut_is_gone_round(void **state)
{
    (void)state;
    struct rig rig;
    lay_two_wires();
    rig_init(&rig, &tcp, 2);
    AT(1, "link set eth0 down"); /* its address is already published */
    rig_run(&rig, exchange_with_all, NULL);
    assert_carried(&rig, 1, "10.2.0.");
    rig_finish(&rig);
}

static void the_same_bridge_on_both_hosts_is_passed_over(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        AT(i, "link add docker0 type bridge");
        AT(i, "link set docker0 up");
        give(i, "172.17.0.1/16", "docker0");
        wanted[i].options.listen = "*:7000"; /* so that each would reach itself */
        wanted[i].fabric.first_address = "172.17.0.1";
    }
    wire(0, 1, "eth0");
    give(0, "10.1.0.1/24", "eth0");
    give(1, "10.1.0.2/24", "eth0");
    link_comes_up("10.1.0.");
}

/* They claim to be on one host, so that their own addresses are dialled first. */
static void who_finds_itself_goes_on(void **state)
{
    (void)state;
    struct rig rig;
    the_same_bridge_on_both_hosts_is_passed_over(NULL);
    rig_init(&rig, &tcp, 2);
    (void)snprintf(rig.peers[1].host, sizeof rig.peers[1].host, "%s", rig.peers[0].host);
    rig_begin(&rig);
    rig_run(&rig, exchange_with_all, NULL);
    assert_carried(&rig, 1, "10.1.0.");
    assert_true(muster_fabric_figures(rig.fabrics[0]).connections_rejected +
                    muster_fabric_figures(rig.fabrics[1]).connections_rejected >
                0);
    rig_finish(&rig);
}

static void hosts_with_ipv6_only_are_linked(void **state)
{
    (void)state;
    wire(0, 1, "eth0");
    give(0, "fd00:1::1/64", "eth0");
    give(1, "fd00:1::2/64", "eth0");
    link_comes_up("[fd00:1::");
}

static void each_pair_has_a_family_in_common(void **state)
{
    (void)state;
    static const char *const networks[] = {"10.1.0.", "[fd00:2::"};
    wire(0, 1, "eth0");
    wire(0, 2, "eth1");
    give(0, "10.1.0.1/24", "eth0");
    give(1, "10.1.0.2/24", "eth0");
    give(0, "fd00:2::1/64", "eth1");
    give(2, "fd00:2::2/64", "eth1");
    links_come_up(3, networks);
}

static void interfaces_can_be_named(void **state)
{
    (void)state;
    static const struct {
        const char *interfaces, *network;
    } cases[] = {{"eth0", "10.1.0."},
                 {"eth1", "10.2.0."},
                 {"10.2.0.0/16", "10.2.0."},
                 {"^eth1", "10.1.0."},
                 {"^10.1.0.0/24", "10.2.0."}};
    lay_two_wires();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            wanted[k].options.interface = cases[i].interfaces;
        }
        link_comes_up(cases[i].network);
    }
}

static void ports_are_taken_from_the_range_at_every_address(void **state)
{
    (void)state;
    struct rig rig;
    lay_two_wires();
    close(hosts[2]);
    hosts[2] = dup(hosts[1]); /* a neighbour */
    for (uint32_t i = 0; i < HOSTS; i++) {
        wanted[i].options.listen = "*:7000-7001";
    }
    rig_init(&rig, &tcp, HOSTS);
    for (uint32_t i = 0; i < HOSTS; i++) {
        assert_int_equal(rig.peers[i].address_count, 2);
        for (uint32_t k = 0; k < 2; k++) {
            assert_string_equal(strrchr(rig.peers[i].addresses[k], ':'),
                                i == 2 ? ":7001" : ":7000");
        }
    }
    rig_run(&rig, exchange_with_all, NULL);
    rig_finish(&rig);
}

/* The peer's address has no route; the peer itself can dial. */
static void who_cannot_reach_the_peer_is_reached_by_it(void **state)
{
    (void)state;
    wire(0, 1, "eth0");
    give(0, "10.1.0.1/24", "eth0");
    give(1, "10.1.0.2/24", "eth0");
    AT(1, "link add eth1 type bridge");
    AT(1, "link set eth1 up");
    give(1, "10.9.0.2/24", "eth1");
    wanted[1].options.interface = "eth1";
    struct rig rig;
    int smaller[2] = {0, 0};
    while (smaller[0] == 0 || smaller[1] == 0) { /* whichever attempt counts when two cross */
        rig_init(&rig, &tcp, 2);
        smaller[strcmp(rig.peers[0].member, rig.peers[1].member) < 0 ? 0 : 1]++;
        rig_run(&rig, exchange_with_all, NULL);
        assert_carried(&rig, 1, "10.1.0.");
        rig_finish(&rig);
    }
}

/* A cable whose ends lose a link after this time without a sign of the other's kernel. */
static void lay_a_wire(uint32_t silence_ms)
{
    wire(0, 1, "eth0");
    give(0, "10.1.0.1/24", "eth0");
    give(1, "10.1.0.2/24", "eth0");
    wanted[0].silence_ms = silence_ms;
    wanted[1].silence_ms = silence_ms;
}

enum {
    MANY = 100,
    MANY_BYTES = 16000
}; /* together more than the kernel buffers for a receiver that does not read */

/* Rank 1 computes for four times as long as its kernel may be silent, while rank 0 sends much to
 * it. */
static char *send_to_who_computes(struct rig *rig, uint32_t rank, void *user)
{
    const struct timespec computes = {.tv_sec = 4};
    unsigned char *data = user;
    struct rig_counter counter = {.left = MANY};
    static struct muster_transfer transfers[2][MANY];
    char *error = rig_exchange_with(rig, rank, 1 - rank);
    if (error != NULL) {
        return error;
    }
    if (rank == 1) {
        (void)nanosleep(&computes, NULL);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        struct muster_transfer *each = &transfers[rank][i];
        *each = rank == 0 ? rig_send(rig, 1, 2 + i, data, MANY_BYTES)
                          : rig_receive(rig, 0, 2 + i, data + MANY_BYTES, MANY_BYTES);
        rig_post(rig, rank, &counter, each);
    }
    RIG_EXPECT(rig_wait(rig, rank, &counter) == MUSTER_OK);
    return NULL;
}

static void who_computes_for_long_and_has_no_room_keeps_its_link(void **state)
{
    (void)state;
    struct rig rig;
    unsigned char *data = test_calloc(2, MANY_BYTES);
    lay_a_wire(1000);
    rig_init(&rig, &tcp, 2);
    rig_run(&rig, send_to_who_computes, data);
    rig_finish(&rig);
    test_free(data);
}

static char *lose_the_other(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    static char bytes[2][2];
    struct rig_counter counter = {.left = 2};
    struct muster_transfer send = rig_send(rig, 1 - rank, 2, &bytes[rank][0], 1);
    struct muster_transfer receive = rig_receive(rig, 1 - rank, 2, &bytes[rank][1], 1);
    rig_post(rig, rank, &counter, &send);
    rig_post(rig, rank, &counter, &receive);
    muster_status status = rig_wait(rig, rank, &counter);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 2);
    RIG_EXPECT(status == MUSTER_REJOIN);
    RIG_EXPECT(strstr(counter.reason, "Connection timed out") != NULL);
    return NULL;
}

static void a_host_that_falls_silent_is_given_up(void **state)
{
    (void)state;
    struct rig rig;
    lay_a_wire(1000);
    rig_init(&rig, &tcp, 2);
    rig_run(&rig, rig_exchange, NULL);
    AT(0, "neighbour replace 10.1.0.2 lladdr 02:00:00:00:00:77 dev eth0 nud permanent");
    AT(1, "neighbour replace 10.1.0.1 lladdr 02:00:00:00:00:77 dev eth0 nud permanent");
    rig_run(&rig, lose_the_other, NULL);
    rig_finish(&rig);
}

int main(void)
{
    home = test_host_here();
    int host = test_host_make();
    if (host < 0) {
        (void)printf("SKIP: only root may make network namespaces, with ip of iproute2\n");
        return 77;
    }
    test_host_enter(home);
    close(host);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_network_that_drops_everything_is_gone_round, make_hosts,
                                        drop_hosts),
        cmocka_unit_test_setup_teardown(a_network_that_is_cut_is_gone_round, make_hosts,
                                        drop_hosts),
        cmocka_unit_test_setup_teardown(the_same_bridge_on_both_hosts_is_passed_over, make_hosts,
                                        drop_hosts),
        cmocka_unit_test_setup_teardown(who_finds_itself_goes_on, make_hosts, drop_hosts),
        cmocka_unit_test_setup_teardown(hosts_with_ipv6_only_are_linked, make_hosts, drop_hosts),
        cmocka_unit_test_setup_teardown(each_pair_has_a_family_in_common, make_hosts, drop_hosts),
        cmocka_unit_test_setup_teardown(interfaces_can_be_named, make_hosts, drop_hosts),
        cmocka_unit_test_setup_teardown(ports_are_taken_from_the_range_at_every_address, make_hosts,
                                        drop_hosts),
        cmocka_unit_test_setup_teardown(who_cannot_reach_the_peer_is_reached_by_it, make_hosts,
                                        drop_hosts),
        cmocka_unit_test_setup_teardown(who_computes_for_long_and_has_no_room_keeps_its_link,
                                        make_hosts, drop_hosts),
        cmocka_unit_test_setup_teardown(a_host_that_falls_silent_is_given_up, make_hosts,
                                        drop_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
