/* When a generation forms, and who gets which rank. */
#include "tests/elastic/membership/drive.h"

static void first_generation_forms_at_once_when_the_target_is_reached(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 3);
    drive_join_all(&d, "a0 b0", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_false(d.answered);
    drive_join_all(&d, "c0", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_RUNNING);
    assert_true(d.answered);
    assert_int_equal(drive_generation(&d), 1);
    assert_string_equal(drive_ranks(&d), "a0 | b0 | c0");
    drive_finish(&d);
}

static void first_generation_forms_when_newcomers_have_settled(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 8, 0);
    drive_join_all(&d, "a0", 0, 0);
    drive_wait(&d, 1000);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_join_all(&d, "a1", 0, 0);
    drive_wait(&d, d.settings.settle_ms - 1);
    drive_join_all(&d, "a2", 0, 0);
    drive_wait(&d, d.settings.settle_ms - 1);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_wait(&d, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 a2");
    drive_finish(&d);
}

static void first_generation_forms_at_once_when_max_is_reached(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 2, 0);
    drive_join_all(&d, "a0 a1", 0, 0);
    assert_string_equal(drive_ranks(&d), "a0 a1");
    drive_finish(&d);
}

static void nothing_forms_below_min_however_long_it_takes(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 3, 8, 0);
    drive_join_all(&d, "a0 a1", 0, 0);
    for (int i = 0; i < 100; i++) {
        drive_wait(&d, 4000);
        drive_heartbeat_all(&d);
    }
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    assert_int_equal(muster_membership_count(d.membership), 2);
    assert_int_equal(drive_generation(&d), 0);
    drive_finish(&d);
}

static void ranks_are_contiguous_on_a_host_whatever_the_order_of_arrival(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 6);
    drive_join_all(&d, "b0 a0 b1 a1 c0 b2", 0, 0);
    assert_string_equal(drive_ranks(&d), "b0 b1 b2 | a0 a1 | c0");
    drive_finish(&d);
}

static void newcomers_of_one_moment_are_ranked_by_order_then_arrival(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 4);
    const struct join joins[] = {
        {.id = "a3", .host = "a", .order = 3},
        {.id = "b1", .host = "b", .order = 1},
        {.id = "a0", .host = "a", .order = 0},
        {.id = "b1too", .host = "b", .order = 1},
    };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(drive_join(&d, joins[i]), MUSTER_OK);
    }
    assert_string_equal(drive_ranks(&d), "a0 a3 | b1 b1too");
    drive_finish(&d);
}

static void survivors_keep_their_order_and_newcomers_come_after_them_on_their_host(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 4);
    drive_join_all(&d, "b0 a0 b1 a1", 0, 0);
    assert_string_equal(drive_ranks(&d), "b0 b1 | a0 a1");
    drive_join_all(&d, "b2 c0 a2", 0, 0);
    drive_join_all(&d, "a1 a0 b1 b0", 1, 1);
    assert_int_equal(drive_generation(&d), 2);
    assert_string_equal(drive_ranks(&d), "b0 b1 b2 | a0 a1 a2 | c0");
    drive_finish(&d);
}

static void hosts_are_ordered_by_their_longest_serving_member(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 2);
    drive_join_all(&d, "a0 b0", 0, 0);
    drive_join_all(&d, "a1", 0, 0);
    drive_join_all(&d, "a0 b0", 1, 0);
    assert_string_equal(drive_ranks(&d), "a0 a1 | b0");
    assert_int_equal(drive_leave(&d, "a0", 2, MUSTER_LEAVE_PLANNED, "SIGTERM"), MUSTER_OK);
    drive_join_all(&d, "a1 b0", 2, 0);
    assert_string_equal(drive_ranks(&d), "b0 | a1");
    drive_finish(&d);
}

static void the_newest_state_becomes_rank_0_and_brings_its_host_along(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 5);
    drive_join_all(&d, "a0 b0 c0", 0, 4);
    drive_join_all(&d, "b1", 0, 7);
    drive_join_all(&d, "a1", 0, 7);
    assert_string_equal(drive_ranks(&d), "a1 a0 | b0 b1 | c0");
    struct muster_generation_view view = muster_membership_generation(d.membership);
    assert_int_equal(view.state_version, 7);
    assert_int_equal(view.state_source, 0);
    const uint8_t stale[] = {0, 1, 1, 0, 1};
    assert_memory_equal(view.stale, stale, sizeof stale);
    drive_finish(&d);
}

static void ranks_are_as_the_readme_draws_them(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 4);
    drive_join_all(&d, "b0 a0 b1 a1", 0, 0);
    assert_string_equal(drive_ranks(&d), "b0 b1 | a0 a1");
    drive_join_all(&d, "a2 c0", 0, 0);
    drive_join_all(&d, "b0 a0 b1 a1", 1, 1);
    assert_string_equal(drive_ranks(&d), "b0 b1 | a0 a1 a2 | c0");
    drive_join_all(&d, "a1", 2, 3);
    drive_join_all(&d, "a0 a2 c0 b1", 2, 2);
    assert_int_equal(drive_leave(&d, "b0", 2, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_string_equal(drive_ranks(&d), "a1 a0 a2 | b1 | c0");
    drive_finish(&d);
}

static void without_any_state_everyone_but_rank_0_is_stale(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 3);
    drive_join_all(&d, "a0 a1 a2", 0, 0);
    struct muster_generation_view view = muster_membership_generation(d.membership);
    const uint8_t stale[] = {0, 1, 1};
    assert_int_equal(view.state_version, 0);
    assert_memory_equal(view.stale, stale, sizeof stale);
    drive_finish(&d);
}

static void newcomers_beyond_max_wait_and_survivors_come_first(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 3, 2);
    drive_join_all(&d, "a0 a1", 0, 0);
    drive_join_all(&d, "a2 a3", 0, 0);
    assert_true(muster_membership_pending(d.membership));
    drive_join_all(&d, "a0 a1", 1, 1);
    assert_string_equal(drive_ranks(&d), "a0 a1 a2");
    assert_int_equal(drive_member(&d, "a3").phase, MUSTER_MEMBER_ARRIVED);
    assert_false(muster_membership_pending(d.membership));
    drive_wait(&d, 1000);
    assert_false(muster_membership_pending(d.membership));
    assert_int_equal(drive_leave(&d, "a1", 2, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    drive_join_all(&d, "a0 a2", 2, 1);
    assert_string_equal(drive_ranks(&d), "a0 a2 a3");
    drive_finish(&d);
}

static void enough_survivors_form_at_once_without_waiting_for_newcomers(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 8, 3);
    drive_join_all(&d, "a0 a1 a2", 0, 0);
    assert_int_equal(drive_leave(&d, "a1", 1, MUSTER_LEAVE_FAILED, "no disk"), MUSTER_OK);
    drive_join_all(&d, "a2 a0", 1, 1);
    assert_int_equal(drive_generation(&d), 2);
    assert_string_equal(drive_ranks(&d), "a0 a2");
    drive_finish(&d);
}

static void too_few_survivors_wait_for_newcomers_to_settle(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 8, 3);
    drive_join_all(&d, "a0 a1 a2", 0, 0);
    assert_int_equal(drive_leave(&d, "a1", 1, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_int_equal(drive_leave(&d, "a2", 1, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    drive_join_all(&d, "a0", 1, 1);
    drive_wait(&d, 1000);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_join_all(&d, "b0", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_wait(&d, d.settings.settle_ms);
    assert_string_equal(drive_ranks(&d), "a0 | b0");
    drive_finish(&d);
}

static void only_survivors_that_are_still_there_count_as_such(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 8, 3);
    drive_join_all(&d, "a0 a1 a2", 0, 0);
    drive_join_all(&d, "a0 a1 a2", 1, 1);
    drive_join_all(&d, "a0 a1", 2, 2);
    assert_int_equal(drive_leave(&d, "a1", 2, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_int_equal(drive_leave(&d, "a2", 2, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    drive_join_all(&d, "b0", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_wait(&d, d.settings.settle_ms);
    assert_string_equal(drive_ranks(&d), "a0 | b0");
    assert_int_equal(drive_generation(&d), 3);
    drive_join_all(&d, "a0", 3, 3);
    assert_int_equal(drive_leave(&d, "b0", 3, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    drive_join_all(&d, "b1", 0, 0);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_FORMING);
    drive_finish(&d);
}

static void a_job_that_begins_with_higher_numbers_goes_on_from_them(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 2);
    drive_join_all(&d, "a0 a1", 41, 9);
    assert_int_equal(drive_generation(&d), 42);
    drive_finish(&d);
}

static void join_rack(struct drive *d, const char *id, const char *rack, uint64_t generation,
                      uint64_t version)
{
    const char host[2] = {id[0], '\0'};
    struct join join = {
        .id = id, .host = host, .rack = rack, .generation = generation, .version = version};
    assert_int_equal(drive_join(d, join), MUSTER_OK);
}

static void the_hosts_of_a_rack_have_contiguous_ranks(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 6);
    join_rack(&d, "b0", "r1", 0, 0);
    join_rack(&d, "a0", "r2", 0, 0);
    join_rack(&d, "c0", "r1", 0, 0);
    join_rack(&d, "e0", NULL, 0, 0);
    join_rack(&d, "b1", "r1", 0, 0);
    join_rack(&d, "a1", "r2", 0, 0);
    assert_string_equal(drive_ranks(&d), "b0 b1 | c0 | a0 a1 | e0");
    drive_finish(&d);
}

static void the_rack_of_the_newest_state_comes_first(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 8, 5);
    join_rack(&d, "a0", "r1", 0, 0);
    join_rack(&d, "b0", "r1", 0, 0);
    join_rack(&d, "c0", "r2", 0, 0);
    join_rack(&d, "d0", "r2", 0, 3);
    join_rack(&d, "d1", "r2", 0, 4);
    assert_string_equal(drive_ranks(&d), "d1 d0 | c0 | a0 | b0");
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_generation_forms_at_once_when_the_target_is_reached),
        cmocka_unit_test(first_generation_forms_when_newcomers_have_settled),
        cmocka_unit_test(first_generation_forms_at_once_when_max_is_reached),
        cmocka_unit_test(nothing_forms_below_min_however_long_it_takes),
        cmocka_unit_test(ranks_are_contiguous_on_a_host_whatever_the_order_of_arrival),
        cmocka_unit_test(newcomers_of_one_moment_are_ranked_by_order_then_arrival),
        cmocka_unit_test(survivors_keep_their_order_and_newcomers_come_after_them_on_their_host),
        cmocka_unit_test(hosts_are_ordered_by_their_longest_serving_member),
        cmocka_unit_test(the_newest_state_becomes_rank_0_and_brings_its_host_along),
        cmocka_unit_test(ranks_are_as_the_readme_draws_them),
        cmocka_unit_test(without_any_state_everyone_but_rank_0_is_stale),
        cmocka_unit_test(newcomers_beyond_max_wait_and_survivors_come_first),
        cmocka_unit_test(enough_survivors_form_at_once_without_waiting_for_newcomers),
        cmocka_unit_test(too_few_survivors_wait_for_newcomers_to_settle),
        cmocka_unit_test(only_survivors_that_are_still_there_count_as_such),
        cmocka_unit_test(a_job_that_begins_with_higher_numbers_goes_on_from_them),
        cmocka_unit_test(the_hosts_of_a_rack_have_contiguous_ranks),
        cmocka_unit_test(the_rack_of_the_newest_state_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
