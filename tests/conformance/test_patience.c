/* How long who waits looks before it sleeps: by quota, by who else is on the core, by what giving
 * way has cost. */
#include "worker/fabric/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { QUICK_NS = 300, SHARED_NS = 20 * 1000, SLICE_NS = 3 * 1000 * 1000, CORE = 1000, CORES = 8 };

static struct muster_patience begin(uint32_t members_here, uint64_t quota_millis)
{
    struct muster_patience patience;
    muster_patience_begin(&patience, members_here, CORES, quota_millis);
    return patience;
}

static uint32_t count_rests(struct muster_patience *patience)
{
    uint32_t rests = 0;
    while (!muster_patience_looks(patience)) {
        rests++;
        assert_true(rests <= MUSTER_PATIENCE_REST_MAX);
    }
    return rests;
}

static void without_a_quota_everybody_looks(void **state)
{
    (void)state;
    for (uint32_t members = 0; members < 1000; members = 2 * members + 1) {
        struct muster_patience patience = begin(members, UINT64_MAX);
        assert_true(muster_patience_looks(&patience));
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
        struct muster_patience patience = begin(cases[i].members, cases[i].millis);
        assert_int_equal(muster_patience_looks(&patience), cases[i].looks);
    }
}

static void who_shares_a_core_gives_way_after_each_look(void **state)
{
    (void)state;
    struct muster_patience patience = begin(4, UINT64_MAX);
    assert_int_equal(patience.looks, MUSTER_PATIENCE_LOOKS_MAX);
    muster_patience_gave_way(&patience, SHARED_NS);
    assert_int_equal(patience.looks, 1);
    assert_true(muster_patience_looks(&patience));
}

static void who_finds_itself_alone_looks_more_often_again(void **state)
{
    (void)state;
    struct muster_patience patience = begin(4, UINT64_MAX);
    muster_patience_gave_way(&patience, SHARED_NS);
    for (int i = 0; i < 2 * MUSTER_PATIENCE_LOOKS_MAX; i++) {
        uint32_t before = patience.looks;
        muster_patience_gave_way(&patience, QUICK_NS);
        assert_true(patience.looks >= before && patience.looks <= MUSTER_PATIENCE_LOOKS_MAX);
    }
    assert_int_equal(patience.looks, MUSTER_PATIENCE_LOOKS_MAX);
}

static void who_finds_itself_alone_gives_way_less_often(void **state)
{
    (void)state;
    struct muster_patience patience = begin(2, UINT64_MAX);
    assert_int_equal(patience.pause_ns, 0);
    for (int i = 1; i < 1000; i++) {
        int64_t before_ns = patience.pause_ns;
        muster_patience_gave_way(&patience, QUICK_NS);
        assert_true(patience.pause_ns >= before_ns &&
                    patience.pause_ns <= MUSTER_PATIENCE_PAUSE_MAX_NS);
    }
    assert_int_equal(patience.pause_ns, MUSTER_PATIENCE_PAUSE_MAX_NS);
    muster_patience_gave_way(&patience, SHARED_NS);
    assert_int_equal(patience.pause_ns, 0);
}

static void where_there_are_more_members_than_cores_all_go_on_giving_way(void **state)
{
    (void)state;
    struct muster_patience patience = begin(CORES + 1, UINT64_MAX);
    for (int i = 0; i < 1000; i++) {
        muster_patience_gave_way(&patience, QUICK_NS);
        assert_int_equal(patience.pause_ns, 0);
    }
}

static void who_shares_a_core_for_long_sleeps_once(void **state)
{
    (void)state;
    struct muster_patience patience = begin(2, UINT64_MAX);
    for (int i = 0; i < MUSTER_PATIENCE_SHARED_MAX - 1; i++) {
        muster_patience_gave_way(&patience, SHARED_NS);
        assert_true(muster_patience_looks(&patience));
    }
    muster_patience_gave_way(&patience, SHARED_NS);
    assert_int_equal(count_rests(&patience), 1);
    for (int i = 0; i < 2 * MUSTER_PATIENCE_SHARED_MAX; i++) { /* now and then it is alone */
        muster_patience_gave_way(&patience, i % 100 == 0 ? QUICK_NS : SHARED_NS);
        assert_true(muster_patience_looks(&patience));
    }
}

static void a_slice_that_was_lost_to_other_work_is_followed_by_sleeps(void **state)
{
    (void)state;
    struct muster_patience patience = begin(2, UINT64_MAX);
    muster_patience_gave_way(&patience, SLICE_NS);
    assert_int_equal(count_rests(&patience), MUSTER_PATIENCE_REST_MIN);
    assert_true(muster_patience_looks(&patience)); /* then it tries again */
}

static void rests_grow_with_each_slice_and_are_bounded(void **state)
{
    (void)state;
    struct muster_patience patience = begin(2, UINT64_MAX);
    uint32_t expected = MUSTER_PATIENCE_REST_MIN;
    for (int i = 0; i < 20; i++) {
        muster_patience_gave_way(&patience, SLICE_NS);
        assert_int_equal(count_rests(&patience), expected);
        expected = expected < MUSTER_PATIENCE_REST_MAX ? 2 * expected : expected;
    }
    assert_int_equal(expected, MUSTER_PATIENCE_REST_MAX);
}

static void looking_that_helps_shortens_the_next_rest(void **state)
{
    (void)state;
    struct muster_patience patience = begin(2, UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        muster_patience_gave_way(&patience, SLICE_NS);
    }
    for (int i = 0; i < 2 * MUSTER_PATIENCE_REST_MAX; i++) {
        muster_patience_found(&patience);
    }
    (void)count_rests(&patience);
    muster_patience_gave_way(&patience, SLICE_NS);
    assert_int_equal(count_rests(&patience), MUSTER_PATIENCE_REST_MIN);
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
        cmocka_unit_test(who_shares_a_core_for_long_sleeps_once),
        cmocka_unit_test(a_slice_that_was_lost_to_other_work_is_followed_by_sleeps),
        cmocka_unit_test(rests_grow_with_each_slice_and_are_bounded),
        cmocka_unit_test(looking_that_helps_shortens_the_next_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
