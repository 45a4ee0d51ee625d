/* As many members as a job may have. The tests would time out if an event took time quadratic in
 * them. */
#include "tests/elastic/membership/drive.h"

enum { HOSTS = 512, HOST_SIZE = MUSTER_MEMBERS_MAX / HOSTS };

static struct muster_event make_join(const struct drive *d, unsigned number, uint64_t generation)
{
    struct muster_event event = {.kind = MUSTER_EVENT_JOIN, .now_ms = d->now_ms};
    event.settings = d->settings;
    (void)snprintf(event.info.id, sizeof event.info.id, "m%u", number);
    (void)snprintf(event.info.host, sizeof event.info.host, "h%u", number % HOSTS);
    event.info.order = number / HOSTS;
    event.info.generation = generation;
    return event;
}

static void apply(struct drive *d, const struct muster_event *event)
{
    struct muster_actions actions;
    assert_int_equal(muster_membership_apply(d->membership, event, &actions), MUSTER_OK);
    muster_actions_finish(&actions);
}

static void join_all(struct drive *d, uint64_t generation)
{
    for (unsigned i = 0; i < MUSTER_MEMBERS_MAX; i++) {
        struct muster_event event = make_join(d, i, generation);
        apply(d, &event);
        assert_false(muster_membership_due(d->membership, d->now_ms, &event));
    }
}

static void a_full_job_forms_is_revoked_forms_again_and_refuses_one_more(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, MUSTER_MEMBERS_MAX, MUSTER_MEMBERS_MAX, 0);
    for (uint64_t generation = 0; generation < 4; generation++) {
        join_all(&d, generation);
        struct muster_generation_view view = muster_membership_generation(d.membership);
        assert_int_equal(view.number, generation + 1);
        assert_int_equal(view.size, MUSTER_MEMBERS_MAX);
        assert_int_equal(view.hosts, HOSTS);
        for (unsigned host = 0; host < HOSTS; host++) {
            assert_int_equal(view.host_sizes[host], HOST_SIZE);
        }
        assert_string_equal(view.members[0], "m0");
        assert_string_equal(view.members[1], "m512");
        assert_string_equal(view.members[HOST_SIZE], "m1");
    }
    struct muster_event event = make_join(&d, MUSTER_MEMBERS_MAX, 0);
    assert_int_equal(muster_membership_check(d.membership, &event), MUSTER_INVALID);
    assert_string_equal(muster_last_error(), "the job is full: it has 16384 members");
    drive_finish(&d);
}

static void the_members_of_a_full_job_die_one_by_one_with_an_action_each(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, MUSTER_MEMBERS_MAX, 0);
    join_all(&d, 0);
    drive_wait(&d, d.settings.lease_ms);
    assert_int_equal(drive_phase(&d), MUSTER_JOB_ENDED);
    assert_int_equal(muster_membership_check_member(d.membership, "m0"), MUSTER_REJOIN);
    assert_int_equal(muster_membership_check_member(d.membership, "m16383"), MUSTER_REJOIN);
    drive_finish(&d);
}

static void members_that_left_long_ago_are_forgotten(void **state)
{
    (void)state;
    struct drive d;
    drive_init(&d, 1, 1, 0);
    for (unsigned i = 0; i < 2 * MUSTER_MEMBERS_MAX + 3; i++) {
        struct muster_event join = make_join(&d, i, 0);
        struct muster_event leave = {
            .kind = MUSTER_EVENT_LEAVE, .now_ms = d.now_ms, .leave_reason = MUSTER_LEAVE_PLANNED};
        memcpy(leave.member, join.info.id, sizeof leave.member);
        apply(&d, &join);
        apply(&d, &leave);
    }
    struct muster_event again = make_join(&d, 3, 0);
    assert_int_equal(muster_membership_check(d.membership, &again), MUSTER_ENDED);
    again = make_join(&d, 2, 0);
    assert_int_equal(muster_membership_check(d.membership, &again), MUSTER_OK);
    drive_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_job_forms_is_revoked_forms_again_and_refuses_one_more),
        cmocka_unit_test(the_members_of_a_full_job_die_one_by_one_with_an_action_each),
        cmocka_unit_test(members_that_left_long_ago_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
