/* Members join, leave, die and are suspected while the job goes on. */
#include "tests/elastic/membership/drive.h"

/* Members a0 and a1 on host a, b0 and b1 on host b, in generation 1. */
static void start_four(struct drive *d)
{
    drive_init(d, 2, 8, 4);
    drive_join_all(d, "a0 a1 b0 b1", 0, 0);
    assert_string_equal(drive_ranks(d), "a0 a1 | b0 b1");
    drive_clear_actions(d);
}

/* Joining ------------------------------------------------------------------------------------- */

static void a_join_retried_while_waiting_counts_once_and_its_latest_info_wins(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 8, 2);
    drive_join_all(&d, "a0 a0 a0", 0, 0);
    assert_int_equal(muster_membership_count(d.membership), 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    struct join moved = {.id = "a0", .host = "z", .version = 5};
    assert_int_equal(drive_join(&d, moved), MUSTER_OK);
    assert_string_equal(drive_member(&d, "a0").info->host, "z");
    assert_int_equal(drive_member(&d, "a0").info->state_version, 5);
    drive_join_all(&d, "b0", 0, 0);
    assert_string_equal(drive_ranks(&d), "a0 | b0");
    drive_finish(&d);
}

static void a_retried_join_does_not_prolong_the_settle_window(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 0);
    drive_join_all(&d, "a0", 0, 0);
    drive_wait(&d, d.settings.settle_ms - 1);
    drive_join_all(&d, "a0", 0, 0);
    drive_wait(&d, 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_finish(&d);
}

static void a_member_of_the_running_generation_that_joins_again_ends_it(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "b0", 1, 3);
    assert_true(d.notified);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(drive_member(&d, "b0").phase, MUSTER_MEMBER_ARRIVED);
    assert_int_equal(drive_member(&d, "a0").phase, MUSTER_MEMBER_AWAITED);
    assert_int_equal(drive_member(&d, "a0").rank, 0);
    assert_string_equal(drive_revoked_why(&d, 1), "rank 2 (host b, pid 4711) joined again");
    drive_join_all(&d, "a1 a0", 1, 3);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_join_all(&d, "b1", 1, 3);
    assert_int_equal(drive_generation(&d), 2);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    drive_finish(&d);
}

static void a_member_whose_response_was_lost_gets_it_again_and_nothing_changes(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "b0", 0, 3);
    assert_true(d.answered);
    assert_false(d.notified);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_int_equal(drive_member(&d, "b0").phase, MUSTER_MEMBER_ACTIVE);
    assert_int_equal(drive_member(&d, "b0").info->state_version, 0);
    drive_finish(&d);
}

static void newcomers_wait_beside_the_running_job_until_they_have_settled(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "c0", 0, 0);
    drive_wait(&d, d.settings.settle_ms - 1);
    drive_join_all(&d, "c1", 0, 0);
    drive_wait(&d, d.settings.settle_ms - 1);
    assert_false(muster_membership_pending(d.membership));
    assert_false(d.notified);
    drive_wait(&d, 1);
    assert_true(muster_membership_pending(d.membership));
    assert_true(d.notified);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_join_all(&d, "a0 a1 b0 b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1 | c0 c1");
    assert_string_equal(drive_revoked_why(&d, 1), "2 newcomers");
    assert_false(muster_membership_pending(d.membership));
    drive_finish(&d);
}

static void newcomers_that_reach_the_target_are_pending_at_once(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_resize(&d, 6), MUSTER_OK);
    drive_join_all(&d, "c0", 0, 0);
    assert_false(muster_membership_pending(d.membership));
    drive_join_all(&d, "c1", 0, 0);
    assert_true(muster_membership_pending(d.membership));
    drive_finish(&d);
}

static void newcomers_that_go_away_are_no_longer_pending(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "c0", 0, 0);
    drive_wait(&d, d.settings.settle_ms);
    assert_true(muster_membership_pending(d.membership));
    drive_clear_actions(&d);
    assert_int_equal(drive_leave(&d, "c0", 0, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_false(muster_membership_pending(d.membership));
    assert_true(d.notified);
    assert_string_equal(drive_departure_why(&d, "c0"), "newcomer (host c, pid 4711) left");
    assert_int_equal(drive_generation(&d), 1);
    drive_finish(&d);
}

/* Leaving ------------------------------------------------------------------------------------- */

static void a_planned_leave_revokes_and_is_the_reason_even_if_others_join_first(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a0 a1", 1, 1);
    assert_int_equal(drive_leave(&d, "b0", 1, MUSTER_LEAVE_PLANNED, "SIGTERM"), MUSTER_OK);
    const char *why = "rank 2 (host b, pid 4711) left: SIGTERM";
    assert_string_equal(drive_revoked_why(&d, 1), why);
    assert_string_equal(drive_departure_why(&d, "b0"), why);
    assert_string_equal(muster_membership_why(d.membership), why);
    assert_int_equal(d.gone_count, 1);
    assert_string_equal(d.gone[0], "b0");
    drive_join_all(&d, "b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b1");
    drive_finish(&d);
}

static void a_leave_while_forming_lets_the_rest_form(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_int_equal(drive_leave(&d, "b1", 1, MUSTER_LEAVE_FAILED, "out of disk"), MUSTER_OK);
    assert_true(d.answered);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    assert_string_equal(drive_departure_why(&d, "b1"),
                        "rank 3 (host b, pid 4711) gave up: out of disk");
    drive_finish(&d);
}

static void a_newcomer_that_waits_for_its_response_may_leave(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_int_equal(drive_leave(&d, "a0", 1, MUSTER_LEAVE_PLANNED, "SIGTERM"), MUSTER_OK);
    drive_join_all(&d, "b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a1 | b0 b1");
    drive_finish(&d);
}

/* Dying --------------------------------------------------------------------------------------- */

static void a_closed_connection_and_a_report_are_a_death_at_once(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_disconnect(&d, "b1"), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_true(drive_member(&d, "b1").suspected);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, "connection reset"), MUSTER_OK);
    assert_int_equal(muster_membership_count(d.membership), 3);
    const char *why = "rank 3 (host b, pid 4711) died: connection closed and reported by rank 1";
    assert_string_equal(drive_departure_why(&d, "b1"), why);
    assert_string_equal(drive_revoked_why(&d, 1), why);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void a_report_and_a_closed_connection_are_a_death_at_once_too(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, "connection reset"), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(muster_membership_count(d.membership), 4);
    assert_string_equal(drive_revoked_why(&d, 1),
                        "rank 3 (host b, pid 4711) reported by rank 1: connection reset");
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(drive_disconnect(&d, "b1"), MUSTER_OK);
    assert_true(d.answered);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void a_reported_member_that_joins_again_is_cleared(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, ""), MUSTER_OK);
    drive_join_all(&d, "b1", 1, 1);
    assert_false(drive_member(&d, "b1").suspected);
    drive_wait(&d, d.settings.suspect_ms);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    drive_finish(&d);
}

static void a_sign_of_life_clears_a_reported_member_which_must_still_join(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, ""), MUSTER_OK);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    drive_wait(&d, d.settings.suspect_ms - 1);
    drive_heartbeat(&d, "b1");
    drive_wait(&d, d.settings.suspect_ms);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(drive_member(&d, "b1").phase, MUSTER_MEMBER_AWAITED);
    for (int64_t waited_ms = 0; waited_ms < d.settings.arrive_ms; waited_ms += 1000) {
        drive_heartbeat_all(&d);
        drive_wait(&d, 1000);
    }
    assert_string_equal(drive_departure_why(&d, "b1"),
                        "rank 3 (host b, pid 4711) died: "
                        "stuck: alive but did not join again within 30000 ms");
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void a_reported_member_that_stays_silent_is_dead_after_suspect_ms(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, ""), MUSTER_OK);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    drive_wait(&d, d.settings.suspect_ms - 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_wait(&d, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void two_members_that_report_each_other_both_live_if_they_join_again(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_report(&d, "a0", "b0", 1, "reset"), MUSTER_OK);
    assert_int_equal(drive_report(&d, "b0", "a0", 1, "reset"), MUSTER_OK);
    assert_false(drive_member(&d, "b0").suspected); /* its own report was a sign of life */
    assert_true(drive_member(&d, "a0").suspected);
    drive_join_all(&d, "a0 b0 a1 b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    drive_finish(&d);
}

static void a_report_of_a_second_death_counts_while_the_next_generation_forms(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_disconnect(&d, "b0"), MUSTER_OK);
    assert_int_equal(drive_disconnect(&d, "b1"), MUSTER_OK);
    assert_int_equal(drive_report(&d, "a0", "b0", 1, "reset"), MUSTER_OK);
    assert_int_equal(muster_membership_count(d.membership), 3);
    assert_int_equal(drive_report(&d, "a1", "b1", 1, "reset"), MUSTER_OK);
    assert_int_equal(muster_membership_count(d.membership), 2);
    drive_join_all(&d, "a0 a1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1");
    drive_finish(&d);
}

static void a_late_report_of_one_that_has_arrived_changes_nothing(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "b1", 1, 1);
    assert_int_equal(drive_report(&d, "a0", "b1", 1, "reset"), MUSTER_OK);
    assert_false(drive_member(&d, "b1").suspected);
    drive_finish(&d);
}

static void a_closed_connection_alone_revokes_only_when_the_member_is_dead(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_disconnect(&d, "a0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms - 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_wait(&d, 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_string_equal(drive_revoked_why(&d, 1),
                        "rank 0 (host a, pid 4711) died: "
                        "connection closed and no sign of life for 2000 ms");
    drive_finish(&d);
}

static void a_member_that_reconnects_in_time_is_not_suspected_and_the_job_runs_on(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_disconnect(&d, "a0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms - 1);
    drive_heartbeat(&d, "a0");
    drive_wait(&d, d.settings.suspect_ms);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_false(drive_member(&d, "a0").suspected);
    drive_finish(&d);
}

static void the_lease_begins_where_the_held_request_ended(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    for (int i = 0; i < 4; i++) {
        drive_hold(&d, ((const char *const[]){"a0", "a1", "b0", "b1"})[i], true);
    }
    drive_wait(&d, 20 * d.settings.lease_ms);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_int_equal(muster_membership_next_ms(d.membership), INT64_MAX);
    drive_hold(&d, "b1", false);
    assert_int_equal(muster_membership_next_ms(d.membership), d.now_ms + d.settings.lease_ms);
    drive_wait(&d, d.settings.lease_ms - 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_wait(&d, 1);
    assert_string_equal(drive_departure_why(&d, "b1"),
                        "rank 3 (host b, pid 4711) died: "
                        "lease lost: no sign of life for 5000 ms");
    drive_finish(&d);
}

static void the_time_to_arrive_may_be_shorter_than_the_lease(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 2);
    d.settings.lease_ms = 60000;
    d.settings.arrive_ms = 500;
    drive_join_all(&d, "a0 a1", 0, 0);
    drive_wait(&d, 100);
    drive_join_all(&d, "a0", 1, 1);
    assert_int_equal(muster_membership_next_ms(d.membership), d.now_ms + 500);
    drive_wait(&d, 500);
    assert_string_equal(drive_ranks(&d), "a0");
    drive_finish(&d);
}

static void a_silent_member_loses_its_lease_and_the_generation_is_over(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_wait(&d, d.settings.lease_ms - 1);
    drive_heartbeat(&d, "a0");
    drive_heartbeat(&d, "a1");
    drive_heartbeat(&d, "b0");
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_wait(&d, 1);
    assert_string_equal(drive_revoked_why(&d, 1),
                        "rank 3 (host b, pid 4711) died: lease lost: no sign of life for 5000 ms");
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void a_death_while_forming_starts_the_next_generation_at_once(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    drive_clear_actions(&d);
    assert_int_equal(drive_disconnect(&d, "b1"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms);
    assert_true(d.answered);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    drive_finish(&d);
}

static void members_that_die_at_the_same_moment_are_not_in_the_next_generation(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a1 b0 b1", 1, 1);
    drive_wait(&d, 1);
    drive_heartbeat(&d, "a1");
    drive_heartbeat(&d, "b0");
    drive_until(&d, 1000 + d.settings.lease_ms); /* no sign of life of a0 and b1 since 1000 */
    assert_int_equal(drive_generation(&d), 2);
    assert_string_equal(drive_ranks(&d), "a1 | b0");
    drive_finish(&d);
}

static void a_restart_of_the_service_gives_fresh_leases_and_keeps_the_rest(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_disconnect(&d, "a0"), MUSTER_OK);
    d.now_ms += 100;
    struct muster_event restart = drive_make(&d, MUSTER_EVENT_RESTART, "");
    restart.now_ms = d.now_ms = 60000;
    assert_int_equal(drive_event(&d, &restart), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    assert_false(drive_member(&d, "a0").suspected);
    drive_wait(&d, d.settings.lease_ms - 1);
    assert_int_equal(muster_membership_count(d.membership), 4);
    drive_wait(&d, 1);
    assert_int_equal(muster_membership_count(d.membership), 0);
    drive_finish(&d);
}

static void no_member_dies_while_time_stands_still_or_runs_backward(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    d.now_ms = 3;
    drive_join_all(&d, "a0 a1 b0 b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    assert_int_equal(drive_generation(&d), 2);
    d.now_ms = 0;
    drive_join_all(&d, "c0 a0", 2, 1);
    assert_int_equal(muster_membership_count(d.membership), 5);
    drive_finish(&d);
}

/* Sizes --------------------------------------------------------------------------------------- */

static void a_resize_below_the_size_asks_only_the_highest_ranks_to_leave(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_resize(&d, 2), MUSTER_OK);
    assert_true(d.notified);
    assert_false(muster_membership_pending(d.membership)); /* the others need not join again */
    assert_false(drive_member(&d, "a1").leave_asked);
    assert_true(drive_member(&d, "b0").leave_asked);
    assert_true(drive_member(&d, "b1").leave_asked);
    drive_join_all(&d, "a0 a1", 1, 1);
    assert_string_equal(drive_revoked_why(&d, 1), "resize to 2");
    assert_int_equal(drive_leave(&d, "b1", 1, MUSTER_LEAVE_PLANNED, "resize"), MUSTER_OK);
    assert_int_equal(drive_leave(&d, "b0", 1, MUSTER_LEAVE_PLANNED, "resize"), MUSTER_OK);
    assert_string_equal(drive_ranks(&d), "a0 a1");
    assert_false(muster_membership_pending(d.membership));
    drive_finish(&d);
}

static void a_resize_back_up_takes_the_request_to_leave_back(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_resize(&d, 3), MUSTER_OK);
    assert_int_equal(drive_resize(&d, 5), MUSTER_OK);
    assert_false(drive_member(&d, "b1").leave_asked);
    assert_false(muster_membership_pending(d.membership));
    assert_int_equal(muster_membership_settings(d.membership).target_size, 5);
    assert_int_equal(muster_membership_resizes(d.membership), 2);
    assert_int_equal(drive_resize(&d, 9999), MUSTER_INVALID);
    assert_int_equal(muster_membership_resizes(d.membership), 2);
    assert_int_equal(drive_resize(&d, 5), MUSTER_OK); /* the same again: launchers see it */
    assert_int_equal(muster_membership_resizes(d.membership), 3);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    drive_finish(&d);
}

static void a_resize_while_forming_asks_when_the_generation_has_formed(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    drive_join_all(&d, "a0", 1, 1);
    assert_int_equal(drive_resize(&d, 3), MUSTER_OK);
    assert_false(muster_membership_pending(d.membership));
    drive_join_all(&d, "a1 b0 b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0 b1");
    assert_false(muster_membership_pending(d.membership));
    assert_true(drive_member(&d, "b1").leave_asked);
    drive_finish(&d);
}

static void a_resize_that_a_death_has_fulfilled_asks_no_member_to_leave(void **state)
{
    (void)state;
    struct drive d;
    start_four(&d);
    assert_int_equal(drive_resize(&d, 3), MUSTER_OK);
    assert_int_equal(drive_disconnect(&d, "a0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms);
    drive_join_all(&d, "a1 b0 b1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a1 | b0 b1");
    assert_false(drive_member(&d, "b1").leave_asked);
    assert_false(muster_membership_pending(d.membership));
    drive_finish(&d);
}

static void a_resize_of_a_forming_job_to_the_number_that_waits_forms_at_once(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 4);
    drive_join_all(&d, "a0 a1", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(drive_resize(&d, 2), MUSTER_OK);
    assert_string_equal(drive_ranks(&d), "a0 a1");
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_retried_while_waiting_counts_once_and_its_latest_info_wins),
        cmocka_unit_test(a_retried_join_does_not_prolong_the_settle_window),
        cmocka_unit_test(a_member_of_the_running_generation_that_joins_again_ends_it),
        cmocka_unit_test(a_member_whose_response_was_lost_gets_it_again_and_nothing_changes),
        cmocka_unit_test(newcomers_wait_beside_the_running_job_until_they_have_settled),
        cmocka_unit_test(newcomers_that_reach_the_target_are_pending_at_once),
        cmocka_unit_test(newcomers_that_go_away_are_no_longer_pending),
        cmocka_unit_test(a_planned_leave_revokes_and_is_the_reason_even_if_others_join_first),
        cmocka_unit_test(a_leave_while_forming_lets_the_rest_form),
        cmocka_unit_test(a_newcomer_that_waits_for_its_response_may_leave),
        cmocka_unit_test(a_closed_connection_and_a_report_are_a_death_at_once),
        cmocka_unit_test(a_report_and_a_closed_connection_are_a_death_at_once_too),
        cmocka_unit_test(a_reported_member_that_joins_again_is_cleared),
        cmocka_unit_test(a_sign_of_life_clears_a_reported_member_which_must_still_join),
        cmocka_unit_test(a_reported_member_that_stays_silent_is_dead_after_suspect_ms),
        cmocka_unit_test(two_members_that_report_each_other_both_live_if_they_join_again),
        cmocka_unit_test(a_report_of_a_second_death_counts_while_the_next_generation_forms),
        cmocka_unit_test(a_late_report_of_one_that_has_arrived_changes_nothing),
        cmocka_unit_test(a_closed_connection_alone_revokes_only_when_the_member_is_dead),
        cmocka_unit_test(a_member_that_reconnects_in_time_is_not_suspected_and_the_job_runs_on),
        cmocka_unit_test(the_lease_begins_where_the_held_request_ended),
        cmocka_unit_test(the_time_to_arrive_may_be_shorter_than_the_lease),
        cmocka_unit_test(a_silent_member_loses_its_lease_and_the_generation_is_over),
        cmocka_unit_test(a_death_while_forming_starts_the_next_generation_at_once),
        cmocka_unit_test(members_that_die_at_the_same_moment_are_not_in_the_next_generation),
        cmocka_unit_test(a_restart_of_the_service_gives_fresh_leases_and_keeps_the_rest),
        cmocka_unit_test(no_member_dies_while_time_stands_still_or_runs_backward),
        cmocka_unit_test(a_resize_below_the_size_asks_only_the_highest_ranks_to_leave),
        cmocka_unit_test(a_resize_back_up_takes_the_request_to_leave_back),
        cmocka_unit_test(a_resize_while_forming_asks_when_the_generation_has_formed),
        cmocka_unit_test(a_resize_that_a_death_has_fulfilled_asks_no_member_to_leave),
        cmocka_unit_test(a_resize_of_a_forming_job_to_the_number_that_waits_forms_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
