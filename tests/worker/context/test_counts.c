/* Collectives with a count per rank: wrong counts are refused, and no call uses the cached
 * operation of another list of counts. */
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, BLOCK_MAX = 8, LISTS = 343 }; /* lists: more than a context caches operations */

static void assert_refused(struct group *group, const struct muster_request *request,
                           const char *word)
{
    assert_int_equal(muster_context_run(group->members[0].contexts[MUSTER_GLOBAL], request, NULL),
                     MUSTER_INVALID);
    if (strstr(muster_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), word);
    }
}

static void wrong_counts_are_refused_before_a_message_is_sent(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    static const size_t right_counts[RANKS] = {1, 2, 3};
    static const size_t overflow[RANKS] = {1, SIZE_MAX, 2};
    static const size_t too_many_together[RANKS] = {(size_t)1 << 59, (size_t)1 << 59, 1};
    int32_t in[RANKS * BLOCK_MAX] = {0};
    int32_t out[RANKS * BLOCK_MAX];
    const struct muster_request good = {
        .collective = MUSTER_ALLGATHERV, .in = in, .out = out, .type = MUSTER_INT32};
    struct muster_request bad = good;
    assert_refused(&group, &bad, "allgatherv needs the sizes of its blocks");
    bad.out_counts = overflow;
    assert_refused(&group, &bad, "allgatherv: with rank 1's");
    bad.out_counts = too_many_together;
    assert_refused(&group, &bad, "allgatherv: with rank 2's 1 elements the output is over");
    bad.out_counts = right_counts;
    bad.in = out + 1; /* in place would be at out */
    assert_refused(&group, &bad, "overlap");
    bad.in = in;
    bad.out = NULL;
    assert_refused(&group, &bad, "output buffer is NULL");
    bad = good;
    bad.in_counts = right_counts;
    assert_refused(&group, &bad, "input");
    bad.collective = MUSTER_ALLTOALLV;
    assert_refused(&group, &bad, "alltoallv needs the sizes of its blocks");
    bad.collective = MUSTER_REDUCE_SCATTER;
    bad.in_counts = NULL;
    bad.out_counts = right_counts;
    assert_refused(&group, &bad, "output");
    bad.collective = MUSTER_GATHER;
    assert_refused(&group, &bad, "gather has no output blocks of different sizes");
    bad.collective = MUSTER_GATHERV;
    bad.root = RANKS;
    assert_refused(&group, &bad, "root 3");
    assert_int_equal(muster_context_progress(group.members[0].contexts[MUSTER_GLOBAL]), 0);
    group_finish(&group);
}

/* The counts of list number `list`: its digits in base 7. Many lists have the same sum. */
static void make_list(unsigned list, size_t counts[RANKS])
{
    for (uint32_t i = 0; i < RANKS; i++, list /= 7) {
        counts[i] = list % 7;
    }
}

/* Whether element i of each rank's block in `out` is 1000 * rank + i. */
static bool is_gathered(const int32_t *out, const size_t counts[RANKS])
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; i < counts[rank]; i++) {
            if (*out++ != (int32_t)(1000 * rank + i)) {
                return false;
            }
        }
    }
    return true;
}

/* One array holds all lists in turn, so a call may not keep a pointer to it. */
static void gather_all_lists_twice(struct group_member *member, void *argument)
{
    (void)argument;
    size_t counts[RANKS];
    int32_t in[BLOCK_MAX];
    int32_t out[RANKS * BLOCK_MAX];
    for (int32_t i = 0; i < BLOCK_MAX; i++) {
        in[i] = 1000 * (int32_t)member->rank + i;
    }
    for (unsigned list = 0; list < 2 * LISTS; list++) {
        make_list(list, counts);
        memset(out, 0x5a, sizeof out);
        const struct muster_request request = {.collective = MUSTER_ALLGATHERV,
                                               .in = in,
                                               .out = out,
                                               .out_counts = counts,
                                               .type = MUSTER_INT32,
                                               .deadline_ns = group_deadline()};
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "list %u: %s", list, muster_last_error());
            return;
        }
        if (!is_gathered(out, counts)) {
            group_fail(member, "list %u: wrong result", list);
        }
    }
}

static void each_list_of_counts_has_its_own_cached_operation(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, gather_all_lists_twice, NULL);
    group_finish(&group);
}

/* A call with a list of counts and one with a single count alternate. */
static void scatter_with_and_without_counts(struct group_member *member, void *argument)
{
    (void)argument;
    static const size_t counts[RANKS] = {1, 0, 5};
    static const size_t offsets[RANKS] = {0, 1, 1};
    for (int times = 0; times < 6; times++) {
        int64_t in[RANKS * 2];
        int64_t out[BLOCK_MAX] = {0};
        for (int64_t i = 0; i < RANKS * 2; i++) {
            in[i] = i;
        }
        bool listed = times % 2 == 1;
        const struct muster_request request = {.collective = MUSTER_REDUCE_SCATTER,
                                               .in = in,
                                               .out = out,
                                               .count = listed ? 0 : 2,
                                               .in_counts = listed ? counts : NULL,
                                               .type = MUSTER_INT64,
                                               .deadline_ns = group_deadline()};
        if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
            group_fail(member, "%s", muster_last_error());
            return;
        }
        size_t offset = listed ? offsets[member->rank] : 2 * (size_t)member->rank;
        size_t count = listed ? counts[member->rank] : 2;
        for (size_t i = 0; i < count; i++) {
            if (out[i] != RANKS * (int64_t)(offset + i)) {
                group_fail(member, "out[%zu] is %lld", i, (long long)out[i]);
            }
        }
    }
}

static void calls_with_and_without_a_list_of_counts_are_cached_apart(void **state)
{
    (void)state;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, scatter_with_and_without_counts, NULL);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_counts_are_refused_before_a_message_is_sent),
        cmocka_unit_test(each_list_of_counts_has_its_own_cached_operation),
        cmocka_unit_test(calls_with_and_without_a_list_of_counts_are_cached_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
