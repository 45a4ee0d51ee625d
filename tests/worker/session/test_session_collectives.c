/* The public collectives other than allreduce and broadcast, in all scopes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { COUNT = 7 };

/* One member's place in a scope. */
struct place {
    struct crew_member *member;
    muster_session *session;
    muster_scope scope;
    uint32_t rank, size;
};

/* The numbers that rank `from` sends to rank `to`. */
static int32_t number(uint32_t from, uint32_t to, size_t index)
{
    return (int32_t)(from * 10000 + to * 100 + index);
}

static void check_reduce(const struct place *at, uint32_t root)
{
    int64_t in[COUNT];
    int64_t out[COUNT] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
        in[i] = at->rank + i;
    }
    MEMBER_OK(at->member, muster_reduce(at->session, at->scope, in, at->rank == root ? out : NULL,
                                        COUNT, MUSTER_INT64, MUSTER_SUM, root, NULL));
    int64_t n = at->size;
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t sum = n * (n - 1) / 2 + n * i;
        MEMBER_CHECK(at->member, out[i] == (at->rank == root ? sum : 0));
    }
}

static void check_gather_and_scatter(const struct place *at, uint32_t root)
{
    int32_t all[CREW_MAX * COUNT] = {0};
    int32_t mine[COUNT];
    bool is_root = at->rank == root;
    for (size_t i = 0; i < COUNT; i++) {
        mine[i] = number(at->rank, root, i);
    }
    MEMBER_OK(at->member, muster_gather(at->session, at->scope, mine, is_root ? all : NULL, COUNT,
                                        MUSTER_INT32, root, NULL));
    for (uint32_t rank = 0; is_root && rank < at->size; rank++) {
        for (size_t i = 0; i < COUNT; i++) {
            MEMBER_CHECK(at->member, all[rank * COUNT + i] == number(rank, root, i));
        }
    }
    memset(mine, 0, sizeof mine);
    MEMBER_OK(at->member, muster_scatter(at->session, at->scope, is_root ? all : NULL, mine, COUNT,
                                         MUSTER_INT32, root, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        MEMBER_CHECK(at->member, mine[i] == number(at->rank, root, i));
    }
}

/* Member i has i + 1 elements. */
static void check_blocks_of_different_sizes(const struct place *at)
{
    size_t counts[CREW_MAX];
    int32_t mine[CREW_MAX];
    int32_t all[CREW_MAX * CREW_MAX] = {0};
    int32_t gathered[CREW_MAX * CREW_MAX] = {0};
    for (uint32_t rank = 0; rank < at->size; rank++) {
        counts[rank] = rank + 1;
        mine[rank] = number(at->rank, 0, rank);
    }
    MEMBER_OK(at->member,
              muster_allgatherv(at->session, at->scope, mine, all, counts, MUSTER_INT32, NULL));
    MEMBER_OK(at->member, muster_gatherv(at->session, at->scope, mine, gathered, counts,
                                         MUSTER_INT32, 0, NULL));
    size_t place = 0;
    for (uint32_t rank = 0; rank < at->size; rank++) {
        for (size_t i = 0; i < counts[rank]; i++, place++) {
            MEMBER_CHECK(at->member, all[place] == number(rank, 0, i));
            MEMBER_CHECK(at->member, gathered[place] == (at->rank == 0 ? all[place] : 0));
        }
    }
    MEMBER_OK(at->member, muster_reduce_scatterv(at->session, at->scope, all, mine, counts,
                                                 MUSTER_INT32, MUSTER_SUM, NULL));
    for (size_t i = 0; i < counts[at->rank]; i++) {
        MEMBER_CHECK(at->member, mine[i] == (int32_t)at->size * number(at->rank, 0, i));
    }
}

static void check_alltoall(const struct place *at)
{
    int32_t data[CREW_MAX * COUNT];
    for (uint32_t rank = 0; rank < at->size; rank++) {
        for (size_t i = 0; i < COUNT; i++) {
            data[rank * COUNT + i] = number(at->rank, rank, i);
        }
    }
    MEMBER_OK(at->member,
              muster_alltoall(at->session, at->scope, data, data, COUNT, MUSTER_INT32, NULL));
    for (uint32_t rank = 0; rank < at->size; rank++) {
        for (size_t i = 0; i < COUNT; i++) {
            MEMBER_CHECK(at->member, data[rank * COUNT + i] == number(rank, at->rank, i));
        }
    }
}

/* Member i sends i elements to each member, itself included. */
static void check_alltoallv(const struct place *at)
{
    size_t in_counts[CREW_MAX];
    size_t out_counts[CREW_MAX];
    int32_t in[CREW_MAX * CREW_MAX];
    int32_t out[CREW_MAX * CREW_MAX];
    size_t place = 0;
    for (uint32_t rank = 0; rank < at->size; rank++) {
        in_counts[rank] = at->rank;
        out_counts[rank] = rank;
        for (size_t i = 0; i < at->rank; i++) {
            in[place++] = number(at->rank, rank, i);
        }
    }
    MEMBER_OK(at->member, muster_alltoallv(at->session, at->scope, in, in_counts, out, out_counts,
                                           MUSTER_INT32, NULL));
    place = 0;
    for (uint32_t rank = 0; rank < at->size; rank++) {
        for (size_t i = 0; i < rank; i++) {
            MEMBER_CHECK(at->member, out[place++] == number(rank, at->rank, i));
        }
    }
}

static void do_everything(struct crew_member *member)
{
    for (int scope = MUSTER_GLOBAL; scope <= MUSTER_CROSS; scope++) {
        const struct place at = {.member = member,
                                 .session = member->session,
                                 .scope = (muster_scope)scope,
                                 .rank = muster_rank(member->session, (muster_scope)scope),
                                 .size = muster_size(member->session, (muster_scope)scope)};
        for (uint32_t root = 0; root < at.size; root++) {
            check_reduce(&at, root);
            check_gather_and_scatter(&at, root);
        }
        check_blocks_of_different_sizes(&at);
        check_alltoall(&at);
        check_alltoallv(&at);
    }
}

static void all_collectives_work_in_all_scopes(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "ragged",
                        .count = 5,
                        .hosts = 2,
                        .function = do_everything};
    assert_int_equal(crew_run(&crew), 0);
}

/* Each member begins with its neighbours, and finds the others when it calls them. */
static void all_collectives_find_members_that_are_not_neighbours(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "neighbours",
                        .count = 13,
                        .hosts = 3,
                        .function = do_everything};
    assert_int_equal(setenv("MUSTER_NEIGHBOURS_ABOVE", "4", 1), 0);
    assert_int_equal(crew_run(&crew), 0);
    assert_int_equal(unsetenv("MUSTER_NEIGHBOURS_ABOVE"), 0);
}

static void a_job_of_one_member_has_all_collectives(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "one", .count = 1, .hosts = 1, .function = do_everything};
    assert_int_equal(crew_run(&crew), 0);
}

/* Each wrong call is refused with a text that names what is wrong. */
static void call_wrongly(struct crew_member *member)
{
    muster_session *session = member->session;
    int32_t data[8] = {0};
    int32_t other[8];
    const size_t counts[] = {2};
    crew_expect_invalid(
        member, muster_gatherv(session, MUSTER_GLOBAL, data, other, NULL, MUSTER_INT32, 0, NULL),
        "gatherv needs the sizes of its blocks");
    crew_expect_invalid(member,
                        muster_reduce_scatterv(session, MUSTER_GLOBAL, data, other, NULL,
                                               MUSTER_INT32, MUSTER_SUM, NULL),
                        "reduce_scatterv: counts is NULL");
    crew_expect_invalid(
        member,
        muster_alltoallv(session, MUSTER_GLOBAL, data, counts, other, NULL, MUSTER_INT32, NULL),
        "alltoallv needs the sizes of its blocks");
    crew_expect_invalid(member,
                        muster_alltoallv(session, MUSTER_GLOBAL, data, counts, data + 1, counts,
                                         MUSTER_INT32, NULL),
                        "overlap");
    crew_expect_invalid(
        member,
        muster_reduce(session, MUSTER_GLOBAL, data, NULL, 2, MUSTER_INT32, MUSTER_SUM, 0, NULL),
        "output buffer is NULL");
    crew_expect_invalid(
        member, muster_scatter(session, MUSTER_GLOBAL, data, other, 2, MUSTER_INT32, 1, NULL),
        "scatter: root 1");
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    struct crew crew = {
        .url = group_service.url, .job = "wrong", .count = 1, .hosts = 1, .function = call_wrongly};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives_work_in_all_scopes),
        cmocka_unit_test(all_collectives_find_members_that_are_not_neighbours),
        cmocka_unit_test(a_job_of_one_member_has_all_collectives),
        cmocka_unit_test(wrong_calls_are_named),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
