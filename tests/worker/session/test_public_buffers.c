/* The public collectives on several buffers of each member, in all forms and scopes: the members
 * have different numbers of buffers, and blocks of different sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { MEMBERS = 4, BUFFERS_MAX = 3, ELEMENTS_MAX = 40 };

/* Rank r has 1, 2, 3 or 0 buffers, and block i has 5 x i elements, but block 1 none. */
struct buffers {
    int32_t in[BUFFERS_MAX][ELEMENTS_MAX], out[BUFFERS_MAX][ELEMENTS_MAX];
    const void *ins[BUFFERS_MAX];
    void *outs[BUFFERS_MAX];
    size_t counts[MEMBERS], n, total, begin;
    uint32_t rank, size, inputs;
};

static size_t buffers_of(uint32_t rank)
{
    return (rank + 1) % (BUFFERS_MAX + 1);
}

static int32_t value(uint32_t rank, size_t buffer, size_t i)
{
    return (int32_t)(1000 * rank + 100 * buffer + i);
}

static void prepare(struct buffers *buffers, muster_session *session, muster_scope scope)
{
    memset(buffers, 0, sizeof *buffers);
    buffers->rank = muster_rank(session, scope);
    buffers->size = muster_size(session, scope);
    buffers->n = buffers_of(buffers->rank);
    for (uint32_t i = 0; i < buffers->size; i++) {
        buffers->counts[i] = i == 1 ? 0 : 5 * (i + 1);
        buffers->begin += i < buffers->rank ? buffers->counts[i] : 0;
        buffers->total += buffers->counts[i];
        buffers->inputs += (uint32_t)buffers_of(i);
    }
    for (size_t b = 0; b < BUFFERS_MAX; b++) {
        buffers->ins[b] = buffers->in[b];
        buffers->outs[b] = buffers->out[b];
        for (size_t i = 0; i < ELEMENTS_MAX; i++) {
            buffers->in[b][i] = value(buffers->rank, b, i);
        }
    }
}

/* Element i of the sum of all buffers of all members. */
static int32_t sum_of_all(const struct buffers *buffers, size_t i)
{
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < buffers->size; rank++) {
        for (size_t b = 0; b < buffers_of(rank); b++) {
            sum += value(rank, b, i);
        }
    }
    return sum;
}

/* All outputs have elements [begin, begin + count) of the sum, and nothing behind them. */
static void check_sums(struct crew_member *member, struct buffers *buffers, size_t begin,
                       size_t count)
{
    for (size_t b = 0; b < buffers->n; b++) {
        for (size_t i = 0; i < count; i++) {
            MEMBER_CHECK(member, buffers->out[b][i] == sum_of_all(buffers, begin + i));
        }
        MEMBER_CHECK(member, count == ELEMENTS_MAX || buffers->out[b][count] == 0);
    }
    memset(buffers->out, 0, sizeof buffers->out);
}

static void check_reduce_scatterv(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    struct buffers buffers;
    muster_operation operation = 0;
    prepare(&buffers, session, scope);
    size_t mine = buffers.counts[buffers.rank];
    MEMBER_OK(member,
              muster_reduce_scatterv_buffers(session, scope, buffers.ins, buffers.outs, buffers.n,
                                             buffers.counts, MUSTER_INT32, MUSTER_SUM, NULL));
    check_sums(member, &buffers, buffers.begin, mine);
    const void *ins[BUFFERS_MAX];
    void *outs[BUFFERS_MAX];
    size_t counts[MEMBERS];
    memcpy(ins, buffers.ins, sizeof ins); /* needed until the start returns */
    memcpy(outs, buffers.outs, sizeof outs);
    memcpy(counts, buffers.counts, sizeof counts);
    MEMBER_OK(member,
              muster_reduce_scatterv_buffers_start(session, scope, ins, outs, buffers.n, counts,
                                                   MUSTER_INT32, MUSTER_SUM, NULL, &operation));
    memset(ins, 0, sizeof ins);
    memset(outs, 0, sizeof outs);
    memset(counts, 0, sizeof counts);
    MEMBER_OK(member, muster_wait(operation));
    check_sums(member, &buffers, buffers.begin, mine);
    MEMBER_OK(member, muster_reduce_scatterv_buffers_init(session, scope, buffers.ins, buffers.outs,
                                                          buffers.n, buffers.counts, MUSTER_INT32,
                                                          MUSTER_SUM, NULL, &operation));
    for (int i = 0; i < 2; i++) {
        MEMBER_OK(member, muster_start(operation));
        MEMBER_OK(member, muster_wait(operation));
        check_sums(member, &buffers, buffers.begin, mine);
    }
    MEMBER_OK(member, muster_detach(operation));
    for (size_t b = 0; b < buffers.n; b++) { /* in place */
        outs[b] = buffers.in[b] + buffers.begin;
    }
    MEMBER_OK(member,
              muster_reduce_scatterv_buffers(session, scope, buffers.ins, outs, buffers.n,
                                             buffers.counts, MUSTER_INT32, MUSTER_SUM, NULL));
    for (size_t b = 0; b < buffers.n; b++) {
        memcpy(buffers.out[b], outs[b], mine * sizeof buffers.out[b][0]);
    }
    check_sums(member, &buffers, buffers.begin, mine);
}

static void check_allreduce(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    struct buffers buffers;
    muster_operation operation = 0;
    prepare(&buffers, session, scope);
    MEMBER_OK(member, muster_allreduce_buffers(session, scope, buffers.ins, buffers.outs, buffers.n,
                                               buffers.total, MUSTER_INT32, MUSTER_SUM, NULL));
    check_sums(member, &buffers, 0, buffers.total);
    MEMBER_OK(member, muster_allreduce_buffers_start(session, scope, buffers.ins, buffers.outs,
                                                     buffers.n, buffers.total, MUSTER_INT32,
                                                     MUSTER_SUM, NULL, &operation));
    MEMBER_OK(member, muster_wait(operation));
    check_sums(member, &buffers, 0, buffers.total);
}

/* All outputs have the averages from this element on. */
static void check_averages(struct crew_member *member, struct buffers *buffers, size_t begin,
                           size_t count)
{
    for (size_t b = 0; b < buffers->n; b++) {
        for (size_t i = 0; i < count; i++) {
            MEMBER_CHECK(member, buffers->out[b][i] ==
                                     sum_of_all(buffers, begin + i) / (int32_t)buffers->inputs);
        }
    }
    memset(buffers->out, 0, sizeof buffers->out);
}

/* The average of different numbers of buffers; a member without any may have no lists. */
static void check_average(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    struct buffers buffers;
    muster_operation operation = 0;
    prepare(&buffers, session, scope);
    const void *const *ins = buffers.n > 0 ? buffers.ins : NULL;
    void *const *outs = buffers.n > 0 ? buffers.outs : NULL;
    MEMBER_OK(member, muster_allreduce_buffers(session, scope, ins, outs, buffers.n, buffers.total,
                                               MUSTER_INT32, MUSTER_AVERAGE, NULL));
    check_averages(member, &buffers, 0, buffers.total);
    MEMBER_OK(member,
              muster_reduce_scatterv_buffers(session, scope, ins, outs, buffers.n, buffers.counts,
                                             MUSTER_INT32, MUSTER_AVERAGE, NULL));
    check_averages(member, &buffers, buffers.begin, buffers.counts[buffers.rank]);
    MEMBER_OK(member,
              muster_allreduce_buffers_start(session, scope, ins, outs, buffers.n, buffers.total,
                                             MUSTER_INT32, MUSTER_AVERAGE, NULL, &operation));
    MEMBER_OK(member, muster_wait(operation));
    check_averages(member, &buffers, 0, buffers.total);
    MEMBER_OK(member,
              muster_allreduce_buffers_init(session, scope, ins, outs, buffers.n, buffers.total,
                                            MUSTER_INT32, MUSTER_AVERAGE, NULL, &operation));
    for (int i = 0; i < 2; i++) {
        MEMBER_OK(member, muster_start(operation));
        MEMBER_OK(member, muster_wait(operation));
        check_averages(member, &buffers, 0, buffers.total);
    }
    MEMBER_OK(member, muster_detach(operation));
}

static void check_broadcast(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    struct buffers buffers;
    prepare(&buffers, session, scope);
    uint32_t root = buffers.size - 1;
    buffers.n = buffers.n > 0 ? buffers.n : 1;
    void *all[BUFFERS_MAX] = {buffers.in[0], buffers.in[1], buffers.in[2]};
    MEMBER_OK(member, muster_broadcast_buffers(session, scope, all, buffers.n, buffers.total,
                                               MUSTER_INT32, root, NULL));
    for (size_t b = 0; b < buffers.n; b++) {
        for (size_t i = 0; i < buffers.total; i++) {
            MEMBER_CHECK(member, buffers.in[b][i] == value(root, 0, i));
        }
    }
}

static void check_scopes(struct crew_member *member)
{
    for (muster_scope scope = MUSTER_GLOBAL; scope <= MUSTER_CROSS; scope++) {
        check_reduce_scatterv(member, scope);
        check_allreduce(member, scope);
        check_average(member, scope);
        check_broadcast(member, scope);
    }
}

static void members_have_different_numbers_of_buffers(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "buffers",
                        .count = MEMBERS,
                        .hosts = 2,
                        .function = check_scopes};
    assert_int_equal(crew_run(&crew), 0);
}

static void call_differently(struct crew_member *member)
{
    muster_session *session = member->session;
    struct buffers buffers;
    prepare(&buffers, session, MUSTER_GLOBAL);
    bool odd = buffers.rank == 1;
    crew_expect_invalid(member,
                        muster_allreduce_buffers(session, MUSTER_GLOBAL, buffers.ins, buffers.outs,
                                                 buffers.n, odd ? 8 : 9, MUSTER_INT32, MUSTER_SUM,
                                                 NULL),
                        odd ? "count 8 here, 9 there" : "count 9 here, 8 there");
    crew_expect_invalid(
        member,
        odd ? muster_allreduce_buffers(session, MUSTER_GLOBAL, buffers.ins, buffers.outs, buffers.n,
                                       9, MUSTER_INT32, MUSTER_AVERAGE, NULL)
            : muster_allreduce(session, MUSTER_GLOBAL, buffers.in[0], buffers.out[0], 9,
                               MUSTER_INT32, MUSTER_AVERAGE, NULL),
        odd ? "the lengths of an average's lists of buffers here, allreduce there"
            : "allreduce here, the lengths of an average's lists of buffers there");
    buffers.counts[1] = odd ? 3 : 4;
    crew_expect_invalid(member,
                        muster_reduce_scatterv_buffers(session, MUSTER_GLOBAL, buffers.ins,
                                                       buffers.outs, buffers.n, buffers.counts,
                                                       MUSTER_INT32, MUSTER_SUM, NULL),
                        "counts per rank: a list with checksum ");
    crew_expect_invalid(member,
                        muster_reduce_scatterv_buffers(session, MUSTER_GLOBAL, buffers.ins,
                                                       buffers.outs, buffers.n, NULL, MUSTER_INT32,
                                                       MUSTER_SUM, NULL),
                        "reduce_scatterv_buffers: counts is NULL");
    crew_expect_invalid(member,
                        muster_reduce_scatterv_buffers(session, MUSTER_GLOBAL, buffers.ins,
                                                       buffers.outs, 65, buffers.counts,
                                                       MUSTER_INT32, MUSTER_SUM, NULL),
                        "reduce_scatter: 65 buffers: must be from 0 to 64");
    MEMBER_OK(member, muster_barrier(session, MUSTER_GLOBAL, NULL));
}

static void members_that_call_differently_get_both_values(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "other-buffers",
                        .count = 2,
                        .hosts = 1,
                        .function = call_differently};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_different_numbers_of_buffers),
        cmocka_unit_test(members_that_call_differently_get_both_values),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
