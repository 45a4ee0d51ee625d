/* Point to point over every transport: messages that do not fit, bad arguments, deadlines, deaths,
 * and the end of a generation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/messages.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

enum { MEMBERS = 4 };

static const uint32_t hosts[] = {3, 1};

static void expect_invalid(struct group_member *member, muster_status status, const char *first,
                           const char *second)
{
    if (status != MUSTER_INVALID || strstr(muster_last_error(), first) == NULL ||
        strstr(muster_last_error(), second) == NULL) {
        group_fail(member, "%s instead of \"%s\" and \"%s\": %s", muster_status_name(status), first,
                   second, muster_last_error());
    }
}

/* Member 0 sends what member 1 cannot receive: small messages, whose sends are done, and long ones,
 * whose sends learn of it. A message that fits comes after each. */
static void misfit(struct group_member *member, void *argument)
{
    enum { SMALL = 100, LONG = 100000 };
    static const size_t counts[] = {SMALL, LONG};
    int32_t *data = calloc(LONG + 1, sizeof *data);
    (void)argument;
    for (int i = 0; i < 4 && member->rank < 2; i++) {
        size_t count = counts[i / 2];
        bool wrong_type = i % 2 == 1;
        struct muster_message_call send = message_send_of(data, count, 1, 7);
        struct muster_message_call receive = message_receive_of(data, count - 1, 0, 7, NULL);
        struct muster_message_call good_send = message_send_of(data, 5, 1, 7);
        struct muster_message_call good_receive = message_receive_of(data, 5, 0, 7, NULL);
        char first[64];
        char second[64];
        (void)snprintf(first, sizeof first, wrong_type ? "type int32" : "%zu elements", count);
        (void)snprintf(second, sizeof second, wrong_type ? "takes uint32" : "room for %zu",
                       count - 1);
        receive.type = wrong_type ? MUSTER_UINT32 : MUSTER_INT32;
        receive.count = wrong_type ? count : count - 1;
        data[count - 1] = member->rank == 0 ? 1 : 77;
        if (member->rank == 0 && (count == LONG || member->group->transport == GROUP_INPROC)) {
            expect_invalid(member, message_run(member, &send), first, second);
        } else if (member->rank == 0) {
            if (message_run(member, &send) != MUSTER_OK) {
                group_fail(member, "send: %s", muster_last_error());
            }
        } else {
            expect_invalid(member, message_run(member, &receive), first, second);
            if (data[count - 1] != 77) {
                group_fail(member, "data of a message that was dropped have been written");
            }
        }
        if (message_run(member, member->rank == 0 ? &good_send : &good_receive) != MUSTER_OK) {
            group_fail(member, "after: %s", muster_last_error());
        }
    }
    free(data);
}

static void a_message_that_does_not_fit_fails_on_both_sides(void **state)
{
    (void)state;
    group_over_links(2, hosts, misfit, NULL);
}

static void give_bad_arguments(struct group_member *member, void *argument)
{
    int32_t data[4] = {0};
    struct muster_message_call what = message_send_of(data, 4, MEMBERS, 0);
    (void)argument;
    expect_invalid(member, message_run(member, &what), "send: rank 4", "has 4 ranks");
    what = message_send_of(data, 4, MUSTER_ANY_SOURCE, 0);
    expect_invalid(member, message_run(member, &what), "send: rank", "has 4 ranks");
    what = message_send_of(data, 4, 1, MUSTER_ANY_TAG);
    expect_invalid(member, message_run(member, &what), "tag 4294967295", "receives only");
    what = message_send_of(NULL, 4, 1, 0);
    expect_invalid(member, message_run(member, &what), "is NULL", "4 elements");
    what = message_receive_of(data, 4, MEMBERS, 0, NULL);
    expect_invalid(member, message_run(member, &what), "receive: rank 4", "has 4 ranks");
    what = message_receive_of(data, 4, 1, 0, NULL);
    what.type = (muster_type)99;
    expect_invalid(member, message_run(member, &what), "element type 99", "no such type");
    what = message_receive_of(data, SIZE_MAX, 1, 0, NULL);
    expect_invalid(member, message_run(member, &what), "elements, at most", "");
}

static void bad_arguments_are_named(void **state)
{
    struct group group;
    (void)state;
    group_start(&group, GROUP_INPROC, 2, hosts, NULL);
    group_each(&group, give_bad_arguments, NULL);
    group_finish(&group);
}

/* Nobody sends to member 0, whose deadline passes; then no message works there any more. */
static void miss_the_deadline(struct group_member *member, void *argument)
{
    int32_t data = 0;
    uint32_t suspect = 0;
    (void)argument;
    if (member->rank != 0) {
        return;
    }
    struct muster_message_call what = message_receive_of(&data, 1, 2, 5, NULL);
    what.timeout_ms = 50;
    muster_status status = muster_context_message(member->contexts[MUSTER_GLOBAL], &what, &suspect);
    if (status != MUSTER_REJOIN || suspect != 2 ||
        strstr(muster_last_error(), "receive of at most 1 int32 from rank 2, tag 5") == NULL ||
        strstr(muster_last_error(), "the deadline passed") == NULL) {
        group_fail(member, "%s, suspect %u: %s", muster_status_name(status), suspect,
                   muster_last_error());
    }
    what = message_send_of(&data, 1, 1, 5);
    if (message_run(member, &what) != MUSTER_REJOIN) {
        group_fail(member, "a send after the deadline: %s", muster_last_error());
    }
}

static void a_deadline_ends_all_messages_of_the_context(void **state)
{
    (void)state;
    group_over_links(2, hosts, miss_the_deadline, NULL);
}

/* After an exchange, so that links are open, the last member dies; the others wait for it with a
 * send, a receive, and receives from any source, also in flight. */
static void lose_a_member(struct group_member *member, void *argument)
{
    enum { LONG = 1000000 };
    const uint32_t victim = MEMBERS - 1;
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    int32_t *data = calloc(LONG, sizeof *data);
    int32_t other = 0;
    struct muster_started_call *call = NULL;
    uint32_t suspect = 0;
    (void)argument;
    for (uint32_t i = 0; i < victim; i++) {
        struct muster_message_call send =
            message_send_of(&other, 1, member->rank == i ? victim : i, 1);
        struct muster_message_call receive =
            message_receive_of(data, 1, member->rank == i ? victim : i, 1, NULL);
        const struct muster_message_call *first = member->rank == i ? &send : &receive;
        const struct muster_message_call *second = member->rank == i ? &receive : &send;
        if ((member->rank == victim || member->rank == i) &&
            (message_run(member, first) != MUSTER_OK || message_run(member, second) != MUSTER_OK)) {
            group_fail(member, "before: %s", muster_last_error());
        }
    }
    if (member->rank == victim) {
        muster_fabric_kill(member->fabric);
        free(data);
        return;
    }
    struct muster_message_call any = message_receive_of(&other, 1, MUSTER_ANY_SOURCE, 8, NULL);
    struct muster_message_call what =
        member->rank == 0   ? message_receive_of(data, 1, victim, 1, NULL)
        : member->rank == 1 ? message_send_of(data, LONG, victim, 1)
                            : message_receive_of(data, 1, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, NULL);
    if (muster_context_start_message(context, &any, &call) != MUSTER_OK) {
        group_fail(member, "start: %s", muster_last_error());
    }
    muster_status status = muster_context_message(context, &what, &suspect);
    if (status != MUSTER_REJOIN || suspect != victim) {
        group_fail(member, "%s, suspect %u: %s", muster_status_name(status), suspect,
                   muster_last_error());
    }
    if (muster_started_call_end(call, &suspect) != MUSTER_REJOIN || suspect != victim) {
        group_fail(member, "in flight, suspect %u: %s", suspect, muster_last_error());
    }
    free(data);
}

static void a_death_ends_sends_and_receives_that_wait_for_it(void **state)
{
    (void)state;
    group_over_links(2, hosts, lose_a_member, NULL);
}

/* Stands in for the service: revokes the generation on all members. */
static void revoke_everywhere(const struct group_member *member)
{
    for (uint32_t i = 0; i < member->group->size; i++) {
        muster_fabric_revoke(member->group->members[i].fabric, member->group->generation,
                             "a member died");
    }
}

/* A message to each rank in turn and one from any, in flight, again and again, until the victim
 * dies after a random number of them. */
static void exchange_until_death(struct group_member *member, void *argument)
{
    enum { LONG = 60000, WINDOW = 8 };
    struct muster_context *context = member->contexts[MUSTER_GLOBAL];
    uint64_t random = *(const uint64_t *)argument + member->rank;
    uint64_t lives = member->rank == 1 ? test_random_below(&random, 200) : UINT64_MAX;
    struct muster_started_call *calls[2 * WINDOW] = {NULL};
    int32_t *data = calloc((size_t)LONG * 2 * WINDOW, sizeof *data);
    muster_status status = MUSTER_OK;
    for (uint64_t i = 0; status == MUSTER_OK; i++) {
        size_t slot = 2 * (i % WINDOW);
        size_t count = test_random_below(&random, 3) == 0 ? LONG : 10;
        uint32_t to = (uint32_t)((member->rank + i) % member->group->size); /* all get as many */
        struct muster_message_call receive =
            message_receive_of(data + slot * LONG, LONG, MUSTER_ANY_SOURCE, (uint32_t)i, NULL);
        struct muster_message_call send =
            message_send_of(data + (slot + 1) * LONG, count, to, (uint32_t)i);
        for (size_t k = slot; k < slot + 2 && status == MUSTER_OK; k++) {
            status = calls[k] != NULL ? muster_started_call_end(calls[k], NULL) : MUSTER_OK;
            calls[k] = NULL;
        }
        if (i == lives) {
            muster_fabric_kill(member->fabric);
        }
        if (status == MUSTER_OK) {
            status = muster_context_start_message(context, &receive, &calls[slot]);
        }
        if (status == MUSTER_OK) {
            status = muster_context_start_message(context, &send, &calls[slot + 1]);
        }
    }
    if (status != MUSTER_REJOIN || strstr(muster_last_error(), "deadline") != NULL) {
        group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
    }
    if (member->rank != 1) {
        revoke_everywhere(member);
    }
    for (size_t k = 0; k < 2 * (size_t)WINDOW; k++) {
        status = calls[k] != NULL ? muster_started_call_end(calls[k], NULL) : MUSTER_OK;
        if (status != MUSTER_OK && status != MUSTER_REJOIN) {
            group_fail(member, "%s: %s", muster_status_name(status), muster_last_error());
        }
    }
    free(data);
}

static void a_death_at_any_time_ends_all_messages(void **state)
{
    uint64_t seed = test_seed();
    (void)state;
    for (int round = 0; round < 15; round++, seed += 10) {
        struct group group;
        group_start(&group, (enum group_transport)(GROUP_INPROC + round % 3), 2, hosts, NULL);
        group_each(&group, exchange_until_death, &seed);
        group_finish(&group);
    }
}

/* A generation ends while messages wait; in the next one the same numbers begin anew. */
static void leave_messages_behind(struct group_member *member, void *argument)
{
    static int32_t data[100000];
    struct muster_started_call *call = NULL;
    (void)argument;
    struct muster_message_call what = member->rank % 2 == 0
                                          ? message_send_of(data, 100000, member->rank + 1, 1)
                                          : message_receive_of(data, 1, member->rank - 1, 2, NULL);
    struct muster_message_call small = message_send_of(data, 1, member->rank ^ 1, 3);
    if (member->rank % 2 != 0) {
        what.out = malloc(4); /* each its own */
    }
    if (muster_context_start_message(member->contexts[MUSTER_GLOBAL], &what, &call) != MUSTER_OK ||
        message_run(member, &small) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    muster_fabric_revoke(member->fabric, member->group->generation, "a test");
    if (muster_started_call_end(call, NULL) != MUSTER_REJOIN ||
        message_run(member, &small) != MUSTER_REJOIN) {
        group_fail(member, "a message of a generation that is over: %s", muster_last_error());
    }
    free(what.out);
}

static void messages_end_with_their_generation(void **state)
{
    (void)state;
    for (enum group_transport transport = GROUP_TCP; transport <= GROUP_SHM; transport++) {
        struct group group;
        group_start(&group, transport, 2, hosts, NULL);
        group_each(&group, message_ring, NULL);
        group_each(&group, leave_messages_behind, NULL);
        group_regroup(&group, UINT32_MAX, NULL);
        group_each(&group, message_ring, NULL);
        group_finish(&group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_does_not_fit_fails_on_both_sides),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_deadline_ends_all_messages_of_the_context),
        cmocka_unit_test(a_death_ends_sends_and_receives_that_wait_for_it),
        cmocka_unit_test(a_death_at_any_time_ends_all_messages),
        cmocka_unit_test(messages_end_with_their_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
