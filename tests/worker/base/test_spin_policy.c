/* How long who waits looks before it sleeps: by quota, by who else is on the core, by what giving
 * way has cost. */
#include "tests/support/schedules.h"
#include "worker/base/spin_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    QUICK_NS = 300,
    SHARED_NS = 20 * 1000,
    SLICE_NS = 3 * 1000 * 1000,
    CORE = 1000,
    CORES = 8,
    RUNS = 300,
    TURNS_MAX = 20000
};

static struct muster_spin_policy begin(uint32_t members_here, uint64_t quota_millis)
{
    struct muster_spin_policy spin_policy;
    const struct muster_spin_policy_place place = {
        .members_here = members_here, .cores = CORES, .quota_millis = quota_millis};
    muster_spin_policy_begin(&spin_policy, &place);
    return spin_policy;
}

static uint32_t count_rests(struct muster_spin_policy *spin_policy)
{
    uint32_t rests = 0;
    while (!muster_spin_policy_looks(spin_policy)) {
        rests++;
        assert_true(rests <= MUSTER_SPIN_POLICY_REST_MAX);
    }
    return rests;
}

static void without_a_quota_everybody_looks(void **state)
{
    (void)state;
    for (uint32_t members = 0; members < 1000; members = 2 * members + 1) {
        struct muster_spin_policy spin_policy = begin(members, UINT64_MAX);
        assert_true(muster_spin_policy_looks(&spin_policy));
    }
}

static void nobody_looks_on_a_quota_that_pays_for_less_than_the_members(void **state)
{
    (void)state;
    static const struct {
        uint64_t millis;
        uint32_t members;
        bool looks;
    } cases[] = {
        {0, 1, false},        {CORE, 1, false},     {2 * CORE - 1, 1, false}, {2 * CORE, 1, true},
        {2 * CORE, 2, true},  {2 * CORE, 3, false}, {3 * CORE - 1, 3, false}, {3 * CORE, 3, true},
        {7 * CORE, 8, false}, {CORE, 0, false},     {UINT64_MAX - 1, 8, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct muster_spin_policy spin_policy = begin(cases[i].members, cases[i].millis);
        assert_int_equal(muster_spin_policy_looks(&spin_policy), cases[i].looks);
    }
}

static void who_shares_a_core_gives_way_after_each_look(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(4, UINT64_MAX);
    assert_int_equal(spin_policy.looks, MUSTER_SPIN_POLICY_LOOKS_MAX);
    muster_spin_policy_gave_way(&spin_policy, SHARED_NS);
    assert_int_equal(spin_policy.looks, 1);
    assert_true(muster_spin_policy_looks(&spin_policy));
}

static void who_finds_itself_alone_looks_more_often_again(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(4, UINT64_MAX);
    muster_spin_policy_gave_way(&spin_policy, SHARED_NS);
    for (int i = 0; i < 2 * MUSTER_SPIN_POLICY_LOOKS_MAX; i++) {
        uint32_t before = spin_policy.looks;
        muster_spin_policy_gave_way(&spin_policy, QUICK_NS);
        assert_true(spin_policy.looks >= before &&
                    spin_policy.looks <= MUSTER_SPIN_POLICY_LOOKS_MAX);
    }
    assert_int_equal(spin_policy.looks, MUSTER_SPIN_POLICY_LOOKS_MAX);
}

static void who_finds_itself_alone_gives_way_less_often(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(2, UINT64_MAX);
    assert_int_equal(spin_policy.pause_ns, 0);
    for (int i = 1; i < 1000; i++) {
        int64_t before_ns = spin_policy.pause_ns;
        muster_spin_policy_gave_way(&spin_policy, QUICK_NS);
        assert_true(spin_policy.pause_ns >= before_ns &&
                    spin_policy.pause_ns <= MUSTER_SPIN_POLICY_PAUSE_MAX_NS);
    }
    assert_int_equal(spin_policy.pause_ns, MUSTER_SPIN_POLICY_PAUSE_MAX_NS);
    muster_spin_policy_gave_way(&spin_policy, SHARED_NS);
    assert_int_equal(spin_policy.pause_ns, 0);
}

static void where_there_are_more_members_than_cores_all_go_on_giving_way(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(CORES + 1, UINT64_MAX);
    for (int i = 0; i < 1000; i++) {
        muster_spin_policy_gave_way(&spin_policy, QUICK_NS);
        assert_int_equal(spin_policy.pause_ns, 0);
    }
}

/* Until it sleeps or moves, as all do at the same core. */
static uint32_t count_shared(struct muster_spin_policy *spin_policy, bool *ret_moves,
                             uint32_t *ret_place)
{
    for (uint32_t times = 1;; times++) {
        muster_spin_policy_gave_way(spin_policy, SHARED_NS);
        assert_true(times <= MUSTER_SPIN_POLICY_SHARED_MAX);
        if (muster_spin_policy_looks(spin_policy)) {
            *ret_moves = muster_spin_policy_moves(spin_policy, ret_place);
            if (*ret_moves) {
                return times;
            }
            continue;
        }
        *ret_moves = false;
        assert_int_equal(count_rests(spin_policy), 0);
        return times;
    }
}

static void who_waits_for_a_device_looks_for_longer_unless_cores_are_few(void **state)
{
    (void)state;
    struct muster_spin_policy_place place = {
        .members_here = 2, .cores = 2, .has_device = true, .quota_millis = UINT64_MAX};
    struct muster_spin_policy spin_policy;
    muster_spin_policy_begin(&spin_policy, &place);
    assert_int_equal(spin_policy.look_ns, MUSTER_SPIN_POLICY_DEVICE_NS);
    place.members_here = 3;
    muster_spin_policy_begin(&spin_policy, &place);
    assert_int_equal(spin_policy.look_ns, MUSTER_SPIN_POLICY_NS);
    place = (struct muster_spin_policy_place){
        .members_here = 2, .cores = 2, .quota_millis = UINT64_MAX};
    muster_spin_policy_begin(&spin_policy, &place);
    assert_int_equal(spin_policy.look_ns, MUSTER_SPIN_POLICY_NS);
}

static void who_shares_a_core_for_long_sleeps_once_then_moves(void **state)
{
    (void)state;
    const struct muster_spin_policy_place place = {
        .members_here = 4, .index = 3, .cores = 4, .quota_millis = UINT64_MAX};
    struct muster_spin_policy spin_policy;
    muster_spin_policy_begin(&spin_policy, &place);
    uint32_t expected = MUSTER_SPIN_POLICY_SHARED_MIN;
    for (uint32_t i = 0; i < 20; i++) {
        bool moves;
        uint32_t to = UINT32_MAX;
        assert_int_equal(count_shared(&spin_policy, &moves, &to), expected);
        assert_int_equal(moves, i % 2);
        assert_int_equal(to, moves ? place.index : UINT32_MAX);
        expected = moves && expected < MUSTER_SPIN_POLICY_SHARED_MAX ? 2 * expected : expected;
    }
    assert_int_equal(expected, MUSTER_SPIN_POLICY_SHARED_MAX);
}

static void where_there_are_more_members_than_cores_nobody_moves(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(CORES + 1, UINT64_MAX);
    for (int i = 0; i < 10; i++) {
        bool moves;
        uint32_t to;
        assert_int_equal(count_shared(&spin_policy, &moves, &to), MUSTER_SPIN_POLICY_SHARED_MAX);
        assert_false(moves);
    }
}

/* Members on some cores; whoever gives way finds out whether another is on its own. Sleeping is in
 * vain here. */
static bool all_are_apart(const uint32_t *core_of, uint32_t members)
{
    for (uint32_t i = 0; i < members; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (core_of[i] == core_of[j]) {
                return false;
            }
        }
    }
    return true;
}

static void give_way(struct muster_spin_policy *spin_policy, uint32_t *core_of, uint32_t members,
                     uint32_t self)
{
    uint32_t on_its_core = 0;
    uint32_t place;
    for (uint32_t i = 0; i < members; i++) {
        on_its_core += core_of[i] == core_of[self];
    }
    if (muster_spin_policy_looks(spin_policy)) {
        if (muster_spin_policy_moves(spin_policy, &place)) {
            core_of[self] = place % CORES;
        }
        muster_spin_policy_gave_way(spin_policy, on_its_core > 1 ? SHARED_NS : QUICK_NS);
    }
}

/* One after the other, or in any order. */
static void come_apart(bool in_turn)
{
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct muster_spin_policy spin_policy[CORES];
        uint32_t core_of[CORES];
        uint32_t members = 2 + test_random_below(&random, CORES - 1);
        for (uint32_t i = 0; i < members; i++) {
            const struct muster_spin_policy_place place = {
                .members_here = members, .index = i, .cores = CORES, .quota_millis = UINT64_MAX};
            muster_spin_policy_begin(&spin_policy[i], &place);
            core_of[i] = test_random_below(&random, CORES);
            spin_policy[i].slept = test_random_below(&random, 3); /* they may have met before */
        }
        uint32_t turns = 0;
        while (!all_are_apart(core_of, members)) {
            uint32_t self = in_turn ? turns % members : test_random_below(&random, members);
            give_way(&spin_policy[self], core_of, members, self);
            assert_true(turns++ < TURNS_MAX);
        }
    }
}

static void members_that_move_come_apart(void **state)
{
    (void)state;
    come_apart(false);
}

static void members_that_move_at_the_same_time_come_apart(void **state)
{
    (void)state;
    come_apart(true);
}

static void a_slice_that_was_lost_to_other_work_is_followed_by_sleeps(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(2, UINT64_MAX);
    muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
    assert_int_equal(count_rests(&spin_policy), MUSTER_SPIN_POLICY_REST_MIN);
    assert_true(muster_spin_policy_looks(&spin_policy)); /* then it tries again */
}

static void rests_grow_with_each_slice_and_are_bounded(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(2, UINT64_MAX);
    uint32_t expected = MUSTER_SPIN_POLICY_REST_MIN;
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
        assert_int_equal(count_rests(&spin_policy), expected);
        expected = expected < MUSTER_SPIN_POLICY_REST_MAX ? 2 * expected : expected;
    }
    assert_int_equal(expected, MUSTER_SPIN_POLICY_REST_MAX);
}

static void looking_that_helps_shortens_the_next_rest(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
    }
    for (int i = 0; i < 2 * MUSTER_SPIN_POLICY_REST_MAX; i++) {
        muster_spin_policy_found(&spin_policy);
    }
    (void)count_rests(&spin_policy);
    muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
    assert_int_equal(count_rests(&spin_policy), MUSTER_SPIN_POLICY_REST_MIN);
}

/* Rests that were shortened are no power of two any more. */
static void rests_that_were_shortened_stay_bounded_when_they_grow(void **state)
{
    (void)state;
    struct muster_spin_policy spin_policy = begin(2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
        muster_spin_policy_found(&spin_policy);
        (void)count_rests(&spin_policy);
        muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
        assert_true(count_rests(&spin_policy) <= MUSTER_SPIN_POLICY_REST_MAX);
    }
    muster_spin_policy_gave_way(&spin_policy, SLICE_NS);
    assert_int_equal(count_rests(&spin_policy), MUSTER_SPIN_POLICY_REST_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_quota_everybody_looks),
        cmocka_unit_test(nobody_looks_on_a_quota_that_pays_for_less_than_the_members),
        cmocka_unit_test(who_shares_a_core_gives_way_after_each_look),
        cmocka_unit_test(who_finds_itself_alone_looks_more_often_again),
        cmocka_unit_test(who_finds_itself_alone_gives_way_less_often),
        cmocka_unit_test(where_there_are_more_members_than_cores_all_go_on_giving_way),
        cmocka_unit_test(who_waits_for_a_device_looks_for_longer_unless_cores_are_few),
        cmocka_unit_test(who_shares_a_core_for_long_sleeps_once_then_moves),
        cmocka_unit_test(where_there_are_more_members_than_cores_nobody_moves),
        cmocka_unit_test(members_that_move_come_apart),
        cmocka_unit_test(members_that_move_at_the_same_time_come_apart),
        cmocka_unit_test(a_slice_that_was_lost_to_other_work_is_followed_by_sleeps),
        cmocka_unit_test(rests_grow_with_each_slice_and_are_bounded),
        cmocka_unit_test(rests_that_were_shortened_stay_bounded_when_they_grow),
        cmocka_unit_test(looking_that_helps_shortens_the_next_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
