/* Members finish, the job ends, and begins anew. */
#include "tests/elastic/membership/drive.h"

/* Members a0 and a1 on host a, b0 on host b, in generation 1. */
static void start_three(struct drive *d)
{
    drive_init(d, 2, 8, 3);
    drive_join_all(d, "a0 a1 b0", 0, 0);
    drive_clear_actions(d);
}

static muster_status finish(struct drive *d, const char *id)
{
    return drive_leave(d, id, drive_generation(d), MUSTER_LEAVE_FINISHED, "");
}

static void check_standing(const struct drive *d, const char *id, muster_status expected,
                           const char *expected_text)
{
    assert_int_equal(muster_membership_check_member(d->membership, id), expected);
    if (expected != MUSTER_OK) {
        assert_string_equal(muster_last_error(), expected_text);
    }
}

static void a_member_that_finishes_leaves_the_job_running_for_the_others(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_false(d.notified);
    assert_int_equal(muster_membership_count(d.membership), 2);
    assert_string_equal(muster_membership_why(d.membership),
                        "rank 0 (host a, pid 4711) was the first to finish");
    check_standing(&d, "a0", MUSTER_ENDED, "member a0 is gone: rank 0 (host a, pid 4711) finished");
    check_standing(&d, "a1", MUSTER_OK, "");
    drive_finish(&d);
}

static void the_job_ends_when_all_have_finished(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    assert_int_equal(finish(&d, "b0"), MUSTER_OK);
    assert_false(d.ended);
    assert_int_equal(finish(&d, "a1"), MUSTER_OK);
    assert_true(d.ended);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_string_equal(muster_membership_why(d.membership), "finished");
    assert_string_equal(drive_revoked_why(&d, 1), "finished");
    check_standing(&d, "unheard-of", MUSTER_ENDED, "the job has ended: finished");
    drive_finish(&d);
}

static void a_member_that_is_done_and_joins_while_others_finish_has_finished_too(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    drive_clear_actions(&d);
    const struct join done = {.id = "a1", .host = "a", .generation = 1, .version = 5, .done = true};
    assert_int_equal(drive_join(&d, done), MUSTER_OK);
    assert_int_equal(d.gone_count, 1);
    assert_string_equal(d.gone[0], "a1");
    assert_false(d.answered);
    check_standing(&d, "a1", MUSTER_ENDED, "member a1 is gone: rank 1 (host a, pid 4711) finished");
    struct join again = {.id = "a1", .host = "a", .generation = 1};
    assert_int_equal(drive_join(&d, again), MUSTER_ENDED);
    drive_join_all(&d, "b0", 1, 5);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_string_equal(muster_membership_why(d.membership), "finished");
    drive_finish(&d);
}

static void a_member_that_is_not_done_is_told_who_ended_it_and_has_not_finished(void **state)
{
    (void)state;
    struct drive d;
    struct muster_departure_record record;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    drive_clear_actions(&d);
    drive_join_all(&d, "a1", 1, 5);
    assert_int_equal(d.gone_count, 1);
    check_standing(&d, "a1", MUSTER_ENDED,
                   "member a1 is gone: rank 1 (host a, pid 4711) left: ended, not finished: rank 0 "
                   "(host a, pid 4711) was the first to finish");
    assert_true(muster_membership_departure_record(d.membership, 1, &record));
    assert_int_equal(record.reason, MUSTER_LEAVE_PLANNED);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING); /* the others run on */
    drive_finish(&d);
}

static void a_report_while_others_finish_is_refused_and_revokes_nothing(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    assert_int_equal(drive_report(&d, "a1", "b0", 1, "reset"), MUSTER_ENDED);
    assert_string_equal(muster_last_error(), "the job is ending: finished");
    assert_int_equal(drive_report(&d, "a1", "a0", 1, "closed"), MUSTER_ENDED);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    drive_finish(&d);
}

static void deaths_and_leaves_of_the_rest_end_a_finishing_job_as_finished(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    assert_int_equal(drive_leave(&d, "a1", 1, MUSTER_LEAVE_PLANNED, "SIGTERM"), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_int_equal(drive_disconnect(&d, "b0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_string_equal(muster_membership_why(d.membership), "finished");
    drive_finish(&d);
}

static void newcomers_come_too_late_to_a_finishing_job(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    drive_join_all(&d, "c0", 0, 0);
    assert_int_equal(finish(&d, "a0"), MUSTER_OK);
    drive_wait(&d, d.settings.settle_ms);
    assert_false(muster_membership_pending(d.membership));
    struct join late = {.id = "c1", .host = "c"};
    assert_int_equal(drive_join(&d, late), MUSTER_ENDED);
    assert_int_equal(drive_resize(&d, 5), MUSTER_ENDED);
    assert_int_equal(finish(&d, "a1"), MUSTER_OK);
    assert_int_equal(finish(&d, "b0"), MUSTER_OK);
    assert_true(d.ended);
    assert_int_equal(muster_membership_count(d.membership), 0);
    check_standing(&d, "c0", MUSTER_ENDED, "member c0 is gone: the job has ended: finished");
    drive_finish(&d);
}

static void a_job_ends_as_finished_even_if_its_last_generation_was_revoked(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    drive_join_all(&d, "a0", 1, 5); /* a0 did not see the result of the vote that a1 saw */
    assert_int_equal(finish(&d, "a1"), MUSTER_OK);
    assert_true(d.ended);
    assert_string_equal(muster_membership_why(d.membership), "finished");
    struct join join = {.id = "a0", .host = "a", .generation = 1};
    assert_int_equal(drive_join(&d, join), MUSTER_ENDED);
    drive_finish(&d);
}

static void finishing_an_older_generation_is_no_more_than_leaving(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    drive_join_all(&d, "a0 a1 b0", 1, 1);
    assert_int_equal(drive_generation(&d), 2);
    assert_int_equal(drive_leave(&d, "a0", 1, MUSTER_LEAVE_FINISHED, ""), MUSTER_OK);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_finish(&d);
}

static void the_end_of_a_job_is_told_to_its_members_and_newcomers(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    drive_join_all(&d, "c0", 0, 0);
    assert_int_equal(drive_end(&d, "enough"), MUSTER_OK);
    assert_true(d.ended);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_string_equal(drive_revoked_why(&d, 1), "enough");
    check_standing(&d, "c0", MUSTER_ENDED, "member c0 is gone: the job has ended: enough");
    assert_int_equal(drive_end(&d, "again"), MUSTER_ENDED);
    assert_int_equal(drive_resize(&d, 3), MUSTER_ENDED);
    assert_int_equal(drive_report(&d, "a0", "a1", 1, ""), MUSTER_ENDED);
    struct join join = {.id = "a0", .host = "a", .generation = 1};
    assert_int_equal(drive_join(&d, join), MUSTER_ENDED);
    drive_finish(&d);
}

static void a_job_without_members_has_ended(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    drive_wait(&d, d.settings.lease_ms);
    assert_true(d.ended);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_string_equal(muster_membership_why(d.membership),
                        "nobody is left: rank 2 (host b, pid 4711) died: "
                        "lease lost: no sign of life for 5000 ms");
    drive_finish(&d);
}

static void one_that_was_declared_dead_may_come_back_under_a_new_id(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(drive_disconnect(&d, "b0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms);
    check_standing(&d, "b0", MUSTER_REJOIN,
                   "member b0 is gone: rank 2 (host b, pid 4711) died: "
                   "connection closed and no sign of life for 2000 ms");
    check_standing(&d, "unheard-of", MUSTER_REJOIN, "member unheard-of is not in this job");
    struct join join = {.id = "b0", .host = "b", .generation = 1};
    assert_int_equal(drive_join(&d, join), MUSTER_ENDED);
    drive_wait(&d, d.settings.lease_ms); /* all the others die too */
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_int_equal(muster_membership_check_member(d.membership, "b0"), MUSTER_REJOIN);
    drive_finish(&d);
}

static void one_that_died_does_not_come_back_to_a_job_that_has_finished(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(drive_disconnect(&d, "b0"), MUSTER_OK);
    drive_wait(&d, d.settings.suspect_ms);
    assert_int_equal(drive_end(&d, "enough"), MUSTER_OK);
    assert_int_equal(muster_membership_check_member(d.membership, "b0"), MUSTER_ENDED);
    drive_finish(&d);
}

static void an_ended_job_begins_anew_with_a_new_member_and_higher_numbers(void **state)
{
    (void)state;
    struct drive d;
    start_three(&d);
    assert_int_equal(drive_end(&d, "enough"), MUSTER_OK);
    d.settings.min_size = 1;
    d.settings.max_size = 2;
    d.settings.target_size = 0;
    drive_join_all(&d, "x0", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(muster_membership_settings(d.membership).max_size, 2);
    drive_join_all(&d, "x1", 0, 0);
    assert_int_equal(drive_generation(&d), 2);
    assert_string_equal(drive_ranks(&d), "x0 x1");
    struct muster_generation_record record;
    assert_true(muster_membership_generation_record(d.membership, 0, &record));
    assert_int_equal(record.number, 1);
    assert_int_equal(muster_membership_check_member(d.membership, "a0"), MUSTER_ENDED);
    drive_finish(&d);
}

static void only_the_last_departures_and_generations_are_remembered_oldest_first(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 2, 0);
    for (unsigned i = 0; i < 100; i++) {
        char id[8];
        (void)snprintf(id, sizeof id, "m%u", i);
        drive_join_all(&d, id, 0, 0);
        drive_wait(&d, d.settings.settle_ms);
        assert_int_equal(drive_leave(&d, id, i + 1, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    }
    struct muster_generation_record generation;
    struct muster_departure_record departure;
    assert_true(muster_membership_generation_record(d.membership, 0, &generation));
    assert_int_equal(generation.number, 100 - MUSTER_HISTORY_MAX + 1);
    assert_true(generation.revoked_ms >= generation.formed_ms);
    assert_true(
        muster_membership_departure_record(d.membership, MUSTER_HISTORY_MAX - 1, &departure));
    assert_string_equal(departure.member, "m99");
    assert_int_equal(departure.reason, MUSTER_LEAVE_PLANNED);
    assert_int_equal(departure.generation, 100);
    assert_int_equal(departure.rank, 0);
    assert_false(
        muster_membership_generation_record(d.membership, MUSTER_HISTORY_MAX, &generation));
    assert_false(muster_membership_departure_record(d.membership, MUSTER_HISTORY_MAX, &departure));
    assert_int_equal(muster_membership_check_member(d.membership, "m0"), MUSTER_ENDED);
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_finishes_leaves_the_job_running_for_the_others),
        cmocka_unit_test(the_job_ends_when_all_have_finished),
        cmocka_unit_test(a_member_that_is_done_and_joins_while_others_finish_has_finished_too),
        cmocka_unit_test(a_member_that_is_not_done_is_told_who_ended_it_and_has_not_finished),
        cmocka_unit_test(a_report_while_others_finish_is_refused_and_revokes_nothing),
        cmocka_unit_test(deaths_and_leaves_of_the_rest_end_a_finishing_job_as_finished),
        cmocka_unit_test(newcomers_come_too_late_to_a_finishing_job),
        cmocka_unit_test(a_job_ends_as_finished_even_if_its_last_generation_was_revoked),
        cmocka_unit_test(finishing_an_older_generation_is_no_more_than_leaving),
        cmocka_unit_test(the_end_of_a_job_is_told_to_its_members_and_newcomers),
        cmocka_unit_test(a_job_without_members_has_ended),
        cmocka_unit_test(one_that_was_declared_dead_may_come_back_under_a_new_id),
        cmocka_unit_test(one_that_died_does_not_come_back_to_a_job_that_has_finished),
        cmocka_unit_test(an_ended_job_begins_anew_with_a_new_member_and_higher_numbers),
        cmocka_unit_test(only_the_last_departures_and_generations_are_remembered_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
