/* Members whose connection closed, or that a server which has started has not heard of: others are
 * asked to dial them, and a dial that is refused is a death. */
#include "tests/support/caller.h"
#include "tests/support/part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MEMBERS = 8, PATH_SIZE = 64 };

#define DIALS ",'capabilities':{'dials':'yes'}"

struct fixture {
    struct muster_store *store;
    struct muster_service *service;
    char path[PATH_SIZE];
    struct test_call calls[MEMBERS];
    struct {
        unsigned target;
        const char *more;
    } joins[MEMBERS]; /* the last of each */
};

/* Nothing ends by time: suspicions and leases last an hour. */
static void open_service(struct fixture *fixture)
{
    struct muster_service_config config;
    muster_service_config_init(&config);
    config.settings.lease_ms = 3600000;
    config.settings.suspect_ms = 3600000;
    config.hold_ms = 15000;
    fixture->service = test_local_service_open(&config, fixture->path, &fixture->store);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    char folder[] = "/tmp/muster-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/store", folder);
    open_service(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    static const char *const endings[] = {"", "-wal", "-shm", ".lock"};
    char path[PATH_SIZE + 8];
    test_local_service_close(fixture->service, fixture->store);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", fixture->path, endings[i]);
        (void)unlink(path);
    }
    *strrchr(fixture->path, '/') = '\0';
    assert_int_equal(rmdir(fixture->path), 0);
    free(fixture);
    return 0;
}

static void start_join(struct fixture *fixture, unsigned member, unsigned target, const char *more)
{
    fixture->joins[member].target = target;
    fixture->joins[member].more = more;
    test_call_start(&fixture->calls[member], fixture->service, MUSTER_RPC_JOIN, NULL,
                    "{'job':'j','member':'%s','host':'h','addresses':['tcp://10.0.0.%u:1'],"
                    "'minSize':1,'targetSize':%u,'order':%u%s}",
                    test_member(member), member, target, member, more);
}

static void rejoin(struct fixture *fixture, unsigned member, unsigned target)
{
    start_join(fixture, member, target, ",'generation':'1'" DIALS);
}

static void watch(struct fixture *fixture, unsigned member)
{
    test_call_start(&fixture->calls[member], fixture->service, MUSTER_RPC_WATCH, NULL,
                    "{'job':'j','member':'%s','generation':'1'}", test_member(member));
}

/* Its Join is answered, and no generation has formed: it may be asked again at any time. It joins
 * again. */
static void join_again(struct fixture *fixture, unsigned member)
{
    assert_true(json_is_object(test_part(fixture->calls[member].json, "waiting")));
    test_call_finish(&fixture->calls[member]);
    start_join(fixture, member, fixture->joins[member].target, fixture->joins[member].more);
}

static void expect_formed(struct fixture *fixture, unsigned member, unsigned size)
{
    struct test_call *call = &fixture->calls[member];
    assert_true(test_call_wait(call));
    while (test_part(call->json, "waiting") != NULL) {
        join_again(fixture, member);
        assert_true(test_call_wait(call));
    }
    assert_int_equal(call->code, MUSTER_RPC_OK);
    assert_int_equal(test_part_number(call->json, "formed.size"), size);
    test_call_finish(call);
}

/* The first `dial` members dial; all watch. */
static void form(struct fixture *fixture, unsigned count, unsigned dial)
{
    for (unsigned i = 0; i < count; i++) {
        start_join(fixture, i, count, i < dial ? DIALS : "");
    }
    for (unsigned i = 0; i < count; i++) {
        expect_formed(fixture, i, count);
    }
    for (unsigned i = 0; i < count; i++) {
        watch(fixture, i);
        assert_true(fixture->calls[i].held);
    }
}

/* The connection of its held request closes. */
static void disconnect(struct fixture *fixture, unsigned member)
{
    muster_rpc_disconnected(fixture->service, &fixture->calls[member].request.id);
    test_call_expect(&fixture->calls[member], MUSTER_RPC_CANCELED, "closed");
}

/* Another one of its connections closes, over which nothing is held. */
static void disconnect_idle(struct fixture *fixture, unsigned member)
{
    struct muster_held_id id = {.job = "j"};
    (void)snprintf(id.member, sizeof id.member, "%s", test_member(member));
    muster_rpc_disconnected(fixture->service, &id);
}

/* Whether the answer of this member's request names that one, in its list at this path. */
static bool asks(struct fixture *fixture, unsigned member, const char *path, unsigned doubted)
{
    char address[32];
    (void)snprintf(address, sizeof address, "tcp://10.0.0.%u:1", doubted);
    const json_t *list = test_part(fixture->calls[member].json, path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *peer = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(peer, "member")), test_member(doubted)) == 0) {
            const json_t *addresses = json_object_get(peer, "addresses");
            assert_string_equal(json_string_value(json_array_get(addresses, 0)), address);
            return true;
        }
    }
    return false;
}

/* How many Watches of the first `count` members have ended to ask for that one. They watch again.
 */
static unsigned count_asked(struct fixture *fixture, unsigned count, unsigned doubted)
{
    unsigned asked = 0;
    for (unsigned i = 0; i < count; i++) {
        struct test_call *call = &fixture->calls[i];
        if (i != doubted && call->held && test_call_is_answered(call)) {
            assert_false(json_is_true(test_part(call->json, "revoked")));
            asked += asks(fixture, i, "doubted", doubted);
            test_call_finish(call);
            watch(fixture, i);
        }
    }
    return asked;
}

static void report(struct fixture *fixture, unsigned reporter, unsigned suspect)
{
    struct test_call call;
    test_call_start(&call, fixture->service, MUSTER_RPC_REPORT, NULL,
                    "{'job':'j','member':'%s','suspectMember':'%s','kind':'REPORT_KIND_RESET'}",
                    test_member(reporter), test_member(suspect));
    test_call_expect(&call, MUSTER_RPC_OK, "");
}

/* After it may have been asked again. */
static void expect_revoked(struct fixture *fixture, unsigned member, const char *why)
{
    struct test_call *call = &fixture->calls[member];
    assert_true(test_call_wait(call));
    while (json_is_false(test_part(call->json, "revoked"))) {
        test_call_finish(call);
        watch(fixture, member);
        assert_true(test_call_wait(call));
    }
    assert_non_null(strstr(test_part_text(call->json, "reason"), why));
    test_call_finish(call);
}

static void quiesce(struct fixture *fixture, unsigned count)
{
    muster_service_quiesce(fixture->service);
    for (unsigned i = 0; i < count; i++) {
        test_call_finish(&fixture->calls[i]);
    }
}

static void three_are_asked_and_one_refusal_is_a_death(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 6, 6);
    disconnect(fixture, 5);
    assert_in_range(count_asked(fixture, 5, 5), 3,
                    5); /* more if it is late: they are asked again */
    report(fixture, 0, 5);
    for (unsigned i = 0; i < 5; i++) {
        expect_revoked(fixture, i,
                       "rank 5 (host h, pid 0) died: its process is gone: it refused a "
                       "dial of rank 0, and its connection closed");
    }
}

/* As where a host is lost with several members: those that were asked fall, too, before they have
 * answered. */
static void where_those_who_are_asked_are_doubted_others_are_asked(void **state)
{
    struct fixture *fixture = *state;
    bool fallen[6] = {false};
    form(fixture, 6, 6);
    disconnect(fixture, 5);
    for (unsigned i = 0; i < 5; i++) {
        fallen[i] = test_call_is_answered(&fixture->calls[i]);
    }
    for (unsigned i = 0; i < 5; i++) {
        if (fallen[i]) {
            assert_true(asks(fixture, i, "doubted", 5));
            test_call_finish(&fixture->calls[i]);
            disconnect_idle(fixture, i);
        }
    }
    unsigned left = 0;
    unsigned asked = 0;
    for (unsigned i = 0; i < 5; i++) {
        if (!fallen[i]) {
            left++;
            assert_true(test_call_wait(&fixture->calls[i]));
            asked += asks(fixture, i, "doubted", 5);
            test_call_finish(&fixture->calls[i]);
        }
    }
    assert_true(left <= 2);
    assert_true(asked >= 1 || left == 0); /* the first answer may be for the one that fell first */
}

static void an_idle_connection_counts_only_for_those_that_keep_theirs(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 3, 2);
    disconnect_idle(fixture, 1); /* its Watch is held: it has a newer connection */
    assert_int_equal(count_asked(fixture, 3, 1), 0);
    disconnect_idle(fixture, 2);
    assert_int_equal(count_asked(fixture, 3, 2), 0);
    report(fixture, 0, 1); /* nobody doubts it */
    assert_true(fixture->calls[0].held && !test_call_is_answered(&fixture->calls[0]));
    quiesce(fixture, 3);
}

static void who_cannot_dial_is_not_asked(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 3, 1);
    disconnect(fixture, 2);
    assert_int_equal(count_asked(fixture, 2, 2), 1); /* member 0 */
    assert_false(test_call_is_answered(&fixture->calls[1]));
    quiesce(fixture, 2);
}

/* A process that ends closes its connections before its listening socket. */
static void while_it_is_doubted_they_are_asked_again(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 2, 2);
    disconnect(fixture, 1);
    for (int times = 0; times < 3; times++) {
        assert_true(test_call_wait(&fixture->calls[0]));
        assert_true(asks(fixture, 0, "doubted", 1));
        test_call_finish(&fixture->calls[0]);
        watch(fixture, 0);
    }
    watch(fixture, 1); /* it is heard of */
    assert_true(fixture->calls[1].held && !test_call_is_answered(&fixture->calls[1]));
    quiesce(fixture, 2);
}

static void a_report_of_a_refusal_is_one_of_a_reset(void **state)
{
    struct fixture *fixture = *state;
    struct test_call call;
    form(fixture, 2, 2);
    test_call_start(&call, fixture->service, MUSTER_RPC_REPORT, NULL,
                    "{'job':'j','member':'%s','suspectMember':'%s','kind':'REPORT_KIND_WAITING'}",
                    test_member(0), test_member(1));
    test_call_expect(&call, MUSTER_RPC_INVALID_ARGUMENT, "suspectMember");
    quiesce(fixture, 2);
}

/* Nobody dead is let into a generation: the first one has joined, and its connection is closed
 * when the second one comes. */
static void nothing_forms_with_a_newcomer_that_is_doubted(void **state)
{
    struct fixture *fixture = *state;
    start_join(fixture, 0, 2, DIALS);
    disconnect(fixture, 0);
    start_join(fixture, 1, 2, DIALS);
    assert_true(test_call_wait(&fixture->calls[1]));
    assert_true(asks(fixture, 1, "waiting.doubted", 0));
    join_again(fixture, 1);
    start_join(fixture, 0, 2, DIALS); /* it lives, and had another reason */
    expect_formed(fixture, 0, 2);
    expect_formed(fixture, 1, 2);
}

static void a_newcomer_that_refuses_is_left_out(void **state)
{
    struct fixture *fixture = *state;
    start_join(fixture, 0, 2, DIALS);
    disconnect(fixture, 0);
    start_join(fixture, 1, 2, DIALS);
    start_join(fixture, 2, 2, DIALS);
    for (unsigned i = 1; i < 3; i++) {
        assert_true(test_call_wait(&fixture->calls[i]));
        assert_true(asks(fixture, i, "waiting.doubted", 0));
        join_again(fixture, i);
    }
    report(fixture, 1, 0);
    expect_formed(fixture, 1, 2);
    expect_formed(fixture, 2, 2);
}

/* The member died while the server was away; the others join again when it is back. */
static void after_a_start_those_that_are_not_heard_of_are_dialled(void **state)
{
    struct fixture *fixture = *state;
    form(fixture, 3, 3);
    quiesce(fixture, 3);
    test_local_service_close(fixture->service, fixture->store);
    open_service(fixture);
    rejoin(fixture, 0, 3);
    rejoin(fixture, 1, 3);
    assert_true(test_call_wait(&fixture->calls[1]));
    assert_true(asks(fixture, 1, "waiting.doubted", 2));
    join_again(fixture, 1);
    report(fixture, 1, 2);
    expect_formed(fixture, 0, 2);
    expect_formed(fixture, 1, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(three_are_asked_and_one_refusal_is_a_death),
        TEST(where_those_who_are_asked_are_doubted_others_are_asked),
        TEST(an_idle_connection_counts_only_for_those_that_keep_theirs),
        TEST(who_cannot_dial_is_not_asked),
        TEST(while_it_is_doubted_they_are_asked_again),
        TEST(a_report_of_a_refusal_is_one_of_a_reset),
        TEST(nothing_forms_with_a_newcomer_that_is_doubted),
        TEST(a_newcomer_that_refuses_is_left_out),
        TEST(after_a_start_those_that_are_not_heard_of_are_dialled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
