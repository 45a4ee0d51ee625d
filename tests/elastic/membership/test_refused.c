/* Which events are refused, and with which texts. */
#include "tests/elastic/membership/drive.h"

static void refuse(struct drive *d, const struct muster_event *event, muster_status expected,
                   const char *expected_text)
{
    uint32_t count = muster_membership_count(d->membership);
    assert_int_equal(drive_once(d, event), expected);
    assert_string_equal(muster_last_error(), expected_text);
    assert_int_equal(muster_membership_count(d->membership), count);
}

static struct muster_event make_join(const struct drive *d, const char *id)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_JOIN, id);
    event.settings = d->settings;
    (void)snprintf(event.info.id, sizeof event.info.id, "%s", id);
    (void)snprintf(event.info.host, sizeof event.info.host, "a");
    return event;
}

static void joins_with_broken_info_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 0);
    struct muster_event event = make_join(&d, "");
    refuse(&d, &event, MUSTER_INVALID, "member is empty");
    event = make_join(&d, "a0");
    memset(event.info.id, 'x', sizeof event.info.id);
    refuse(&d, &event, MUSTER_INVALID, "member is longer than 36 bytes");
    event = make_join(&d, "a0");
    event.info.host[0] = '\0';
    refuse(&d, &event, MUSTER_INVALID, "host is empty");
    event = make_join(&d, "a0");
    event.info.address_count = MUSTER_MEMBER_ADDRESSES_MAX + 1;
    refuse(&d, &event, MUSTER_INVALID, "17 addresses, at most 16 are allowed");
    event = make_join(&d, "a0");
    event.info.address_count = 1;
    refuse(&d, &event, MUSTER_INVALID, "address is empty");
    event = make_join(&d, "a0");
    event.info.generation = UINT64_MAX;
    refuse(&d, &event, MUSTER_INVALID,
           "generation 18446744073709551615 is over 371089469341695: its epoch 4294967295 is more "
           "than a day after this server's, 0");
    drive_finish(&d);
}

static void a_host_cannot_be_in_two_racks(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 4);
    struct muster_event event = make_join(&d, "a0");
    (void)snprintf(event.info.rack, sizeof event.info.rack, "r1");
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    event = make_join(&d, "a1");
    refuse(&d, &event, MUSTER_INVALID,
           "host a is in rack \"\", but other members have it in rack \"r1\"");
    memset(event.info.rack, 'x', sizeof event.info.rack);
    refuse(&d, &event, MUSTER_INVALID, "rack is longer than 63 bytes");
    (void)snprintf(event.info.rack, sizeof event.info.rack, "r1");
    assert_int_equal(drive_once(&d, &event), MUSTER_OK);
    drive_finish(&d);
}

static void joins_with_impossible_settings_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 4, 0);
    struct muster_event event = make_join(&d, "a0");
    event.settings.min_size = 0;
    refuse(&d, &event, MUSTER_INVALID, "min size 0: at least 1 member is needed");
    event = make_join(&d, "a0");
    event.settings.max_size = 1;
    refuse(&d, &event, MUSTER_INVALID, "max size 1 is not in 2..16384");
    event.settings.max_size = 16385;
    refuse(&d, &event, MUSTER_INVALID, "max size 16385 is not in 2..16384");
    event = make_join(&d, "a0");
    event.settings.target_size = 5;
    refuse(&d, &event, MUSTER_INVALID, "target size 5 is not in min..max, 2..4");
    event = make_join(&d, "a0");
    event.settings.lease_ms = 0;
    refuse(&d, &event, MUSTER_INVALID, "lease_ms 0 is not in 1..86400000");
    drive_finish(&d);
}

static void the_wire_version_is_that_of_the_first_member(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 0);
    struct muster_event event = make_join(&d, "a0");
    event.settings.wire_version = 7;
    assert_int_equal(drive_event(&d, &event), MUSTER_OK);
    event = make_join(&d, "a1");
    refuse(&d, &event, MUSTER_INVALID,
           "wire version 0, but the job has wire version 7: all members need the same");
    event.settings.wire_version = 8;
    (void)snprintf(event.info.library, sizeof event.info.library, "0.9.1");
    refuse(&d, &event, MUSTER_INVALID,
           "wire version 8 (libmuster 0.9.1), but the job has wire version 7: all members need the "
           "same");
    event.settings.wire_version = 7; /* the library may be another */
    assert_int_equal(drive_event(&d, &event), MUSTER_OK);
    drive_finish(&d);
}

static void joins_must_agree_on_min_and_max_but_not_on_the_target(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 4, 3);
    drive_join_all(&d, "a0", 0, 0);
    struct muster_event event = make_join(&d, "a1");
    event.settings.min_size = 1;
    refuse(&d, &event, MUSTER_INVALID, "min size 1, but the job has min size 2");
    event = make_join(&d, "a1");
    event.settings.max_size = 5;
    refuse(&d, &event, MUSTER_INVALID, "max size 5, but the job has max size 4");
    event = make_join(&d, "a1");
    event.settings.target_size = 4;
    assert_int_equal(drive_event(&d, &event), MUSTER_OK);
    assert_int_equal(muster_membership_settings(d.membership).target_size, 3);
    drive_finish(&d);
}

static void events_of_unknown_members_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 1);
    drive_join_all(&d, "a0", 0, 0);
    struct muster_event event = drive_make(&d, MUSTER_EVENT_LEAVE, "x");
    event.leave_reason = MUSTER_LEAVE_PLANNED;
    refuse(&d, &event, MUSTER_ENDED, "member x is not in this job");
    event = drive_make(&d, MUSTER_EVENT_REPORT, "x");
    (void)snprintf(event.suspect, sizeof event.suspect, "a0");
    event.generation = 1;
    refuse(&d, &event, MUSTER_REJOIN, "member x is not in this job");
    event = drive_make(&d, MUSTER_EVENT_DISCONNECT, "x");
    refuse(&d, &event, MUSTER_INVALID, "member x is not in this job");
    event = drive_make(&d, MUSTER_EVENT_DEATH, "x");
    refuse(&d, &event, MUSTER_INVALID, "member x is not in this job");
    drive_heartbeat(&d, "x");
    drive_finish(&d);
}

static void reports_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 4, 2);
    drive_join_all(&d, "a0 a1", 0, 0);
    drive_join_all(&d, "n0", 0, 0);
    assert_int_equal(drive_report(&d, "a0", "a0", 1, ""), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "member a0 reports itself");
    assert_int_equal(drive_report(&d, "a0", "n0", 1, ""), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "suspect n0 is not in generation 1");
    assert_int_equal(drive_report(&d, "a0", "x", 1, ""), MUSTER_INVALID);
    assert_int_equal(drive_report(&d, "a0", "", 1, ""), MUSTER_INVALID);
    assert_int_equal(drive_report(&d, "n0", "a0", 1, ""), MUSTER_REJOIN);
    drive_join_all(&d, "a0 a1", 1, 0);
    assert_int_equal(drive_generation(&d), 2);
    assert_int_equal(drive_report(&d, "a0", "a1", 1, ""), MUSTER_REJOIN);
    assert_string_equal(muster_last_error(),
                        "generation 1 is not that of member a0, and the last one is 2");
    assert_int_equal(drive_leave(&d, "a1", 2, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_int_equal(drive_report(&d, "a0", "a1", 2, ""), MUSTER_REJOIN);
    assert_string_equal(muster_last_error(),
                        "generation 2 is over: rank 1 (host a, pid 4711) left");
    drive_finish(&d);
}

static void resizes_out_of_bounds_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 2, 4, 0);
    struct muster_event event = drive_make(&d, MUSTER_EVENT_RESIZE, "");
    event.target_size = 3;
    refuse(&d, &event, MUSTER_INVALID, "target size 3: nobody has joined yet");
    drive_join_all(&d, "a0", 0, 0);
    event.target_size = 0;
    refuse(&d, &event, MUSTER_INVALID, "target size 0 is not in min..max, 2..4");
    event.target_size = 1;
    refuse(&d, &event, MUSTER_INVALID, "target size 1 is not in min..max, 2..4");
    event.target_size = 5;
    refuse(&d, &event, MUSTER_INVALID, "target size 5 is not in min..max, 2..4");
    drive_finish(&d);
}

static void events_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 1);
    drive_join_all(&d, "a0", 0, 0);
    struct muster_event event = drive_make(&d, (enum muster_event_kind)99, "a0");
    refuse(&d, &event, MUSTER_INVALID, "event kind 99 is not known");
    event = drive_make(&d, MUSTER_EVENT_LEAVE, "a0");
    refuse(&d, &event, MUSTER_INVALID, "leave reason 0 is not known");
    event = drive_make(&d, MUSTER_EVENT_TICK, "");
    event.now_ms = -1;
    refuse(&d, &event, MUSTER_INVALID, "time -1 is not in 0..4611686018427387903");
    event.now_ms = INT64_MAX;
    refuse(&d, &event, MUSTER_INVALID, "time 9223372036854775807 is not in 0..4611686018427387903");
    drive_finish(&d);
}

static void texts_from_outside_are_cut_and_stay_one_line(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 4, 2);
    drive_join_all(&d, "a0 a1", 0, 0);
    char why[MUSTER_WHY_SIZE];
    memset(why, 'y', sizeof why - 1);
    why[0] = '\n';
    why[sizeof why - 1] = '\0';
    assert_int_equal(drive_leave(&d, "a1", 1, MUSTER_LEAVE_FAILED, why), MUSTER_OK);
    const char *recorded = drive_departure_why(&d, "a1");
    assert_int_equal(strlen(recorded), MUSTER_WHY_SIZE - 1);
    assert_null(strchr(recorded, '\n'));
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_with_broken_info_are_refused),
        cmocka_unit_test(joins_with_impossible_settings_are_refused),
        cmocka_unit_test(the_wire_version_is_that_of_the_first_member),
        cmocka_unit_test(joins_must_agree_on_min_and_max_but_not_on_the_target),
        cmocka_unit_test(events_of_unknown_members_are_refused),
        cmocka_unit_test(reports_that_make_no_sense_are_refused),
        cmocka_unit_test(resizes_out_of_bounds_are_refused),
        cmocka_unit_test(events_that_do_not_exist_are_refused),
        cmocka_unit_test(texts_from_outside_are_cut_and_stay_one_line),
        cmocka_unit_test(a_host_cannot_be_in_two_racks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
