/* The slots of members: who gets which, and who is refused. */
#include "tests/elastic/membership/drive.h"

static struct muster_event make_join(const struct drive *d, const char *id)
{
    struct muster_event event = drive_make(d, MUSTER_EVENT_JOIN, id);
    event.settings = d->settings;
    (void)snprintf(event.info.id, sizeof event.info.id, "%s", id);
    (void)snprintf(event.info.host, sizeof event.info.host, "%c", id[0]);
    event.info.pid = 12;
    return event;
}

/* lock: "" for none. */
static muster_status join_slot(struct drive *d, const char *id, uint32_t slot, const char *lock,
                               bool any)
{
    struct muster_event event = make_join(d, id);
    event.info.has_slot = true;
    event.info.slot = slot;
    event.info.slot_any = any;
    (void)snprintf(event.info.slot_lock, sizeof event.info.slot_lock, "%s", lock);
    return drive_event(d, &event);
}

static int slot_of(const struct drive *d, const char *id)
{
    struct muster_member_view view;
    assert_true(muster_membership_find(d->membership, id, &view));
    return view.info->has_slot ? (int)view.info->slot : -1;
}

static void each_host_gives_its_lowest_free_slot(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 16, 5);
    drive_join_all(&d, "a0 b0 a1 a2 b1", 0, 0);
    assert_int_equal(slot_of(&d, "a0"), 0);
    assert_int_equal(slot_of(&d, "a1"), 1);
    assert_int_equal(slot_of(&d, "a2"), 2);
    assert_int_equal(slot_of(&d, "b0"), 0);
    assert_int_equal(slot_of(&d, "b1"), 1);
    assert_int_equal(drive_leave(&d, "a1", 1, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    assert_int_equal(drive_leave(&d, "a0", 1, MUSTER_LEAVE_PLANNED, ""), MUSTER_OK);
    drive_join_all(&d, "a3 a4 a5", 0, 0);
    assert_int_equal(slot_of(&d, "a3"), 0);
    assert_int_equal(slot_of(&d, "a4"), 1);
    assert_int_equal(slot_of(&d, "a5"), 3);
    drive_join_all(&d, "a2", 1, 0); /* it was revoked by the others' Leave, and keeps its slot */
    assert_int_equal(slot_of(&d, "a2"), 2);
    drive_finish(&d);
}

static void a_slot_that_another_member_has_is_refused_by_name(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 16, 2);
    assert_int_equal(join_slot(&d, "a0", 1, "boot", false), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a1", 1, "", false), MUSTER_INVALID);
    assert_string_equal(muster_last_error(),
                        "slot 1 of host a is held by newcomer (host a, pid 12)");
    assert_int_equal(join_slot(&d, "a1", 1, "other boot", false), MUSTER_INVALID);
    assert_int_equal(join_slot(&d, "b1", 1, "other boot", false), MUSTER_OK); /* another host */
    assert_int_equal(join_slot(&d, "a1", 1, "other boot", false), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "slot 1 of host a is held by rank 0 (host a, pid 12)");
    assert_int_equal(join_slot(&d, "a1", MUSTER_MEMBERS_MAX, "", false), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "slot 16384 is not below 16384");
    assert_int_equal(join_slot(&d, "a0", 1, "boot", false), MUSTER_OK); /* its own */
    drive_finish(&d);
}

static void a_newcomer_to_whom_any_slot_will_do_gets_a_free_one(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 16, 3);
    assert_int_equal(join_slot(&d, "a0", 0, "one container", true), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a1", 0, "another container", true), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a2", 7, "a third", true), MUSTER_OK);
    assert_int_equal(slot_of(&d, "a0"), 0);
    assert_int_equal(slot_of(&d, "a1"), 1);
    assert_int_equal(slot_of(&d, "a2"), 7);
    drive_finish(&d);
}

/* The kernel gives a lock to nobody else while its holder's process exists. */
static void who_holds_the_lock_of_a_slot_has_outlived_the_one_that_is_listed_with_it(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 16, 3);
    assert_int_equal(join_slot(&d, "a0", 0, "boot", false), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a1", 1, "boot", false), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a2", 2, "boot", false), MUSTER_OK);
    assert_int_equal(join_slot(&d, "a3", 1, "boot", false), MUSTER_OK);
    assert_int_equal(slot_of(&d, "a3"), 1);
    assert_int_equal(slot_of(&d, "a0"), 0);
    assert_int_equal(slot_of(&d, "a2"), 2);
    assert_int_equal(slot_of(&d, "a1"), 3); /* until the service knows that it has died */
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_host_gives_its_lowest_free_slot),
        cmocka_unit_test(a_slot_that_another_member_has_is_refused_by_name),
        cmocka_unit_test(a_newcomer_to_whom_any_slot_will_do_gets_a_free_one),
        cmocka_unit_test(who_holds_the_lock_of_a_slot_has_outlived_the_one_that_is_listed_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
