/* When a member is dead, as a function of times. */
#include "elastic/membership/liveness.h"
#include "tests/elastic/membership/drive.h"

static struct muster_job_settings settings(void)
{
    struct muster_job_settings settings;
    muster_job_settings_init(&settings);
    return settings;
}

static bool dead_at(const struct muster_signs *signs, int64_t now_ms, const char *expected_why)
{
    struct muster_job_settings s = settings();
    char why[MUSTER_WHY_SIZE] = "";
    bool dead = muster_liveness_verdict(signs, &s, now_ms, why);
    assert_int_equal(dead, muster_liveness_deadline_ms(signs, &s) <= now_ms);
    if (dead) {
        assert_string_equal(why, expected_why);
        /* No verdict is given that statistics do not know. */
        assert_int_not_equal(muster_liveness_verdict_of(why), MUSTER_LIVENESS_OTHER);
    } else {
        assert_string_equal(why, "");
    }
    return dead;
}

static void a_verdict_has_a_kind(void **state)
{
    (void)state;
    static const char *const kinds[][2] = {
        {"lease lost: no sign of life for 5000 ms", "lease"},
        {"connection closed and no sign of life for 2000 ms", "closed"},
        {"reported by rank 3 and no sign of life for 2000 ms", "reported"},
        {"connection closed and reported by rank 3", "confirmed"},
        {"its process is gone: it refused a dial of rank 1, and its connection closed", "refused"},
        {"stuck: alive but did not join again within 30000 ms", "stuck"},
        {"of another version", "other"},
        {"", "other"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        enum muster_liveness_verdict_kind kind = muster_liveness_verdict_of(kinds[i][0]);
        assert_string_equal(muster_liveness_verdict_name(kind), kinds[i][1]);
    }
}

static void a_member_is_dead_when_its_lease_is_over(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    assert_false(dead_at(&signs, 100, ""));
    assert_false(dead_at(&signs, 5099, ""));
    assert_true(dead_at(&signs, 5100, "lease lost: no sign of life for 5000 ms"));
}

static void a_check_later_than_half_the_shortest_silence_was_late(void **state)
{
    (void)state;
    struct muster_job_settings settings = {.lease_ms = 5000, .suspect_ms = 6000};
    assert_int_equal(muster_liveness_shortest_ms(&settings), 5000);
    assert_false(muster_liveness_check_was_late(100, 50, &settings));
    assert_false(muster_liveness_check_was_late(100, 2600, &settings));
    assert_true(muster_liveness_check_was_late(100, 2601, &settings));
    assert_false(muster_liveness_check_was_late(MUSTER_LIVENESS_NEVER, INT64_MAX, &settings));
    settings.suspect_ms = 2000;
    assert_int_equal(muster_liveness_shortest_ms(&settings), 2000);
    assert_false(muster_liveness_check_was_late(100, 1100, &settings));
    assert_true(muster_liveness_check_was_late(100, 1101, &settings));
}

static void a_sign_of_life_renews_the_lease_and_never_shortens_it(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    muster_liveness_heartbeat(&signs, 300);
    muster_liveness_heartbeat(&signs, 200);
    assert_false(dead_at(&signs, 5299, ""));
    assert_true(dead_at(&signs, 5300, "lease lost: no sign of life for 5000 ms"));
}

static void a_request_that_is_held_is_a_lasting_sign_of_life(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    muster_liveness_begin_hold(&signs);
    assert_false(dead_at(&signs, 1000000, ""));
    muster_liveness_end_hold(&signs, 30100);
    assert_false(dead_at(&signs, 35099, ""));
    assert_true(dead_at(&signs, 35100, "lease lost: no sign of life for 5000 ms"));
    /* Ended twice: the lease begins once. */
    muster_liveness_end_hold(&signs, 40000);
    assert_true(dead_at(&signs, 35100, "lease lost: no sign of life for 5000 ms"));
}

static void a_held_request_and_its_end_clear_no_suspicion(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.awaited_ms = 100;
    muster_liveness_begin_hold(&signs);
    assert_true(dead_at(&signs, 30100, "stuck: alive but did not join again within 30000 ms"));
    signs.reported_ms = 200;
    assert_true(dead_at(&signs, 2200, "reported by rank 0 and no sign of life for 2000 ms"));
    muster_liveness_end_hold(&signs, 300);
    assert_true(dead_at(&signs, 2200, "reported by rank 0 and no sign of life for 2000 ms"));
}

static void a_broken_connection_alone_leaves_time_to_come_back(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.closed_ms = 200;
    assert_true(muster_liveness_suspected(&signs));
    assert_false(dead_at(&signs, 2199, ""));
    assert_true(dead_at(&signs, 2200, "connection closed and no sign of life for 2000 ms"));
    muster_liveness_heartbeat(&signs, 2199);
    assert_false(muster_liveness_suspected(&signs));
    assert_false(dead_at(&signs, 2200, ""));
}

static void a_report_alone_leaves_time_for_a_sign_of_life(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.reported_ms = 200;
    signs.reporter = 7;
    assert_true(muster_liveness_suspected(&signs));
    assert_false(dead_at(&signs, 2199, ""));
    assert_true(dead_at(&signs, 2200, "reported by rank 7 and no sign of life for 2000 ms"));
}

static void two_pieces_of_evidence_need_no_waiting(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.closed_ms = 200;
    signs.reported_ms = 200;
    signs.reporter = 1;
    assert_true(dead_at(&signs, 200, "connection closed and reported by rank 1"));
}

static void a_doubted_member_that_refuses_a_dial_is_dead(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    muster_liveness_refused(&signs, 1);
    assert_false(dead_at(&signs, 200, "")); /* nobody doubted it: its port may be another's */
    muster_liveness_doubt(&signs);
    assert_true(muster_liveness_doubted(&signs));
    assert_false(dead_at(&signs, 5099, "")); /* no suspicion */
    muster_liveness_refused(&signs, 1);
    assert_true(dead_at(&signs, 200,
                        "its process is gone: it refused a dial of rank 1, and its "
                        "connection closed"));
    muster_liveness_heartbeat(&signs, 200);
    assert_false(muster_liveness_doubted(&signs));
    assert_false(dead_at(&signs, 5199, ""));

    signs.closed_ms = 300;
    assert_true(muster_liveness_doubted(&signs));
    muster_liveness_refused(&signs, UINT32_MAX);
    assert_true(dead_at(&signs, 300,
                        "its process is gone: it refused a dial of a newcomer, and its "
                        "connection closed"));
}

static void a_member_that_is_not_heard_of_after_a_start_is_doubted(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    muster_liveness_expect(&signs);
    assert_true(muster_liveness_doubted(&signs));
    assert_false(dead_at(&signs, 1000000, "")); /* it may know nothing of the start */
    muster_liveness_begin_hold(&signs);
    assert_false(muster_liveness_doubted(&signs));
    muster_liveness_expect(&signs);
    muster_liveness_end_hold(&signs, 2000000);
    assert_false(muster_liveness_doubted(&signs));
    assert_true(dead_at(&signs, 2005000, "lease lost: no sign of life for 5000 ms"));
    muster_liveness_expect(&signs);
    muster_liveness_refused(&signs, 2);
    assert_true(dead_at(&signs, 2000000,
                        "its process is gone: it refused a dial of rank 2, and was "
                        "not heard of since the server started"));
}

static void an_awaited_member_is_dead_after_arrive_ms_even_with_signs_of_life(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.awaited_ms = 100;
    muster_liveness_heartbeat(&signs, 30000);
    assert_false(dead_at(&signs, 30099, ""));
    assert_true(dead_at(&signs, 30100, "stuck: alive but did not join again within 30000 ms"));
}

static void a_restart_of_the_service_gives_everyone_all_the_time_again(void **state)
{
    (void)state;
    struct muster_signs signs;
    muster_liveness_init(&signs, 100);
    signs.awaited_ms = 100;
    signs.closed_ms = 100;
    signs.reported_ms = 100;
    muster_liveness_restart(&signs, 90000);
    assert_false(dead_at(&signs, 94999, ""));
    muster_liveness_heartbeat(&signs, 119000);
    assert_false(dead_at(&signs, 119999, ""));
    assert_true(dead_at(&signs, 120000, "stuck: alive but did not join again within 30000 ms"));
}

static void times_near_never_do_not_wrap(void **state)
{
    (void)state;
    assert_int_equal(muster_liveness_after(MUSTER_LIVENESS_NEVER, 1), MUSTER_LIVENESS_NEVER);
    assert_int_equal(muster_liveness_after(MUSTER_LIVENESS_NEVER - 1, UINT32_MAX),
                     MUSTER_LIVENESS_NEVER);
    assert_int_equal(muster_liveness_after(1, 2), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_has_a_kind),
        cmocka_unit_test(a_member_is_dead_when_its_lease_is_over),
        cmocka_unit_test(a_check_later_than_half_the_shortest_silence_was_late),
        cmocka_unit_test(a_sign_of_life_renews_the_lease_and_never_shortens_it),
        cmocka_unit_test(a_request_that_is_held_is_a_lasting_sign_of_life),
        cmocka_unit_test(a_held_request_and_its_end_clear_no_suspicion),
        cmocka_unit_test(a_broken_connection_alone_leaves_time_to_come_back),
        cmocka_unit_test(a_report_alone_leaves_time_for_a_sign_of_life),
        cmocka_unit_test(two_pieces_of_evidence_need_no_waiting),
        cmocka_unit_test(a_doubted_member_that_refuses_a_dial_is_dead),
        cmocka_unit_test(a_member_that_is_not_heard_of_after_a_start_is_doubted),
        cmocka_unit_test(an_awaited_member_is_dead_after_arrive_ms_even_with_signs_of_life),
        cmocka_unit_test(a_restart_of_the_service_gives_everyone_all_the_time_again),
        cmocka_unit_test(times_near_never_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
