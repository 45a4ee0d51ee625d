/* A large job against a real musterd: members begin with their neighbours and find the others, in
 * any generation, by the service or, if that is away, by those that they know. "Large" is a job of
 * more than four here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"
#include "worker/session/session_parts.h"

enum { MEMBERS = 14, DYING = 5 };

/* To and from everybody at once. */
static bool exchange_with_all(struct crew_member *member)
{
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    uint32_t sent[MEMBERS];
    uint32_t received[MEMBERS];
    for (uint32_t i = 0; i < size; i++) {
        sent[i] = 100 * rank + i;
    }
    if (muster_alltoall(member->session, MUSTER_GLOBAL, sent, received, 1, MUSTER_UINT32, NULL) !=
        MUSTER_OK) {
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (received[i] != 100 * i + rank) {
            return false;
        }
    }
    return true;
}

/* Messages along distances that are no powers of two. */
static bool pass_on(struct crew_member *member, uint32_t far)
{
    uint32_t size = muster_size(member->session, MUSTER_GLOBAL);
    uint32_t rank = muster_rank(member->session, MUSTER_GLOBAL);
    uint32_t got = UINT32_MAX;
    muster_operation send = 0;
    return muster_send_start(member->session, MUSTER_GLOBAL, &rank, 1, MUSTER_UINT32,
                             (rank + far) % size, 7, NULL, &send) == MUSTER_OK &&
           muster_receive(member->session, MUSTER_GLOBAL, &got, 1, MUSTER_UINT32,
                          (rank + size - far) % size, 7, NULL, NULL) == MUSTER_OK &&
           muster_wait(send) == MUSTER_OK && got == (rank + size - far) % size;
}

static bool is_large(const struct crew_member *member)
{
    return member->session->generation.finder != NULL;
}

static int run_large(struct crew *crew)
{
    assert_int_equal(setenv("MUSTER_NEIGHBOURS_ABOVE", "4", 1), 0);
    int failed = crew_run(crew);
    assert_int_equal(unsetenv("MUSTER_NEIGHBOURS_ABOVE"), 0);
    return failed;
}

/* The first message to anybody --------------------------------------------------------------- */

static void send_first(struct crew_member *member)
{
    MEMBER_CHECK(member, is_large(member));
    MEMBER_CHECK(member, pass_on(member, 3));
    MEMBER_CHECK(member, pass_on(member, 6));
    MEMBER_CHECK(member, exchange_with_all(member));
}

static void messages_find_members_that_are_no_neighbours(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "messages",
                        .count = MEMBERS,
                        .hosts = 4,
                        .function = send_first};
    assert_int_equal(run_large(&crew), 0);
}

/* Deaths, sets, and next generations ---------------------------------------------------------- */

static void prepare_for_deaths(struct crew_member *member)
{
    member->options.min_size = DYING;
}

/* Everybody whose index is not a multiple of four, in reverse. */
static uint32_t list_set(uint32_t *members)
{
    uint32_t count = 0;
    for (uint32_t i = MEMBERS; i-- > 0;) {
        if (i % 4 != 0) {
            members[count++] = i;
        }
    }
    return count;
}

static bool set_adds_up(struct crew_member *member, muster_scope set, uint32_t expected)
{
    uint32_t mine = member->index + 1;
    uint32_t sum = 0;
    return muster_allreduce(member->session, set, &mine, &sum, 1, MUSTER_UINT32, MUSTER_SUM,
                            NULL) == MUSTER_OK &&
           sum == expected;
}

/* Waits until so many have come here, since the beginning. False: a member has failed. */
static bool meet(struct crew_member *member, uint32_t total)
{
    struct crew *crew = member->crew;
    (void)pthread_mutex_lock(&crew->mutex);
    crew->present++;
    (void)pthread_cond_broadcast(&crew->changed);
    while (crew->present < total && !crew->failed) {
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    }
    bool all = crew->present >= total;
    (void)pthread_mutex_unlock(&crew->mutex);
    return all;
}

/* Ranks are the members' indices in the first generation, by their orders. */
static void outlive_others(struct crew_member *member)
{
    uint32_t members[MEMBERS];
    uint32_t count = list_set(members);
    uint32_t expected = 0;
    bool in_set = member->index % 4 != 0;
    muster_scope set = MUSTER_NO_SCOPE;
    uint32_t met = 0;
    MEMBER_CHECK(member, muster_size(member->session, MUSTER_GLOBAL) == MEMBERS);
    MEMBER_CHECK(member, muster_rank(member->session, MUSTER_GLOBAL) == member->index);
    MEMBER_CHECK(member, is_large(member) && exchange_with_all(member));
    for (uint32_t i = 0; i < count; i++) {
        expected += members[i] + 1;
    }
    if (in_set) {
        MEMBER_OK(member, muster_process_set(member->session, "some", members, count, &set));
        MEMBER_CHECK(member, set_adds_up(member, set, expected));
    }
    for (uint32_t dead = 1; MEMBERS - dead >= DYING; dead++) {
        uint32_t victim = MEMBERS - dead;
        muster_status status = MUSTER_OK;
        met += victim + 1;
        MEMBER_CHECK(member, meet(member, met));
        if (member->index == victim) {
            muster_fabric_kill(member->session->fabric);
            MEMBER_CHECK(member,
                         muster_barrier(member->session, MUSTER_GLOBAL, NULL) == MUSTER_REJOIN);
            return;
        }
        while (status == MUSTER_OK) {
            status = muster_barrier(member->session, MUSTER_GLOBAL, NULL);
        }
        MEMBER_CHECK(member, status == MUSTER_REJOIN);
        do {
            MEMBER_OK(member, muster_rejoin(member->session));
        } while (muster_size(member->session, MUSTER_GLOBAL) > victim);
        MEMBER_CHECK(member, muster_size(member->session, MUSTER_GLOBAL) == victim);
        MEMBER_CHECK(member, is_large(member) && pass_on(member, victim / 2));
        MEMBER_CHECK(member, exchange_with_all(member));
        expected -= victim % 4 != 0 ? victim + 1 : 0;
        MEMBER_CHECK(member, !in_set || set_adds_up(member, set, expected));
    }
}

static void survivors_find_each_other_and_keep_their_sets(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "deaths",
                        .count = MEMBERS,
                        .hosts = 3,
                        .function = outlive_others,
                        .prepare = prepare_for_deaths};
    assert_int_equal(run_large(&crew), 0);
}

/* Without the service ------------------------------------------------------------------------- */

/* The service is killed between Join and the first message to a member that is no neighbour. */
static void send_first_without_service(struct crew_member *member)
{
    MEMBER_CHECK(member, is_large(member));
    crew_barrier(member);
    if (member->index == 0) {
        test_service_kill(member->crew->user);
    }
    crew_barrier(member);
    MEMBER_CHECK(member, pass_on(member, 3));
    MEMBER_CHECK(member, pass_on(member, 6));
    MEMBER_CHECK(member, exchange_with_all(member));
    crew_barrier(member);
    if (member->index == 0) {
        MEMBER_CHECK(member, test_service_restart(member->crew->user, NULL));
    }
    crew_barrier(member);
}

static void members_find_each_other_without_the_service(void **state)
{
    struct test_service service;
    (void)state;
    assert_true(test_service_start(&service, NULL));
    struct crew crew = {.url = service.url,
                        .job = "alone",
                        .count = MEMBERS,
                        .hosts = 4,
                        .user = &service,
                        .function = send_first_without_service};
    assert_int_equal(run_large(&crew), 0);
    assert_int_equal(test_service_stop(&service), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_find_members_that_are_no_neighbours),
        cmocka_unit_test(survivors_find_each_other_and_keep_their_sets),
        cmocka_unit_test(members_find_each_other_without_the_service),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup_patient, test_service_teardown);
}
