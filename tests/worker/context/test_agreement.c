/* Members that call one operation in different ways: they are told, nobody hangs, and the next
 * operation works. */
#include "tests/support/calls.h"
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each test runs between threads, over TCP, and in shared memory. */
static enum group_transport transport;

/* As a program does: whoever is done goes on, and so hears what is still said about the first. */
static void call_twice(struct group_member *member, void *argument)
{
    group_call(member, argument);
    group_allreduce_well(member, NULL);
}

/* Rank 1 of 4 calls differently. All must say so, with both values, and be able to go on. */
static void assert_disagreement(struct group_calls *calls, const char *one, const char *other)
{
    enum { RANKS = 4 };
    struct group group;
    group_start_flat(&group, transport, RANKS);
    group_each(&group, call_twice, calls);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (calls->statuses[i] != MUSTER_INVALID || strstr(calls->texts[i], one) == NULL ||
            strstr(calls->texts[i], other) == NULL || strstr(calls->texts[i], "rank ") == NULL) {
            fail_msg("rank %u, for %s and %s: %s: %s", i, one, other,
                     muster_status_name(calls->statuses[i]), calls->texts[i]);
        }
        assert_int_equal(calls->suspects[i], UINT32_MAX);
    }
    group_finish(&group);
    free(calls);
}

static void members_that_disagree_all_get_told(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].count = 128;
    assert_disagreement(calls, "100", "128");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].type = MUSTER_INT32;
    assert_disagreement(calls, "float32", "int32");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].op = MUSTER_MAX;
    assert_disagreement(calls, "sum", "max");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].collective = MUSTER_ALLGATHER;
    calls->requests[1].count = 10;
    assert_disagreement(calls, "allreduce", "allgather");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].algorithm = i == 1 ? "ring_two_phase" : "ring_chunked";
    }
    assert_disagreement(calls, "ring_two_phase", "ring_chunked");
}

static void members_must_agree_on_how_the_reduction_is_scaled(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].prescale = 0.5;
    assert_disagreement(calls, "prescale", "0.5");

    calls = group_calls_create(MUSTER_REDUCE_SCATTER);
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].count = 10;
        calls->requests[i].postscale = i == 1 ? 3 : 2;
    }
    assert_disagreement(calls, "postscale", "3");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    const void *inputs[] = {calls->in[1], calls->in[1]};
    void *outputs[] = {calls->out[1], calls->out[1] + 200};
    calls->requests[1].buffer_count = 2;
    calls->requests[1].inputs = inputs;
    calls->requests[1].outputs = outputs;
    assert_disagreement(calls, " buffers here", "2");
}

static void large_calls_that_disagree_fail_too(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    float *data = calloc(LARGE, 2 * sizeof *data);
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].in = data;
        calls->requests[i].out = calloc(LARGE, sizeof *data);
        calls->requests[i].count = i == 1 ? LARGE - 1 : LARGE;
    }
    float *outputs[4];
    for (uint32_t i = 0; i < 4; i++) {
        outputs[i] = calls->requests[i].out;
    }
    assert_disagreement(calls, "1048576", "1048575");
    for (uint32_t i = 0; i < 4; i++) {
        free(outputs[i]);
    }
    free(data);
}

static void a_barrier_does_not_match_an_allreduce(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].collective = MUSTER_BARRIER;
    assert_disagreement(calls, "allreduce", "barrier");
}

/* Members that only send may be done before anybody has compared: they return well. Nobody waits
 * for the deadline. Tells whether somebody noticed. */
static bool run_and_look(struct group_calls *calls, uint32_t ranks, const char *word)
{
    struct group group;
    bool noticed = false;
    group_start_flat(&group, transport, ranks);
    group_each(&group, call_twice, calls);
    for (uint32_t i = 0; i < ranks; i++) {
        bool said = calls->statuses[i] == MUSTER_INVALID && strstr(calls->texts[i], word) != NULL;
        noticed = noticed || said;
        if (!said && calls->statuses[i] != MUSTER_OK) {
            fail_msg("rank %u, for %s: %s: %s", i, word, muster_status_name(calls->statuses[i]),
                     calls->texts[i]);
        }
    }
    group_finish(&group);
    free(calls);
    return noticed;
}

static void a_broadcast_of_another_count_is_noticed(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
    calls->requests[1].count = 128;
    assert_true(run_and_look(calls, 4, "128"));
}

/* Rank 1 sends where nobody waits for it. Whoever is not done when that comes notices; if all are
 * done there is nobody left to tell. */
static void two_roots_of_a_small_broadcast_keep_nobody_waiting(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
    calls->requests[1].root = 1;
    (void)run_and_look(calls, 4, "root ");
}

static void two_roots_of_a_large_broadcast_notice(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
    float *data = calloc(LARGE, 2 * sizeof *data);
    for (uint32_t i = 0; i < 2; i++) {
        calls->requests[i].out = data + i * LARGE;
        calls->requests[i].count = LARGE;
        calls->requests[i].root = i;
    }
    assert_true(run_and_look(calls, 2, "root "));
    free(data);
}

static const size_t other_counts[] = {100, 99, 101, 100};

static void members_that_disagree_on_a_list_of_counts_all_get_told(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLGATHERV);
    calls->requests[1].out_counts = other_counts; /* as many in all */
    assert_disagreement(calls, "counts per rank:", "a list with checksum");

    calls = group_calls_create(MUSTER_REDUCE_SCATTER);
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].in_counts = i == 1 ? other_counts : calls->counts;
    }
    assert_disagreement(calls, "counts per rank:", "a list with checksum");

    calls = group_calls_create(MUSTER_REDUCE_SCATTER);
    calls->requests[1].in_counts = calls->counts;
    assert_disagreement(calls, "count ", "a list with checksum");
}

/* What one sends is not what the other takes: those two notice, the others may be done before. */
static void blocks_that_do_not_fit_each_other_are_noticed(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLTOALLV);
    calls->requests[1].in_counts = other_counts;
    assert_true(run_and_look(calls, 4, "differs in a message's size: "));
    calls = group_calls_create(MUSTER_ALLTOALLV);
    calls->requests[1].out_counts = other_counts;
    assert_true(run_and_look(calls, 4, "differs in a message's size: "));
}

/* The root takes something from everyone, or everyone from it. */
static void a_difference_from_the_root_is_noticed(void **state)
{
    (void)state;
    static const enum muster_collective collectives[] = {MUSTER_REDUCE, MUSTER_GATHER,
                                                         MUSTER_SCATTER};
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        struct group_calls *calls = group_calls_create(collectives[i]);
        calls->requests[1].count = 128;
        assert_true(run_and_look(calls, 4, "128"));
        calls = group_calls_create(collectives[i]);
        calls->requests[1].type = MUSTER_INT32;
        assert_true(run_and_look(calls, 4, "int32"));
    }
    struct group_calls *calls = group_calls_create(MUSTER_GATHERV);
    calls->requests[1].out_counts = other_counts;
    assert_true(run_and_look(calls, 4, "counts per rank:"));
    calls = group_calls_create(MUSTER_REDUCE);
    calls->requests[1].op = MUSTER_MAX;
    assert_true(run_and_look(calls, 4, "max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_disagree_all_get_told),
        cmocka_unit_test(members_must_agree_on_how_the_reduction_is_scaled),
        cmocka_unit_test(large_calls_that_disagree_fail_too),
        cmocka_unit_test(members_that_disagree_on_a_list_of_counts_all_get_told),
        cmocka_unit_test(blocks_that_do_not_fit_each_other_are_noticed),
        cmocka_unit_test(a_difference_from_the_root_is_noticed),
        cmocka_unit_test(a_barrier_does_not_match_an_allreduce),
        cmocka_unit_test(a_broadcast_of_another_count_is_noticed),
        cmocka_unit_test(two_roots_of_a_small_broadcast_keep_nobody_waiting),
        cmocka_unit_test(two_roots_of_a_large_broadcast_notice),
    };
    transport = GROUP_INPROC;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    transport = GROUP_TCP;
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    transport = GROUP_MEMORY;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
