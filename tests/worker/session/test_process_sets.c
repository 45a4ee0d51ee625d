/* Process sets against a real musterd: collectives of sets, splits, wrong uses, and what becomes of
 * sets when members die and newcomers join. Members are threads with host names of their own. */
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

/* The sum of 10^rank over the members: says who they are. */
static int64_t power(uint32_t rank)
{
    int64_t value = 1;
    for (uint32_t i = 0; i < rank; i++) {
        value *= 10;
    }
    return value;
}

static bool adds_up(struct crew_member *member, muster_scope scope, uint32_t own, int64_t expected)
{
    int64_t mine = power(own);
    int64_t all = 0;
    muster_status status =
        muster_allreduce(member->session, scope, &mine, &all, 1, MUSTER_INT64, MUSTER_SUM, NULL);
    if (status != MUSTER_OK || all != expected) {
        (void)fprintf(stderr, "member %u: status %d, sum %lld, not %lld: %s\n", member->index,
                      status, (long long)all, (long long)expected, muster_last_error());
        return false;
    }
    return true;
}

/* Ranks 0 and 1 are on one host, 2 and 3 on another: sets within a host, between hosts, of one. */
static void use_sets(struct crew_member *member)
{
    static const uint32_t pairs[2][2] = {{0, 2}, {1, 3}};
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    muster_scope pair = MUSTER_NO_SCOPE;
    muster_scope found = MUSTER_NO_SCOPE;
    muster_scope alone = MUSTER_NO_SCOPE;
    const uint32_t *own = pairs[rank % 2];
    MEMBER_OK(member, muster_process_set(session, "pair", own, 2, &pair));
    MEMBER_CHECK(member, pair > MUSTER_CROSS && pair != MUSTER_NO_SCOPE);
    MEMBER_CHECK(member, muster_rank(session, pair) == rank / 2 && muster_size(session, pair) == 2);
    MEMBER_CHECK(member, adds_up(member, pair, rank, power(own[0]) + power(own[1])));
    MEMBER_OK(member, muster_process_set(session, "alone", &rank, 1, &alone));
    MEMBER_CHECK(member, alone != pair && adds_up(member, alone, rank, power(rank)));
    MEMBER_OK(member, muster_process_set_find(session, "pair", &found));
    MEMBER_CHECK(member, found == pair);

    uint32_t value = rank;
    MEMBER_OK(member, muster_broadcast(session, pair, &value, 1, MUSTER_UINT32, 1, NULL));
    MEMBER_CHECK(member, value == own[1]);
    muster_operation operation = 0;
    uint32_t gathered[2];
    MEMBER_OK(member, muster_allgather_start(session, pair, &rank, gathered, 1, MUSTER_UINT32, NULL,
                                             &operation));
    MEMBER_OK(member, muster_process_set_free(session, pair)); /* while it is in flight */
    MEMBER_OK(member, muster_wait(operation));
    MEMBER_CHECK(member, memcmp(gathered, own, sizeof gathered) == 0);
    MEMBER_CHECK(member, muster_barrier(session, pair, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "barrier: scope ") != NULL);
    MEMBER_CHECK(member, muster_rank(session, pair) == UINT32_MAX);
    MEMBER_CHECK(member, muster_size(session, pair) == 0);
    MEMBER_OK(member, muster_process_set_free(session, alone));
    MEMBER_CHECK(member, session->sets.retired_count == 0); /* no call can be using them */
    MEMBER_OK(member, muster_process_set(session, "pair", own, 2, &found));
    MEMBER_CHECK(member, found != pair); /* another use of the name */
    MEMBER_CHECK(member, adds_up(member, found, rank, power(own[0]) + power(own[1])));
}

static void test_the_members_of_a_set_run_collectives_among_themselves(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "use_sets", .count = 4, .hosts = 2, .function = use_sets};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_members_of_a_set_run_collectives_among_themselves),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
