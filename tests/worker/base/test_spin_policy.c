/* How long a thread that waits polls before it sleeps: by quota, by who else runs on its core, and
 * by what its yields have cost. Each test runs with the parameters of each user of the policy. */
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
    TURNS_MAX = 20000,
    YIELDS = 4000,
    USERS = 2,
};

static const struct muster_spin_parameters *const users[USERS] = {&muster_spin_on_links,
                                                                  &muster_spin_on_memory};

static struct muster_spin_policy make_policy(const struct muster_spin_parameters *user,
                                             uint32_t members, uint64_t quota_millis)
{
    struct muster_spin_policy policy;
    const struct muster_spin_host host = {
        .members = members, .cores = CORES, .quota_millis = quota_millis};
    muster_spin_policy_init(&policy, user, &host);
    return policy;
}

static bool polls(struct muster_spin_policy *policy)
{
    return muster_spin_policy_begin_wait(policy) == MUSTER_SPIN_POLL;
}

/* Counts the waits that sleep without polling, up to the first one that polls. */
static uint32_t count_rests(struct muster_spin_policy *policy)
{
    uint32_t rests = 0;
    while (muster_spin_policy_begin_wait(policy) == MUSTER_SPIN_SLEEP) {
        rests++;
        assert_true(rests <= MUSTER_SPIN_RESTS_MAX);
    }
    return rests;
}

static void without_a_quota_every_wait_polls(void **state)
{
    (void)state;
    for (int i = 0; i < USERS; i++) {
        for (uint32_t members = 0; members < 1000; members = 2 * members + 1) {
            struct muster_spin_policy policy = make_policy(users[i], members, UINT64_MAX);
            assert_true(polls(&policy));
        }
    }
}

static void no_wait_polls_on_a_quota_that_pays_for_less_than_the_members(void **state)
{
    (void)state;
    static const struct {
        uint64_t millis;
        uint32_t members;
        bool polls;
    } cases[] = {
        {0, 1, false},        {CORE, 1, false},     {2 * CORE - 1, 1, false}, {2 * CORE, 1, true},
        {2 * CORE, 2, true},  {2 * CORE, 3, false}, {3 * CORE - 1, 3, false}, {3 * CORE, 3, true},
        {7 * CORE, 8, false}, {CORE, 0, false},     {UINT64_MAX - 1, 8, true}};
    for (int user = 0; user < USERS; user++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct muster_spin_policy policy =
                make_policy(users[user], cases[i].members, cases[i].millis);
            assert_int_equal(polls(&policy), cases[i].polls);
        }
    }
}

static void a_thread_that_shares_a_core_yields_after_each_poll(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_links, 4, UINT64_MAX);
    assert_int_equal(policy.polls_of_memory, 100);
    muster_spin_policy_note_yield(&policy, SHARED_NS);
    assert_int_equal(policy.polls_of_memory, 1);
    assert_true(polls(&policy));
}

static void a_thread_alone_on_its_core_polls_memory_more_often_again(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_policy policy = make_policy(users[user], 4, UINT64_MAX);
        muster_spin_policy_note_yield(&policy, SHARED_NS);
        for (int i = 0; i < YIELDS; i++) {
            uint32_t before = policy.polls_of_memory;
            muster_spin_policy_note_yield(&policy, QUICK_NS);
            assert_true(policy.polls_of_memory >= before &&
                        policy.polls_of_memory <= users[user]->polls_max);
        }
        assert_int_equal(policy.polls_of_memory, users[user]->polls_max);
    }
}

static void a_thread_alone_on_its_core_yields_less_and_less_often(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_policy policy = make_policy(users[user], 2, UINT64_MAX);
        assert_int_equal(policy.pause, 0);
        for (int i = 1; i < YIELDS; i++) {
            uint32_t before = policy.pause;
            muster_spin_policy_note_yield(&policy, QUICK_NS);
            assert_true(policy.pause > before || policy.pause == users[user]->pause_max);
            assert_true(policy.pause <= users[user]->pause_max);
        }
        assert_int_equal(policy.pause, users[user]->pause_max);
    }
}

static void pauses_are_those_of_each_user(void **state)
{
    (void)state;
    static const uint32_t on_memory[] = {16, 32, 64, 128, 256, 512, 512};
    struct muster_spin_policy policy = make_policy(&muster_spin_on_memory, 2, UINT64_MAX);
    for (size_t i = 0; i < sizeof on_memory / sizeof on_memory[0]; i++) {
        muster_spin_policy_note_yield(&policy, QUICK_NS);
        assert_int_equal(policy.pause, on_memory[i]);
    }
    for (uint32_t expected = 256; expected > 1; expected /= 2) {
        muster_spin_policy_note_yield(&policy, SHARED_NS);
        assert_int_equal(policy.pause, expected > 16 ? expected : 16);
    }
    policy = make_policy(&muster_spin_on_links, 2, UINT64_MAX);
    for (uint32_t i = 1; i <= 60; i++) {
        muster_spin_policy_note_yield(&policy, QUICK_NS);
        assert_int_equal(policy.pause, i < 50 ? i * 1000 : 50 * 1000);
    }
    muster_spin_policy_note_yield(&policy, SHARED_NS);
    assert_int_equal(policy.pause, 0);
}

static void where_there_are_more_members_than_cores_there_are_no_pauses(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_policy policy = make_policy(users[user], CORES + 1, UINT64_MAX);
        for (int i = 0; i < 1000; i++) {
            muster_spin_policy_note_yield(&policy, i % 7 < 5 ? QUICK_NS : SHARED_NS);
            assert_int_equal(policy.pause, 0);
        }
    }
}

/* Yields on a core that other members share, until the thread sleeps or moves; returns how often.
 */
static uint32_t count_shared(struct muster_spin_policy *policy, bool *ret_moves)
{
    for (uint32_t yields = 1;; yields++) {
        muster_spin_policy_note_yield(policy, SHARED_NS);
        assert_true(yields <= 1024);
        enum muster_spin_action action = muster_spin_policy_begin_wait(policy);
        if (action != MUSTER_SPIN_POLL) {
            assert_true(polls(policy)); /* only this wait sleeps or moves */
            *ret_moves = action == MUSTER_SPIN_MOVE;
            return yields;
        }
    }
}

static void a_thread_that_waits_for_a_device_polls_for_longer_unless_cores_are_few(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_host host = {
            .members = 2, .cores = 2, .has_device = true, .quota_millis = UINT64_MAX};
        struct muster_spin_policy policy;
        muster_spin_policy_init(&policy, users[user], &host);
        assert_int_equal(policy.poll_ns, users[user]->poll_device_ns);
        host.members = 3;
        muster_spin_policy_init(&policy, users[user], &host);
        assert_int_equal(policy.poll_ns, users[user]->poll_ns);
        host = (struct muster_spin_host){.members = 2, .cores = 2, .quota_millis = UINT64_MAX};
        muster_spin_policy_init(&policy, users[user], &host);
        assert_int_equal(policy.poll_ns, users[user]->poll_ns);
    }
    assert_true(muster_spin_on_links.poll_device_ns > muster_spin_on_links.poll_ns);
}

static void a_thread_that_shares_a_core_for_long_sleeps_once_then_moves(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        const struct muster_spin_host host = {
            .members = 4, .index = 3, .cores = 4, .quota_millis = UINT64_MAX};
        struct muster_spin_policy policy;
        muster_spin_policy_init(&policy, users[user], &host);
        uint32_t expected = users[user]->shared_max;
        uint32_t most = expected << MUSTER_SPIN_DOUBLINGS;
        for (uint32_t i = 0; i < 20; i++) {
            bool moves;
            assert_int_equal(count_shared(&policy, &moves), expected);
            assert_int_equal(moves, i % 2);
            assert_int_equal(policy.index, 3);
            expected = moves && expected < most ? 2 * expected : expected;
        }
        assert_int_equal(expected, most);
    }
}

static void a_thread_that_was_alone_for_long_starts_again_with_the_smallest_limit(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_policy policy = make_policy(users[user], 4, UINT64_MAX);
        bool moves;
        for (uint32_t i = 0; i < 5; i++) {
            (void)count_shared(&policy, &moves);
        }
        for (int i = 0; policy.pause < users[user]->pause_alone; i++) {
            assert_true(i < YIELDS);
            muster_spin_policy_note_yield(&policy, QUICK_NS);
        }
        assert_int_equal(count_shared(&policy, &moves), users[user]->shared_max);
        assert_false(moves);
    }
}

static void where_there_are_more_members_than_cores_no_thread_moves(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_links, CORES + 1, UINT64_MAX);
    for (int i = 0; i < 10; i++) {
        bool moves;
        assert_int_equal(count_shared(&policy, &moves), muster_spin_on_links.shared_max_crowded);
        assert_false(moves);
    }
    policy = make_policy(&muster_spin_on_memory, CORES + 1, UINT64_MAX);
    for (int i = 0; i < 100000; i++) { /* it does not sleep either */
        muster_spin_policy_note_yield(&policy, SHARED_NS);
        assert_true(polls(&policy));
    }
}

/* core_of[i] is the core that member i runs on. */
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

/* One wait of a member: the time of its yield shows whether another member is on its core. A sleep
 * changes nothing. */
static void wait_once(struct muster_spin_policy *policy, uint32_t *core_of, uint32_t members,
                      uint32_t self)
{
    uint32_t on_its_core = 0;
    for (uint32_t i = 0; i < members; i++) {
        on_its_core += core_of[i] == core_of[self];
    }
    enum muster_spin_action action = muster_spin_policy_begin_wait(policy);
    if (action == MUSTER_SPIN_MOVE) {
        core_of[self] = policy->index % CORES;
    }
    if (action != MUSTER_SPIN_SLEEP) {
        muster_spin_policy_note_yield(policy, on_its_core > 1 ? SHARED_NS : QUICK_NS);
    }
}

/* Members on random cores wait, in turn or in a random order, until each is on a core of its own.
 */
static void run_until_apart(const struct muster_spin_parameters *user, bool in_turn)
{
    uint64_t random = test_seed() | 1;
    for (int run = 0; run < RUNS; run++) {
        struct muster_spin_policy policies[CORES];
        uint32_t core_of[CORES];
        uint32_t members = 2 + (uint32_t)run % (CORES - 1);
        for (uint32_t i = 0; i < members; i++) {
            const struct muster_spin_host host = {
                .members = members, .index = i, .cores = CORES, .quota_millis = UINT64_MAX};
            muster_spin_policy_init(&policies[i], user, &host);
            core_of[i] = test_random_below(&random, CORES);
            policies[i].steps = test_random_below(&random, 5); /* as if they had moved before */
        }
        uint32_t turns = 0;
        while (!all_are_apart(core_of, members)) {
            uint32_t self = in_turn ? turns % members : test_random_below(&random, members);
            wait_once(&policies[self], core_of, members, self);
            assert_true(turns++ < TURNS_MAX);
        }
    }
}

static void members_that_wait_in_a_random_order_move_to_cores_of_their_own(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        run_until_apart(users[user], false);
    }
}

static void members_that_wait_in_turn_move_to_cores_of_their_own(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        run_until_apart(users[user], true);
    }
}

static void a_slice_that_was_lost_to_other_work_is_followed_by_sleeps(void **state)
{
    (void)state;
    for (int user = 0; user < USERS; user++) {
        struct muster_spin_policy policy = make_policy(users[user], 2, UINT64_MAX);
        muster_spin_policy_note_yield(&policy, SLICE_NS);
        assert_int_equal(count_rests(&policy), users[user]->rests_min);
        assert_true(polls(&policy)); /* the next wait polls again */
    }
}

static void rests_grow_with_each_slice_and_are_bounded(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_links, 2, UINT64_MAX);
    uint32_t expected = muster_spin_on_links.rests_min;
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_note_yield(&policy, SLICE_NS);
        assert_int_equal(count_rests(&policy), expected);
        expected = expected < MUSTER_SPIN_RESTS_MAX ? 2 * expected : expected;
    }
    assert_int_equal(expected, MUSTER_SPIN_RESTS_MAX);
}

static void a_rank_of_a_group_never_rests(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_memory, 2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_note_yield(&policy, SLICE_NS);
        assert_int_equal(count_rests(&policy), 0);
    }
}

static void polling_that_helps_shortens_the_next_rest(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_links, 2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_note_yield(&policy, SLICE_NS);
    }
    for (int i = 0; i < 2 * MUSTER_SPIN_RESTS_MAX; i++) {
        muster_spin_policy_note_success(&policy);
    }
    (void)count_rests(&policy);
    muster_spin_policy_note_yield(&policy, SLICE_NS);
    assert_int_equal(count_rests(&policy), muster_spin_on_links.rests_min);
}

/* A rest that was shortened is no power of two any more, so doubling it could exceed the maximum.
 */
static void rests_that_were_shortened_stay_bounded_when_they_grow(void **state)
{
    (void)state;
    struct muster_spin_policy policy = make_policy(&muster_spin_on_links, 2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_spin_policy_note_yield(&policy, SLICE_NS);
        muster_spin_policy_note_success(&policy);
        (void)count_rests(&policy);
        muster_spin_policy_note_yield(&policy, SLICE_NS);
        assert_true(count_rests(&policy) <= MUSTER_SPIN_RESTS_MAX);
    }
    muster_spin_policy_note_yield(&policy, SLICE_NS);
    assert_int_equal(count_rests(&policy), MUSTER_SPIN_RESTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_quota_every_wait_polls),
        cmocka_unit_test(no_wait_polls_on_a_quota_that_pays_for_less_than_the_members),
        cmocka_unit_test(a_thread_that_shares_a_core_yields_after_each_poll),
        cmocka_unit_test(a_thread_alone_on_its_core_polls_memory_more_often_again),
        cmocka_unit_test(a_thread_alone_on_its_core_yields_less_and_less_often),
        cmocka_unit_test(pauses_are_those_of_each_user),
        cmocka_unit_test(where_there_are_more_members_than_cores_there_are_no_pauses),
        cmocka_unit_test(a_thread_that_waits_for_a_device_polls_for_longer_unless_cores_are_few),
        cmocka_unit_test(a_thread_that_shares_a_core_for_long_sleeps_once_then_moves),
        cmocka_unit_test(a_thread_that_was_alone_for_long_starts_again_with_the_smallest_limit),
        cmocka_unit_test(where_there_are_more_members_than_cores_no_thread_moves),
        cmocka_unit_test(members_that_wait_in_a_random_order_move_to_cores_of_their_own),
        cmocka_unit_test(members_that_wait_in_turn_move_to_cores_of_their_own),
        cmocka_unit_test(a_slice_that_was_lost_to_other_work_is_followed_by_sleeps),
        cmocka_unit_test(rests_grow_with_each_slice_and_are_bounded),
        cmocka_unit_test(a_rank_of_a_group_never_rests),
        cmocka_unit_test(rests_that_were_shortened_stay_bounded_when_they_grow),
        cmocka_unit_test(polling_that_helps_shortens_the_next_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
