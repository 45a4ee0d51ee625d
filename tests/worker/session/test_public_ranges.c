/* The public collectives on several ranges, blocking and in flight, in all scopes; members cut
 * their memory differently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/service.h"

enum { COUNT = 60, GAP = 3, RANGES_MAX = 12 };

/* Cuts so many elements of the memory into n ranges of about one size, the last one first. */
static void cut(int32_t *memory, size_t n, muster_range *ranges)
{
    size_t left = COUNT;
    for (size_t i = n; i > 0; i--) {
        ranges[i - 1].count = left / i;
        ranges[i - 1].address = memory;
        memory += ranges[i - 1].count + GAP;
        left -= ranges[i - 1].count;
    }
}

/* Element i of the concatenation. */
static int32_t *at(const muster_range *ranges, size_t i)
{
    while (i >= ranges->count) {
        i -= ranges->count;
        ranges++;
    }
    return (int32_t *)ranges->address + i;
}

struct buffers {
    int32_t in[COUNT + RANGES_MAX * GAP], out[COUNT + RANGES_MAX * GAP];
    muster_range ins[RANGES_MAX], outs[RANGES_MAX];
    size_t n;
};

static void prepare(struct buffers *buffers, uint32_t rank)
{
    memset(buffers, 0, sizeof *buffers);
    buffers->n = 1 + 3 * rank % RANGES_MAX;
    cut(buffers->in, buffers->n, buffers->ins);
    cut(buffers->out, buffers->n, buffers->outs);
    for (size_t i = 0; i < COUNT; i++) {
        *at(buffers->ins, i) = (int32_t)(100 * i + rank);
    }
}

static void check_sum(struct crew_member *member, const muster_range *outs, uint32_t size)
{
    for (size_t i = 0; i < COUNT; i++) {
        MEMBER_CHECK(member, *at(outs, i) == (int32_t)(size * 100 * i + size * (size - 1) / 2));
    }
}

static void check_allreduce(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, scope);
    uint32_t size = muster_size(session, scope);
    struct buffers buffers;
    struct buffers later;
    muster_operation operation = 0;
    prepare(&buffers, rank);
    prepare(&later, rank);
    muster_range list[RANGES_MAX]; /* needed until the start returns */
    memcpy(list, later.ins, sizeof list);
    MEMBER_OK(member, muster_allreduce_ranges_start(session, scope, list, list, later.n,
                                                    MUSTER_INT32, MUSTER_SUM, NULL, &operation));
    memset(list, 0, sizeof list);
    MEMBER_OK(member, muster_allreduce_ranges(session, scope, buffers.ins, buffers.outs, buffers.n,
                                              MUSTER_INT32, MUSTER_SUM, NULL));
    check_sum(member, buffers.outs, size);
    MEMBER_OK(member, muster_wait(operation));
    check_sum(member, later.ins, size);
    prepare(&buffers, rank);
    if (rank % 2 == 0) { /* a member with one buffer calls as always */
        int32_t flat[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            flat[i] = *at(buffers.ins, i);
        }
        MEMBER_OK(member, muster_allreduce(session, scope, flat, flat, COUNT, MUSTER_INT32,
                                           MUSTER_SUM, NULL));
        check_sum(member, (muster_range[]){{flat, COUNT}}, size);
    } else {
        MEMBER_OK(member, muster_allreduce_ranges(session, scope, buffers.ins, buffers.ins,
                                                  buffers.n, MUSTER_INT32, MUSTER_SUM, NULL));
        check_sum(member, buffers.ins, size);
    }
    MEMBER_OK(member, muster_allreduce_ranges(session, scope, NULL, NULL, 0, MUSTER_INT32,
                                              MUSTER_SUM, NULL));
}

static void check_broadcast(struct crew_member *member, muster_scope scope)
{
    muster_session *session = member->session;
    uint32_t rank = muster_rank(session, scope);
    uint32_t root = muster_size(session, scope) - 1;
    struct buffers buffers;
    struct buffers later;
    muster_operation operation = 0;
    prepare(&buffers, rank);
    prepare(&later, rank);
    MEMBER_OK(member, muster_broadcast_ranges_start(session, scope, later.ins, later.n,
                                                    MUSTER_INT32, root, NULL, &operation));
    MEMBER_OK(member, muster_broadcast_ranges(session, scope, buffers.ins, buffers.n, MUSTER_INT32,
                                              root, NULL));
    MEMBER_OK(member, muster_wait(operation));
    for (size_t i = 0; i < COUNT; i++) {
        MEMBER_CHECK(member, *at(buffers.ins, i) == (int32_t)(100 * i + root));
        MEMBER_CHECK(member, *at(later.ins, i) == (int32_t)(100 * i + root));
    }
}

static void check_scopes(struct crew_member *member)
{
    for (muster_scope scope = MUSTER_GLOBAL; scope <= MUSTER_CROSS; scope++) {
        check_allreduce(member, scope);
        check_broadcast(member, scope);
    }
}

static void ranges_work_in_all_scopes(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "ranges",
                        .count = 4,
                        .hosts = 2,
                        .function = check_scopes};
    assert_int_equal(crew_run(&crew), 0);
}

static void call_wrongly(struct crew_member *member)
{
    muster_session *session = member->session;
    int32_t data[16] = {0};
    const muster_range good[] = {{data, 2}, {data + 4, 2}};
    const muster_range overlapping[] = {{data, 5}, {data + 4, 2}};
    const muster_range crossed[] = {{data + 4, 2}, {data, 2}};
    const muster_range missing[] = {{data, 2}, {NULL, 2}};
    const muster_range odd[] = {{data, 2}, {(char *)data + 17, 2}};
    const muster_range endless[] = {{data, SIZE_MAX}, {data, SIZE_MAX}};
    const struct {
        const muster_range *ins, *outs;
        size_t count;
        const char *word;
    } wrong[] = {
        {good, overlapping, 2, "ins have 4 elements together, and outs 7"},
        {overlapping, overlapping, 2, "ranges 0 and 1 of outs overlap"},
        {good, crossed, 2, "range 0 of ins overlaps range 1 of outs"},
        {good, missing, 2, "range 1 of outs is NULL"},
        {odd, odd, 2, "is not aligned to its elements of 4 bytes"},
        {endless, endless, 2, "over the limit"},
        {NULL, good, 2, "ins is NULL, with 2 ranges"},
        {good, good, (size_t)MUSTER_RANGES_MAX + 1, "65536 are the most"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        muster_operation operation = 77;
        crew_expect_invalid(member,
                            muster_allreduce_ranges(session, MUSTER_GLOBAL, wrong[i].ins,
                                                    wrong[i].outs, wrong[i].count, MUSTER_INT32,
                                                    MUSTER_SUM, NULL),
                            wrong[i].word);
        crew_expect_invalid(member,
                            muster_allreduce_ranges_start(
                                session, MUSTER_GLOBAL, wrong[i].ins, wrong[i].outs, wrong[i].count,
                                MUSTER_INT32, MUSTER_SUM, NULL, &operation),
                            wrong[i].word);
        MEMBER_CHECK(member, operation == 77);
    }
    crew_expect_invalid(
        member,
        muster_broadcast_ranges(session, MUSTER_GLOBAL, overlapping, 2, MUSTER_INT32, 0, NULL),
        "broadcast: ranges 0 and 1 of outs overlap");
    crew_expect_invalid(member,
                        muster_allreduce_ranges(session, MUSTER_GLOBAL, good, good, 2,
                                                (muster_type)99, MUSTER_SUM, NULL),
                        "there is no type 99");
    MEMBER_OK(member, muster_allreduce_ranges(session, MUSTER_GLOBAL, good, good, 2, MUSTER_INT32,
                                              MUSTER_SUM, NULL));
}

static void wrong_lists_are_named(void **state)
{
    (void)state;
    struct crew crew = {.url = group_service.url,
                        .job = "wrong-ranges",
                        .count = 1,
                        .hosts = 1,
                        .function = call_wrongly};
    assert_int_equal(crew_run(&crew), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_work_in_all_scopes),
        cmocka_unit_test(wrong_lists_are_named),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, test_service_setup, test_service_teardown);
}
