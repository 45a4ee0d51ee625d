/* Who is asked to dial a doubted member, and how often. */
#include "rendezvous/service/doubts.h"
#include "tests/elastic/membership/drive.h"
#include "worker/base/clock.h"

enum { MEMBERS = 6, ROUNDS = 5 };

/* All members dial; the last one is doubted. */
static void form(struct drive *drive)
{
    static const char *const ids[MEMBERS] = {"a0", "a1", "a2", "a3", "a4", "a5"};
    drive_init(drive, MEMBERS, MEMBERS, 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct muster_event event = drive_make(drive, MUSTER_EVENT_JOIN, ids[i]);
        event.settings = drive->settings;
        event.info = (struct muster_member_info){.address_count = 1,
                                                 .addresses = {"tcp://127.0.0.1:1"},
                                                 .host = "a",
                                                 .capabilities = "a=b\ndials=yes\n"};
        (void)snprintf(event.info.id, sizeof event.info.id, "%s", ids[i]);
        assert_int_equal(drive_event(drive, &event), MUSTER_OK);
    }
    assert_int_equal(drive_phase(drive), MUSTER_JOB_RUNNING);
    muster_membership_doubt(drive->membership, "a5");
}

static uint32_t ask(struct muster_doubts *doubts, const struct drive *drive, const char *witness)
{
    struct muster_member_view views[MUSTER_DOUBTS_ASKED_MAX];
    uint32_t count = muster_doubts_ask(doubts, drive->membership, witness, views);
    assert_true(count <= 1);
    assert_true(count == 0 || strcmp(views[0].info->id, "a5") == 0);
    return count;
}

static void three_witnesses_are_asked_once_each(void **state)
{
    (void)state;
    struct muster_doubts doubts = {0};
    struct drive drive;
    form(&drive);
    assert_true(muster_doubts_add(&doubts, drive.membership, "a5"));
    assert_false(muster_doubts_add(&doubts, drive.membership, "a5"));
    assert_false(muster_doubts_add(&doubts, drive.membership, "a0")); /* nobody doubts it */
    assert_int_equal(doubts.count, 1);
    assert_int_equal(ask(&doubts, &drive, "a5"), 0);
    assert_int_equal(ask(&doubts, &drive, "a0"), 1);
    assert_int_equal(ask(&doubts, &drive, "a0"), 0);
    assert_int_equal(ask(&doubts, &drive, "a1"), 1);
    assert_int_equal(ask(&doubts, &drive, "a2"), 1);
    assert_false(muster_doubts_need(&doubts, drive.membership, "a3"));
    assert_int_equal(ask(&doubts, &drive, "a3"), 0);
    muster_membership_doubt(drive.membership, "a1"); /* it will not answer */
    assert_true(muster_doubts_need(&doubts, drive.membership, "a3"));
    assert_int_equal(ask(&doubts, &drive, "a3"), 1);
    assert_int_equal(ask(&doubts, &drive, "a4"), 0);
    drive_finish(&drive);
}

static void they_are_asked_again_a_few_times_less_and_less_often(void **state)
{
    (void)state;
    struct muster_doubts doubts = {0};
    struct drive drive;
    int64_t before_ns = muster_clock_ns();
    form(&drive);
    assert_true(muster_doubts_add(&doubts, drive.membership, "a5"));
    assert_true(muster_doubts_next_ns(&doubts) == MUSTER_NEVER); /* nobody was asked yet */
    int64_t wait_ns = (int64_t)20 * MUSTER_NS_PER_MS;
    for (unsigned round = 1; round < ROUNDS; round++) {
        assert_int_equal(ask(&doubts, &drive, "a0"), 1);
        int64_t next_ns = muster_doubts_next_ns(&doubts);
        assert_true(next_ns >= before_ns + wait_ns && next_ns < MUSTER_NEVER);
        assert_false(muster_doubts_renew(&doubts, drive.membership, next_ns - 1));
        assert_true(muster_doubts_renew(&doubts, drive.membership, next_ns));
        wait_ns *= 4;
    }
    assert_int_equal(ask(&doubts, &drive, "a0"), 1);
    assert_true(muster_doubts_next_ns(&doubts) == MUSTER_NEVER);
    assert_false(muster_doubts_renew(&doubts, drive.membership, MUSTER_NEVER));
    drive_finish(&drive);
}

static void a_sign_of_life_ends_a_doubt(void **state)
{
    (void)state;
    struct muster_doubts doubts = {0};
    struct drive drive;
    form(&drive);
    assert_true(muster_doubts_add(&doubts, drive.membership, "a5"));
    muster_membership_heartbeat(drive.membership, "a5", 0, drive.now_ms);
    assert_false(muster_doubts_need(&doubts, drive.membership, "a0"));
    assert_int_equal(ask(&doubts, &drive, "a0"), 0);
    assert_false(muster_doubts_renew(&doubts, drive.membership, MUSTER_NEVER));
    assert_int_equal(doubts.count, 0);
    drive_finish(&drive);
}

static void only_who_says_so_dials(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"dials=yes\n", "y"},
                                           {"a=b\ndials=yes\nc=d\n", "y"},
                                           {"", ""},
                                           {"a=dials=yes\n", ""},
                                           {"dials=no\n", ""}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct muster_member_info info = {0};
        (void)snprintf(info.capabilities, sizeof info.capabilities, "%s", texts[i][0]);
        assert_int_equal(muster_doubts_dials(&info), texts[i][1][0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_witnesses_are_asked_once_each),
        cmocka_unit_test(they_are_asked_again_a_few_times_less_and_less_often),
        cmocka_unit_test(a_sign_of_life_ends_a_doubt),
        cmocka_unit_test(only_who_says_so_dials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
