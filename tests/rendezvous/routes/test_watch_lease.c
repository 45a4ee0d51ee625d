/* A Watch that is held for longer than a lease is a lasting sign of life, and the lease begins
 * where it ended. These tests take seconds, because the passing of time is what they test. */
#include "rendezvous/service/jobs.h"
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/base/clock.h"

enum { LEASE_MS = 1200, WATCH_MS = 4000, MEMBERS = 2 };

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    struct test_call calls[MEMBERS];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.watch_ms = WATCH_MS;
    config.settings.lease_ms = LEASE_MS;
    config.settings.settle_ms = 1000;
    fixture->service = test_local_service_open(&config, NULL, &fixture->store);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    test_local_service_close(fixture->service, fixture->store);
    free(fixture);
    return 0;
}

static void start_watch(struct fixture *fixture, unsigned member)
{
    test_call_start(&fixture->calls[member], fixture->service, MUSTER_RPC_WATCH, NULL,
                    "{'job':'j','member':'%s','generation':'1'}", test_member(member));
    assert_true(fixture->calls[member].held);
}

/* All of them watch. */
static void form(struct fixture *fixture, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        test_call_start(&fixture->calls[i], fixture->service, MUSTER_RPC_JOIN, NULL,
                        "{'job':'j','member':'%s','host':'h','minSize':1,'targetSize':%u}",
                        test_member(i), count);
    }
    for (unsigned i = 0; i < count; i++) {
        test_call_expect(&fixture->calls[i], MUSTER_RPC_OK, "");
        start_watch(fixture, i);
    }
}

/* Its Watch says that nothing has changed. */
static void expect_quiet(struct fixture *fixture, unsigned member)
{
    assert_true(test_call_wait(&fixture->calls[member]));
    assert_int_equal(fixture->calls[member].code, MUSTER_RPC_OK);
    assert_true(json_is_false(test_part(fixture->calls[member].json, "revoked")));
    test_call_finish(&fixture->calls[member]);
}

/* Its Watch says that the other member's lease is lost. */
static void expect_loss(struct fixture *fixture, unsigned member)
{
    assert_true(test_call_wait(&fixture->calls[member]));
    assert_true(json_is_true(test_part(fixture->calls[member].json, "revoked")));
    assert_non_null(strstr(test_part_text(fixture->calls[member].json, "reason"), "lease lost"));
    test_call_finish(&fixture->calls[member]);
}

/* In the first seconds Watches are shorter, see muster_transaction_watch_ms(). */
static void a_member_lives_while_its_watch_is_held_for_longer_than_a_lease(void **state)
{
    struct fixture *fixture = *state;
    const int64_t long_ns = (int64_t)2 * LEASE_MS * MUSTER_NS_PER_MS;
    int64_t deadline_ns = muster_clock_after_ms(60000);
    int64_t held_ns = 0;
    form(fixture, 1);
    while (held_ns < long_ns) {
        int64_t began_ns = muster_clock_ns();
        assert_true(muster_clock_left_ms(deadline_ns) > 0);
        expect_quiet(fixture, 0);
        held_ns = muster_clock_ns() - began_ns;
        start_watch(fixture, 0);
    }
    muster_service_quiesce(fixture->service);
    test_call_finish(&fixture->calls[0]);
}

/* As a member that is stopped: nobody closes its connection. */
static void a_member_that_does_not_come_back_when_asked_is_dead_a_lease_later(void **state)
{
    struct fixture *fixture = *state;
    struct test_call report;
    form(fixture, MEMBERS);
    test_call_start(&report, fixture->service, MUSTER_RPC_REPORT, NULL,
                    "{'job':'j','member':'%s','generation':'1','kind':'REPORT_KIND_WAITING'}",
                    test_member(0));
    test_call_expect(&report, MUSTER_RPC_OK, "");
    int64_t asked_ns = muster_clock_ns();
    expect_quiet(fixture, 0);
    expect_quiet(fixture, 1);
    start_watch(fixture, 0);
    expect_loss(fixture, 0);
    assert_true(muster_clock_ns() - asked_ns >= (int64_t)(LEASE_MS - 100) * MUSTER_NS_PER_MS);
}

/* Its stream ends without a message, and the member opens the next. */
static void a_member_that_streams_is_asked_too(void **state)
{
    struct fixture *fixture = *state;
    struct test_call stream;
    struct test_call report;
    form(fixture, MEMBERS);
    test_call_start(&stream, fixture->service, MUSTER_RPC_WATCH_STREAM, NULL,
                    "{'job':'j','member':'%s','generation':'1'}", test_member(1));
    assert_true(stream.held);
    test_call_expect(&fixture->calls[1], MUSTER_RPC_CANCELED, "newer request");
    test_call_start(&report, fixture->service, MUSTER_RPC_REPORT, NULL,
                    "{'job':'j','member':'%s','generation':'1','kind':'REPORT_KIND_WAITING'}",
                    test_member(0));
    test_call_expect(&report, MUSTER_RPC_OK, "");
    expect_quiet(fixture, 0);
    assert_int_equal(atomic_load(&fixture->service->metrics.held), 0);
    assert_true(test_call_wait(&stream));
    assert_int_equal(stream.code, MUSTER_RPC_OK);
    assert_null(stream.json);
    test_call_finish(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_member_lives_while_its_watch_is_held_for_longer_than_a_lease, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_member_that_does_not_come_back_when_asked_is_dead_a_lease_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_member_that_streams_is_asked_too, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
