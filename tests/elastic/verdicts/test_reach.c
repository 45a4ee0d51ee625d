/* Who goes, of members that cannot reach each other: the cases of the field, and all pairs of three
 * hosts of two members each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "elastic/verdicts/reach.h"

enum { HOSTS = 4, LOCAL = 2, COUNT = HOSTS * LOCAL };

static struct muster_reach_member members[COUNT];
static struct muster_reach_pair pairs[MUSTER_REACH_PAIRS_MAX];
static uint32_t pair_count;
static bool out[COUNT];

static int begin(void **state)
{
    (void)state;
    pair_count = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        members[i] =
            (struct muster_reach_member){.host = i / LOCAL, .answers = true, .newest = i == 0};
    }
    return 0;
}

static void add_pair(uint32_t from, uint32_t to)
{
    pairs[pair_count++] = (struct muster_reach_pair){from, to};
}

/* These hosts go, as a set of bits, and no others. */
static void expect_out(uint32_t count, unsigned hosts)
{
    muster_reach_decide(members, count, pairs, pair_count, out);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(out[i], hosts >> members[i].host & 1U);
    }
}

static void without_pairs_nobody_goes(void **state)
{
    (void)state;
    expect_out(COUNT, 0);
}

static void of_two_hosts_that_are_cut_from_each_other_one_goes(void **state)
{
    (void)state;
    add_pair(2, 4); /* hosts 1 and 2; 0 and 3 reach both */
    add_pair(4, 2);
    muster_reach_decide(members, COUNT, pairs, pair_count, out);
    assert_true(out[2] != out[4]);
    assert_true(out[2] == out[3] && out[4] == out[5]);
    assert_false(out[0] || out[1] || out[6] || out[7]);
}

static void the_host_with_fewer_members_goes(void **state)
{
    (void)state;
    add_pair(3, 6);
    expect_out(COUNT - 1, 1U << 3); /* the last host has one member only */
}

static void of_equal_hosts_the_one_with_the_newest_state_stays(void **state)
{
    (void)state;
    add_pair(0, 2);
    expect_out(4, 1U << 1);
}

static void a_dead_card_of_rank_0_s_host_costs_that_host(void **state)
{
    (void)state;
    add_pair(0, 2); /* its neighbours in a ring, and a witness */
    add_pair(7, 1);
    add_pair(4, 0);
    expect_out(COUNT, 1U << 0);
}

static void a_host_that_does_not_answer_the_service_goes_before_one_that_does(void **state)
{
    (void)state;
    members[0].answers = false;
    members[1].answers = false;
    add_pair(2, 0);
    expect_out(4, 1U << 0);
    members[0].answers = true; /* one of the two does: the other host has more that do */
    expect_out(4, 1U << 0);
}

static void two_dead_cards_cost_two_hosts(void **state)
{
    (void)state;
    add_pair(0, 2);
    add_pair(0, 4);
    add_pair(6, 2);
    add_pair(6, 5);
    add_pair(2, 4);
    expect_out(COUNT, 1U << 1 | 1U << 2);
}

/* Whatever the pairs of three hosts: none is left, and nobody goes whose return would leave none.
 */
static void after_every_set_of_pairs_all_who_stay_reach_each_other(void **state)
{
    (void)state;
    enum { SMALL = 6 };
    struct muster_reach_pair all[SMALL * SMALL];
    uint32_t possible = 0;
    for (uint32_t a = 0; a < SMALL; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (a / LOCAL != b / LOCAL) {
                all[possible++] = (struct muster_reach_pair){a, b};
            }
        }
    }
    for (uint32_t mask = 0; mask < 1U << possible; mask++) {
        bool cut[3][3] = {{false}};
        bool gone[3];
        pair_count = 0;
        for (uint32_t i = 0; i < possible; i++) {
            if ((mask >> i & 1U) != 0) {
                add_pair(all[i].from, all[i].to);
                cut[all[i].from / LOCAL][all[i].to / LOCAL] = true;
                cut[all[i].to / LOCAL][all[i].from / LOCAL] = true;
            }
        }
        muster_reach_decide(members, SMALL, pairs, pair_count, out);
        for (uint32_t host = 0; host < 3; host++) {
            assert_int_equal(out[host * LOCAL], out[host * LOCAL + 1]);
            gone[host] = out[host * LOCAL];
        }
        for (uint32_t a = 0; a < 3; a++) {
            bool needed = false;
            for (uint32_t b = 0; b < 3; b++) {
                assert_true(!cut[a][b] || gone[a] || gone[b]);
                needed = needed || (cut[a][b] && !gone[b]);
            }
            assert_true(!gone[a] || needed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_pairs_nobody_goes, begin),
        cmocka_unit_test_setup(of_two_hosts_that_are_cut_from_each_other_one_goes, begin),
        cmocka_unit_test_setup(the_host_with_fewer_members_goes, begin),
        cmocka_unit_test_setup(of_equal_hosts_the_one_with_the_newest_state_stays, begin),
        cmocka_unit_test_setup(a_dead_card_of_rank_0_s_host_costs_that_host, begin),
        cmocka_unit_test_setup(a_host_that_does_not_answer_the_service_goes_before_one_that_does,
                               begin),
        cmocka_unit_test_setup(two_dead_cards_cost_two_hosts, begin),
        cmocka_unit_test_setup(after_every_set_of_pairs_all_who_stay_reach_each_other, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
