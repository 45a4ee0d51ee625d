/* Which addresses are published, and in which order a peer's are dialled. */
#include "worker/fabric/address/address_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A host ------------------------------------------------------------------------------------- */

static void add(struct muster_host_addresses *here, const char *interface, const char *address,
                uint32_t bits)
{
    struct muster_host_address *each = &here->all[here->count++];
    memset(each, 0, sizeof *each);
    (void)snprintf(each->interface, sizeof each->interface, "%s", interface);
    assert_int_equal(muster_address_parse_host(address, &each->address), MUSTER_OK);
    each->prefix_bits = bits;
    each->loopback = strcmp(interface, "lo") == 0;
    each->bridge = strncmp(interface, "docker", 6) == 0 || strncmp(interface, "br", 2) == 0;
}

/* As the kernel lists them: IPv4 of all interfaces, then IPv6. */
static void make_host(struct muster_host_addresses *here)
{
    here->count = 0;
    add(here, "lo", "127.0.0.1", 8);
    add(here, "docker0", "172.17.0.1", 16);
    add(here, "eth0", "192.168.1.5", 24);
    add(here, "eth1", "10.0.0.5", 8);
    add(here, "eth10", "10.1.0.5", 16);
    add(here, "usb0", "169.254.3.4", 16);
    add(here, "lo", "::1", 128);
    add(here, "eth0", "fe80::5%1", 64);
    add(here, "eth0", "fd00::5", 64);
}

static void say(const struct muster_host_addresses *here, const uint32_t *chosen, uint32_t count,
                char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        char text[MUSTER_ADDRESS_SIZE];
        muster_address_print(&here->all[chosen[i]].address, text);
        const char *begin = text + strlen("tcp://");
        used += (size_t)snprintf(ret_text + used, size - used, "%s%.*s", i == 0 ? "" : " ",
                                 (int)(strrchr(begin, ':') - begin), begin);
    }
}

/* Publishing --------------------------------------------------------------------------------- */

struct publication {
    const char *interfaces, *first, *expected;
};

static void the_listed_addresses_are_published_best_first(void **state)
{
    (void)state;
    static const struct publication cases[] = {
        {NULL, NULL, "192.168.1.5 10.0.0.5 10.1.0.5 [fd00::5] 172.17.0.1 169.254.3.4"},
        {NULL, "10.0.0.5", "10.0.0.5 192.168.1.5 10.1.0.5 [fd00::5] 172.17.0.1 169.254.3.4"},
        {NULL, "172.17.0.1", "172.17.0.1 192.168.1.5 10.0.0.5 10.1.0.5 [fd00::5] 169.254.3.4"},
        {NULL, "8.8.8.8", "192.168.1.5 10.0.0.5 10.1.0.5 [fd00::5] 172.17.0.1 169.254.3.4"},
        {"eth0", NULL, "192.168.1.5 [fd00::5]"},
        {"eth0", "10.0.0.5", "192.168.1.5 [fd00::5]"},
        {"eth1", NULL, "10.0.0.5"}, /* an interface of this name: not eth10 */
        {"=eth1", NULL, "10.0.0.5"},
        {"eth", NULL, "192.168.1.5 10.0.0.5 10.1.0.5 [fd00::5]"},
        {"eth1,eth0", NULL, "192.168.1.5 10.0.0.5 [fd00::5]"},
        {"ib0,eth1", NULL, "10.0.0.5"},
        {"lo", NULL, "127.0.0.1 [::1]"},
        {"lo,eth1", NULL, "10.0.0.5 127.0.0.1 [::1]"},
        {"127.0.0.0/8", NULL, "127.0.0.1"},
        {"10.0.0.0/8", NULL, "10.0.0.5 10.1.0.5"},
        {"10.0.0.0/16", NULL, "10.0.0.5"},
        {"10.0.0.5", NULL, "10.0.0.5"},
        {"10.0.0.0/15,fd00::/8", NULL, "10.0.0.5 10.1.0.5 [fd00::5]"},
        {"0.0.0.0/0", NULL, "192.168.1.5 10.0.0.5 10.1.0.5 172.17.0.1 169.254.3.4 127.0.0.1"},
        {"::/0", NULL, "[fd00::5] [::1]"},
        {"^docker0", NULL, "192.168.1.5 10.0.0.5 10.1.0.5 [fd00::5] 169.254.3.4"},
        {"^docker,usb,10.0.0.0/8", NULL, "192.168.1.5 [fd00::5]"},
        {"^docker,usb,eth", NULL, "127.0.0.1 [::1]"}, /* nothing else is left */
        {"^=eth1", NULL, "192.168.1.5 10.1.0.5 [fd00::5] 172.17.0.1 169.254.3.4"},
    };
    static struct muster_host_addresses here;
    make_host(&here);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t chosen[16];
        uint32_t count = 0;
        char text[512];
        assert_int_equal(muster_addresses_choose(&here, cases[i].interfaces,
                                                 cases[i].first != NULL ? cases[i].first : "", 16,
                                                 chosen, &count),
                         MUSTER_OK);
        say(&here, chosen, count, text, sizeof text);
        assert_string_equal(text, cases[i].expected);
    }
}

static void no_more_is_published_than_is_asked_for(void **state)
{
    (void)state;
    static struct muster_host_addresses here;
    make_host(&here);
    for (uint32_t most = 1; most <= 6; most++) {
        uint32_t chosen[6];
        uint32_t count = 0;
        assert_int_equal(muster_addresses_choose(&here, NULL, "fd00::5", most, chosen, &count),
                         MUSTER_OK);
        assert_int_equal(count, most);
        assert_int_equal(chosen[0], 8);
    }
}

static void a_host_that_has_only_loopback_publishes_that(void **state)
{
    (void)state;
    struct muster_host_addresses *here = test_calloc(1, sizeof *here);
    uint32_t chosen[4];
    uint32_t count = 0;
    add(here, "lo", "127.0.0.1", 8);
    add(here, "eth0", "fe80::5%1", 64);
    assert_int_equal(muster_addresses_choose(here, NULL, "", 4, chosen, &count), MUSTER_OK);
    assert_int_equal(count, 1);
    assert_int_equal(chosen[0], 0);
    test_free(here);
}

static void a_list_that_matches_nothing_is_answered_with_all_addresses(void **state)
{
    (void)state;
    static struct muster_host_addresses here;
    static const char *const cases[] = {"ib0", "11.0.0.0/8", "fe80::/10", "^lo,docker,eth,usb",
                                        "=eth"};
    make_host(&here);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t chosen[4];
        uint32_t count = 77;
        assert_int_equal(muster_addresses_choose(&here, cases[i], "", 4, chosen, &count),
                         MUSTER_INVALID);
        assert_int_equal(count, 77);
        assert_non_null(strstr(muster_last_error(), cases[i]));
        assert_non_null(strstr(muster_last_error(), "docker0 172.17.0.1, eth0 192.168.1.5"));
        assert_null(strchr(muster_last_error(), '\n'));
    }
    here.count = 0;
    uint32_t chosen[4];
    uint32_t count = 0;
    assert_int_equal(muster_addresses_choose(&here, NULL, "", 4, chosen, &count), MUSTER_INVALID);
}

static void an_invalid_list_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "^",           "eth0,",       ",eth0",       "eth0,,eth1",
        "eth0,^lo",   "10.0.0.0/33", "fd00::/129",  "10.0.0.0/",   "10.0.0.0/x",
        "eth0/24",    "=",           "10.0.0.0/-1", "10.0.0.0/8x", "an-interface-name-that-is-long",
        "10.0.0.0/+8"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(muster_interfaces_check(bad[i]), MUSTER_INVALID);
    }
    char text[MUSTER_INTERFACES_SIZE + 1];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = i % 2 == 0 ? 'a' : ',';
    }
    text[MUSTER_INTERFACES_SIZE] = '\0';
    assert_int_equal(muster_interfaces_check(text), MUSTER_INVALID);
    text[MUSTER_INTERFACES_SIZE - 1] = '\0';
    assert_int_equal(muster_interfaces_check(text), MUSTER_OK);
    assert_int_equal(muster_interfaces_check("10.0.0.0/33"), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "network \"10.0.0.0/33\": 0 to 32 bits"));
}

/* Dialling ----------------------------------------------------------------------------------- */

/* Addresses of the peer, with their distance from the host above: if the peer is on another host,
 * and if it says that it is on the same one. */
static const struct {
    const char *address;
    int other, same;
    bool six;
} pool[] = {
    {"tcp://10.7.7.7:1", 1, 1, false},     /* eth1's network */
    {"tcp://192.168.1.9:1", 1, 1, false},  /* eth0's */
    {"tcp://[fd00::9]:1", 1, 1, true},     /* eth0's */
    {"tcp://172.17.0.9:1", 1, 1, false},   /* the bridge's: may be the peer's own bridge */
    {"tcp://8.8.8.8:1", 2, 2, false},      /* behind a router */
    {"tcp://[2001:db8::1]:1", 2, 2, true}, /* likewise */
    {"tcp://172.17.0.1:1", 5, 0, false},   /* this host's own */
    {"tcp://127.0.0.1:1", 5, 0, false},    /* likewise */
    {"tcp://[::1]:1", 5, 0, true},         /* likewise */
    {"tcp://nonsense", 6, 6, true},        /* cannot be read */
    {"shm://a/b/c", -1, -1, false},        /* not TCP */
};
enum { POOL = sizeof pool / sizeof pool[0] };

static uint32_t count_left(const uint32_t *order, uint32_t from, uint32_t to,
                           const uint32_t *members, bool same, int near, bool six)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++) {
        uint32_t k = members[order[i]];
        count += (same ? pool[k].same : pool[k].other) == near && pool[k].six == six;
    }
    return count;
}

/* Each TCP address once, by distance; families take turns as long as there are two; those of one
 * family stay in the peer's order. */
static void check_order(const struct muster_peer *peer, const uint32_t *members, bool same,
                        const uint32_t *order, uint32_t count)
{
    bool seen[MUSTER_ADDRESSES_MAX] = {false};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = members[order[i]];
        int near = same ? pool[k].same : pool[k].other;
        assert_true(order[i] < peer->address_count && near >= 0 && !seen[order[i]]);
        seen[order[i]] = true;
        if (i == 0) {
            continue;
        }
        uint32_t last = members[order[i - 1]];
        int before = same ? pool[last].same : pool[last].other;
        assert_true(before <= near);
        if (before == near && pool[last].six == pool[k].six) {
            assert_true(order[i - 1] < order[i]);
            assert_int_equal(count_left(order, i, count, members, same, near, !pool[k].six), 0);
        }
    }
}

static void order_is_checked(const struct muster_host_addresses *here, uint32_t subset, bool turned)
{
    struct muster_peer peer = {.address_count = 0};
    uint32_t members[MUSTER_ADDRESSES_MAX];
    uint32_t tcp = 0;
    for (uint32_t i = 0; i < POOL; i++) {
        uint32_t k = turned ? POOL - 1 - i : i;
        if ((subset >> k & 1) != 0) {
            members[peer.address_count] = k;
            (void)snprintf(peer.addresses[peer.address_count++], MUSTER_ADDRESS_SIZE, "%s",
                           pool[k].address);
            tcp += pool[k].other >= 0;
        }
    }
    for (int same = 0; same < 2; same++) {
        uint32_t order[MUSTER_ADDRESSES_MAX];
        uint32_t count = muster_addresses_order(here, &peer, same, order);
        assert_int_equal(count, tcp);
        check_order(&peer, members, same, order, count);
    }
}

static void every_set_of_addresses_is_dialled_in_order(void **state)
{
    (void)state;
    static struct muster_host_addresses here;
    make_host(&here);
    for (uint32_t subset = 0; subset < UINT32_C(1) << POOL; subset++) {
        order_is_checked(&here, subset, false);
        order_is_checked(&here, subset, true);
    }
}

static void order_of(const struct muster_host_addresses *here, const char *const *addresses,
                     uint32_t count, char *ret_text)
{
    struct muster_peer peer = {.address_count = count};
    uint32_t order[MUSTER_ADDRESSES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(peer.addresses[i], MUSTER_ADDRESS_SIZE, "%s", addresses[i]);
    }
    uint32_t ordered = muster_addresses_order(here, &peer, false, order);
    for (uint32_t i = 0; i < ordered; i++) {
        ret_text[i] = (char)('0' + order[i]);
    }
    ret_text[ordered] = '\0';
}

static void a_family_without_an_address_here_is_dialled_last(void **state)
{
    (void)state;
    static const char *const addresses[] = {"tcp://[2001:db8::1]:1", "tcp://8.8.8.8:1",
                                            "tcp://9.9.9.9:1", "tcp://[2001:db8::2]:1"};
    char text[8];
    struct muster_host_addresses *here = test_calloc(1, sizeof *here);
    add(here, "eth0", "10.0.0.1", 24);
    add(here, "eth0", "fe80::1%1", 64);
    order_of(here, addresses, 4, text);
    assert_string_equal(text, "1203");
    add(here, "eth0", "2001:db8:1::1", 64);
    order_of(here, addresses, 4, text);
    assert_string_equal(text, "0132");
    here->count = 0;
    order_of(here, addresses, 4, text);
    assert_string_equal(text, "0132");
    test_free(here);
}

static void networks_end_at_any_bit(void **state)
{
    (void)state;
    static const char *const addresses[] = {"tcp://10.0.0.128:1", "tcp://10.0.0.127:1"};
    struct muster_host_addresses *here = test_calloc(1, sizeof *here);
    for (uint32_t bits = 0; bits <= 32; bits++) {
        char text[8];
        here->count = 0;
        add(here, "eth0", "10.0.0.1", bits);
        order_of(here, addresses, 2, text);
        /* 10.0.0.127 shares 25 bits with 10.0.0.1, 10.0.0.128 only 24. */
        assert_string_equal(text, bits == 25 ? "10" : "01");
    }
    test_free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_listed_addresses_are_published_best_first),
        cmocka_unit_test(no_more_is_published_than_is_asked_for),
        cmocka_unit_test(a_host_that_has_only_loopback_publishes_that),
        cmocka_unit_test(a_list_that_matches_nothing_is_answered_with_all_addresses),
        cmocka_unit_test(an_invalid_list_is_refused),
        cmocka_unit_test(every_set_of_addresses_is_dialled_in_order),
        cmocka_unit_test(a_family_without_an_address_here_is_dialled_last),
        cmocka_unit_test(networks_end_at_any_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
