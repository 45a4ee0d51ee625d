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

/* Splitting ------------------------------------------------------------------------------------ */

/* Ranks 0 to 5 as a grid of two rows and three columns; the columns upside down. */
static void split_a_grid(struct crew_member *member)
{
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    int row = (int)(rank / 3);
    int column = (int)(rank % 3);
    muster_scope rows = MUSTER_NO_SCOPE;
    muster_scope columns = MUSTER_NO_SCOPE;
    muster_scope ends = MUSTER_GLOBAL;
    muster_scope found = MUSTER_NO_SCOPE;
    char name[32];
    MEMBER_OK(member, muster_split(session, MUSTER_GLOBAL, row, 0, "rows", &rows));
    MEMBER_OK(member, muster_split(session, MUSTER_GLOBAL, column, -row, "columns", &columns));
    MEMBER_CHECK(member, muster_rank(session, rows) == (uint32_t)column);
    MEMBER_CHECK(member, muster_size(session, rows) == 3);
    MEMBER_CHECK(member, muster_rank(session, columns) == (uint32_t)(1 - row));
    MEMBER_CHECK(member, muster_size(session, columns) == 2);
    MEMBER_CHECK(member, adds_up(member, rows, rank, row == 0 ? 111 : 111000));
    MEMBER_CHECK(member, adds_up(member, columns, rank, 1001 * power((uint32_t)column)));
    (void)snprintf(name, sizeof name, "rows/%d", row);
    MEMBER_OK(member, muster_process_set_find(session, name, &found));
    MEMBER_CHECK(member, found == rows);

    uint32_t gathered[2] = {9, 9}; /* row 1 comes first */
    MEMBER_OK(member, muster_gather(session, columns, &rank, gathered, 1, MUSTER_UINT32, 0, NULL));
    MEMBER_CHECK(member, row == 0 || (gathered[0] == rank && gathered[1] == rank - 3));

    /* A split of a set; the one in the middle is in none. */
    MEMBER_OK(member,
              muster_split(session, rows, column == 1 ? MUSTER_UNDEFINED : 7, 0, "ends", &ends));
    MEMBER_CHECK(member, (ends == MUSTER_NO_SCOPE) == (column == 1));
    if (column != 1) {
        MEMBER_CHECK(member, adds_up(member, ends, rank, row == 0 ? 101 : 101000));
        (void)snprintf(name, sizeof name, "rows/%d/ends/7", row);
        MEMBER_OK(member, muster_process_set_find(session, name, &found));
        MEMBER_CHECK(member, found == ends);
    }

    /* Each host has an "odd" of its own; the cross scope is another parent. */
    uint32_t local = muster_rank(session, MUSTER_LOCAL);
    MEMBER_OK(member, muster_split(session, MUSTER_LOCAL, (int)(local % 2), 0, "odd", &ends));
    MEMBER_CHECK(member, muster_size(session, ends) == (local % 2 == 0 ? 2 : 1));
    MEMBER_OK(member, muster_split(session, MUSTER_CROSS, 0, (int)local, "all", &found));
    MEMBER_CHECK(member, muster_size(session, found) == 2);
    MEMBER_CHECK(member, adds_up(member, found, rank, 1001 * power(rank % 3)));
}

static void test_a_scope_is_split_by_colour_and_key(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "split", .count = 6, .hosts = 2, .function = split_a_grid};
    assert_int_equal(crew_run(&crew), 0);
}

/* Wrong uses ----------------------------------------------------------------------------------- */

static void use_wrongly(struct crew_member *member)
{
    static const uint32_t both[] = {0, 1};
    static const uint32_t other[] = {1, 0};
    static const uint32_t beyond[] = {0, 1, 2};
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    muster_scope scope = MUSTER_NO_SCOPE;
    muster_scope unused = MUSTER_LOCAL;
    MEMBER_CHECK(member, muster_process_set(session, "a", beyond, 3, &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "process set a: 3 members") != NULL);
    MEMBER_CHECK(member, muster_process_set_free(session, MUSTER_LOCAL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "scope 1") != NULL);
    MEMBER_CHECK(member, muster_process_set_free(session, (muster_scope)5000) == MUSTER_INVALID);
    MEMBER_CHECK(member, muster_process_set_find(session, "a", &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "process set a") != NULL);
    MEMBER_CHECK(member, unused == MUSTER_LOCAL);
    MEMBER_CHECK(member, muster_split(session, MUSTER_GLOBAL, 0, 0, "", &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member,
                 muster_split(session, (muster_scope)5000, 0, 0, "a", &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "split a: scope 5000") != NULL);
    MEMBER_CHECK(member, muster_split(session, MUSTER_GLOBAL, 0, 0, rank == 0 ? "a" : "b",
                                      &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "ranks 0 and 1 pass different names") != NULL);

    /* Two lists for one name. */
    MEMBER_CHECK(member, muster_process_set(session, "two lists", rank == 0 ? both : other, 2,
                                            &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "process set two lists of 2 members") != NULL);
    MEMBER_CHECK(member,
                 strstr(muster_last_error(),
                        "ranks 0 and 1 have the same 2 members in different "
                        "orders: place 0 is rank 0 at rank 0, and rank 1 at rank 1") != NULL);
    MEMBER_OK(member, muster_process_set(session, "two lists", both, 2, &scope));
    MEMBER_CHECK(member,
                 muster_process_set(session, "two lists", both, 2, &unused) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "it exists, with ranks 0 1") != NULL);
    MEMBER_CHECK(member, adds_up(member, scope, rank, 11));

    /* Different calls in a set. */
    int32_t value = 0;
    MEMBER_CHECK(member, muster_allreduce(session, scope, &value, &value, rank == 0 ? 1 : 0,
                                          MUSTER_INT32, MUSTER_SUM, NULL) == MUSTER_INVALID);
    MEMBER_CHECK(member, strstr(muster_last_error(), "context two lists") != NULL);
    MEMBER_CHECK(member, adds_up(member, scope, rank, 11));
}

static void test_wrong_uses_of_sets_are_named(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "wrong_sets",
                        .count = 2,
                        .hosts = 1,
                        .function = use_wrongly};
    assert_int_equal(crew_run(&crew), 0);
}

/* Names whose first number is the same: found by trying. */
struct hashed_name {
    uint32_t number, index;
};

static int compare_hashed_names(const void *left, const void *right)
{
    const struct hashed_name *a = left;
    const struct hashed_name *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static bool find_collision(uint32_t *ret_one, uint32_t *ret_other)
{
    enum { TRIED = 1 << 16 };
    struct hashed_name *names = calloc(TRIED, sizeof *names);
    bool found = false;
    for (uint32_t i = 0; names != NULL && i < TRIED; i++) {
        uint32_t candidates[MUSTER_SET_CANDIDATES];
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i);
        muster_set_candidates(name, 1, candidates);
        names[i] = (struct hashed_name){candidates[0], i};
    }
    if (names != NULL) {
        qsort(names, TRIED, sizeof *names, compare_hashed_names);
    }
    for (uint32_t i = 1; names != NULL && i < TRIED && !found; i++) {
        found = names[i].number == names[i - 1].number;
        *ret_one = names[i - 1].index;
        *ret_other = names[i].index;
    }
    free(names);
    return found;
}

/* Rank 1 is in both sets and cannot give the second one the number that rank 2 would. */
static void use_colliding_names(struct crew_member *member)
{
    static const uint32_t lists[2][2] = {{0, 1}, {1, 2}};
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, MUSTER_GLOBAL);
    uint32_t indices[2] = {0, 0};
    muster_scope scopes[2];
    MEMBER_CHECK(member, find_collision(&indices[0], &indices[1]));
    for (uint32_t i = 0; i < 2; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", indices[i]);
        if (rank == lists[i][0] || rank == lists[i][1]) {
            MEMBER_OK(member, muster_process_set(session, name, lists[i], 2, &scopes[i]));
        }
    }
    for (int turn = 0; turn < 100; turn++) {
        MEMBER_CHECK(member, rank == 2 || adds_up(member, scopes[0], rank, 11));
        MEMBER_CHECK(member, rank == 0 || adds_up(member, scopes[1], rank, 110));
    }
    const struct muster_process_set *slots = session->sets.table.slots;
    MEMBER_CHECK(member, rank != 1 || slots[0].number != slots[1].number);
}

static void test_names_that_collide_get_different_numbers(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "collision",
                        .count = 3,
                        .hosts = 1,
                        .function = use_colliding_names};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_members_of_a_set_run_collectives_among_themselves),
        cmocka_unit_test(test_a_scope_is_split_by_colour_and_key),
        cmocka_unit_test(test_wrong_uses_of_sets_are_named),
        cmocka_unit_test(test_names_that_collide_get_different_numbers),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
