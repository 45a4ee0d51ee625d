/* The root of waits: the cases of the field, and every combination for up to three members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "elastic/verdicts/waits.h"

enum { COUNT = 4 };

static struct muster_wait_member members[COUNT];

/* All wait in a ring: each for the one before it. */
static int begin(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        members[i] = (struct muster_wait_member){.host = i / 2,
                                                 .answers = true,
                                                 .in_call = true,
                                                 .waits = true,
                                                 .waits_for = (i + COUNT - 1) % COUNT,
                                                 .progress = 10};
    }
    return 0;
}

static void expect_root(uint32_t first, enum muster_wait_kind kind, uint32_t member,
                        uint32_t waiter)
{
    struct muster_wait_root root = muster_waits_find_root(members, COUNT, first);
    assert_int_equal(root.kind, kind);
    assert_int_equal(root.member, member);
    assert_int_equal(root.waiter, waiter);
}

static void one_that_does_not_answer_is_frozen(void **state)
{
    (void)state;
    members[1] = (struct muster_wait_member){.host = 0};
    for (uint32_t first = 0; first < COUNT; first++) {
        if (first != 1) {
            expect_root(first, MUSTER_WAIT_FROZEN, 1, 2);
        }
    }
}

static void one_that_is_in_no_call_is_in_user_code(void **state)
{
    (void)state;
    members[3].in_call = false;
    members[3].waits = false;
    expect_root(2, MUSTER_WAIT_USER_CODE, 3, 0);
    expect_root(0, MUSTER_WAIT_USER_CODE, 3, 0);
}

static void one_whose_call_moves_is_slow(void **state)
{
    (void)state;
    members[3].waits = false;
    expect_root(1, MUSTER_WAIT_SLOW, 3, 0);
}

static void of_a_ring_in_which_all_wait_the_one_behind_is_slow(void **state)
{
    (void)state;
    members[2].progress = 9;
    expect_root(0, MUSTER_WAIT_SLOW, 2, 3);
}

/* In memory that a host shares it is not known for whom a member waits. */
static void a_wait_in_shared_memory_is_for_one_of_the_host(void **state)
{
    (void)state;
    members[0].waits = false;
    members[0].in_call = false;
    members[2].waits = false;
    members[2].in_call = false;
    members[1].waits_for = MUSTER_WAITS_NOBODY;
    expect_root(1, MUSTER_WAIT_USER_CODE, 0, 1);
    members[0].waits = true; /* and where all of its host wait, for one of another host */
    members[0].waits_for = MUSTER_WAITS_NOBODY;
    expect_root(1, MUSTER_WAIT_USER_CODE, 2, 1);
}

static void who_does_not_wait_has_no_root(void **state)
{
    (void)state;
    members[0].waits = false;
    assert_int_equal(muster_waits_find_root(members, COUNT, 0).kind, MUSTER_WAIT_NONE);
    begin(NULL);
    members[0].waits_for = MUSTER_WAITS_NOBODY;
    assert_int_equal(muster_waits_find_root(members, 1, 0).kind, MUSTER_WAIT_NONE);
}

static void many_that_are_silent_at_once_are_the_servers_fault(void **state)
{
    (void)state;
    assert_false(muster_waits_is_own_fault(1, 1));
    assert_false(muster_waits_is_own_fault(2, 2));
    assert_false(muster_waits_is_own_fault(2, 4));
    assert_true(muster_waits_is_own_fault(3, 4));
    assert_false(muster_waits_is_own_fault(3, 6));
    assert_true(muster_waits_is_own_fault(4, 6));
    assert_false(muster_waits_is_own_fault(64, 128));
}

/* Member of three: for whom it waits (3: not known), and its flags. */
static struct muster_wait_member draw(uint32_t number)
{
    return (struct muster_wait_member){
        .host = number % 2,
        .answers = (number >> 1 & 1U) != 0,
        .in_call = (number >> 2 & 1U) != 0,
        .waits = (number >> 3 & 1U) != 0,
        .waits_for = (number >> 4 & 3U) < 3 ? number >> 4 & 3U : MUSTER_WAITS_NOBODY,
        .progress = number >> 6 & 1U,
    };
}

/* Every root is one that does not wait or does not answer, unless all on the way wait; its kind
 * follows from its flags; and its waiter waits, and for it if it says for whom. */
static void every_combination_of_three_has_a_root_that_its_flags_explain(void **state)
{
    (void)state;
    enum { KINDS = 128 };
    struct muster_wait_member three[3];
    for (uint32_t number = 0; number < KINDS * KINDS * KINDS; number++) {
        for (uint32_t i = 0; i < 3; i++) {
            three[i] = draw(number / (i == 0 ? 1 : i == 1 ? KINDS : KINDS * KINDS) % KINDS);
        }
        struct muster_wait_root root = muster_waits_find_root(three, 3, 0);
        if (!three[0].answers || !three[0].waits) {
            assert_int_equal(root.kind, MUSTER_WAIT_NONE);
            continue;
        }
        const struct muster_wait_member *found = &three[root.member];
        const struct muster_wait_member *waiter = &three[root.waiter];
        assert_true(root.member < 3 && root.waiter < 3 && root.member != root.waiter);
        assert_true(waiter->answers && waiter->waits);
        assert_true(waiter->waits_for > 2 || waiter->waits_for == root.waiter ||
                    waiter->waits_for == root.member);
        if (!found->answers) {
            assert_int_equal(root.kind, MUSTER_WAIT_FROZEN);
        } else if (found->waits || found->in_call) {
            assert_int_equal(root.kind, MUSTER_WAIT_SLOW);
        } else {
            assert_int_equal(root.kind, MUSTER_WAIT_USER_CODE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_that_does_not_answer_is_frozen, begin),
        cmocka_unit_test_setup(one_that_is_in_no_call_is_in_user_code, begin),
        cmocka_unit_test_setup(one_whose_call_moves_is_slow, begin),
        cmocka_unit_test_setup(of_a_ring_in_which_all_wait_the_one_behind_is_slow, begin),
        cmocka_unit_test_setup(a_wait_in_shared_memory_is_for_one_of_the_host, begin),
        cmocka_unit_test_setup(who_does_not_wait_has_no_root, begin),
        cmocka_unit_test_setup(many_that_are_silent_at_once_are_the_servers_fault, begin),
        cmocka_unit_test_setup(every_combination_of_three_has_a_root_that_its_flags_explain, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
