/* Ranks whose calls of one operation disagree: each gets an error that names both values, none
 * hangs, and the next operation works. */
#include "tests/support/calls.h"
#include "tests/support/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each test runs between threads, over TCP, and in shared memory. */
static enum group_transport transport;

/* Each member goes on to a second call, as a program does: its progress also handles messages of
 * the first call that are still on the way. */
static void call_then_allreduce(struct group_member *member, void *argument)
{
    group_call(member, argument);
    group_allreduce_well(member, NULL);
}

/* Rank 1 of 4 makes another call. Every rank must get an error with both values, and be able to go
 * on. */
static void assert_disagreement(struct group_calls *calls, const char *one, const char *other)
{
    enum { RANKS = 4 };
    struct group group;
    group_start_flat(&group, transport, RANKS);
    group_each(&group, call_then_allreduce, calls);
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

static void a_disagreement_is_an_error_on_all_ranks(void **state)
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
        calls->requests[i].algorithm = i == 1 ? "swing" : "ring_chunked";
    }
    assert_disagreement(calls, "swing", "ring_chunked");
}

static void a_disagreement_on_factors_or_buffers_is_an_error_on_all_ranks(void **state)
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
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].algorithm = "ring";
        calls->requests[i].compression =
            i == 1 ? MUSTER_COMPRESSION_NONE : MUSTER_COMPRESSION_BFLOAT16;
    }
    assert_disagreement(calls, "compression", "bfloat16");

    calls = group_calls_create(MUSTER_ALLREDUCE);
    const void *inputs[] = {calls->in[1], calls->in[1]};
    void *outputs[] = {calls->out[1], calls->out[1] + 200};
    for (uint32_t i = 0; i < 4; i++) {
        calls->requests[i].op = MUSTER_AVERAGE; /* one member's is over a list of buffers */
    }
    calls->requests[1].buffer_count = 2;
    calls->requests[1].inputs = inputs;
    calls->requests[1].outputs = outputs;
    assert_disagreement(calls, "the lengths of an average's lists of buffers", "allreduce");
}

static void a_disagreement_of_large_calls_is_an_error_on_all_ranks(void **state)
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

static void a_barrier_and_an_allreduce_are_a_disagreement(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLREDUCE);
    calls->requests[1].collective = MUSTER_BARRIER;
    assert_disagreement(calls, "allreduce", "barrier");
}

/* A rank that only sends may finish before the calls are compared: it succeeds. No rank waits until
 * the deadline. Returns whether a rank detected the disagreement. */
static bool detect_disagreement(struct group_calls *calls, uint32_t ranks, const char *word)
{
    struct group group;
    bool detected = false;
    group_start_flat(&group, transport, ranks);
    group_each(&group, call_then_allreduce, calls);
    for (uint32_t i = 0; i < ranks; i++) {
        bool detected_here =
            calls->statuses[i] == MUSTER_INVALID && strstr(calls->texts[i], word) != NULL;
        detected = detected || detected_here;
        if (!detected_here && calls->statuses[i] != MUSTER_OK) {
            fail_msg("rank %u, for %s: %s: %s", i, word, muster_status_name(calls->statuses[i]),
                     calls->texts[i]);
        }
    }
    group_finish(&group);
    free(calls);
    return detected;
}

static void a_broadcast_of_another_count_is_detected(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
    calls->requests[1].count = 128;
    assert_true(detect_disagreement(calls, 4, "128"));
}

/* Rank 1 sends messages for which no rank has posted a receive. A rank that has not finished when
 * such a message arrives detects the disagreement; if all have finished, none does. */
static void two_roots_of_a_small_broadcast_let_no_rank_hang(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_BROADCAST);
    calls->requests[1].root = 1;
    (void)detect_disagreement(calls, 4, "root ");
}

static void two_roots_of_a_large_broadcast_are_detected(void **state)
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
    assert_true(detect_disagreement(calls, 2, "root "));
    free(data);
}

static const size_t other_counts[] = {100, 99, 101, 100};

static void a_disagreement_on_counts_per_rank_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLGATHERV);
    calls->requests[1].out_counts = other_counts; /* the same sum as calls->counts */
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

/* The size that rank 1 sends or expects differs from its peer's: these two detect it, the others
 * may finish before. */
static void different_sizes_of_a_block_are_detected(void **state)
{
    (void)state;
    struct group_calls *calls = group_calls_create(MUSTER_ALLTOALLV);
    calls->requests[1].in_counts = other_counts;
    assert_true(detect_disagreement(calls, 4, "differs in a message's size: "));
    calls = group_calls_create(MUSTER_ALLTOALLV);
    calls->requests[1].out_counts = other_counts;
    assert_true(detect_disagreement(calls, 4, "differs in a message's size: "));
}

/* The root receives from all ranks, or all ranks receive from it. */
static void a_disagreement_with_the_root_is_detected(void **state)
{
    (void)state;
    static const enum muster_collective collectives[] = {MUSTER_REDUCE, MUSTER_GATHER,
                                                         MUSTER_SCATTER};
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        struct group_calls *calls = group_calls_create(collectives[i]);
        calls->requests[1].count = 128;
        assert_true(detect_disagreement(calls, 4, "128"));
        calls = group_calls_create(collectives[i]);
        calls->requests[1].type = MUSTER_INT32;
        assert_true(detect_disagreement(calls, 4, "int32"));
    }
    struct group_calls *calls = group_calls_create(MUSTER_GATHERV);
    calls->requests[1].out_counts = other_counts;
    assert_true(detect_disagreement(calls, 4, "counts per rank:"));
    calls = group_calls_create(MUSTER_REDUCE);
    calls->requests[1].op = MUSTER_MAX;
    assert_true(detect_disagreement(calls, 4, "max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disagreement_is_an_error_on_all_ranks),
        cmocka_unit_test(a_disagreement_on_factors_or_buffers_is_an_error_on_all_ranks),
        cmocka_unit_test(a_disagreement_of_large_calls_is_an_error_on_all_ranks),
        cmocka_unit_test(a_disagreement_on_counts_per_rank_is_an_error_on_all_ranks),
        cmocka_unit_test(different_sizes_of_a_block_are_detected),
        cmocka_unit_test(a_disagreement_with_the_root_is_detected),
        cmocka_unit_test(a_barrier_and_an_allreduce_are_a_disagreement),
        cmocka_unit_test(a_broadcast_of_another_count_is_detected),
        cmocka_unit_test(two_roots_of_a_small_broadcast_let_no_rank_hang),
        cmocka_unit_test(two_roots_of_a_large_broadcast_are_detected),
    };
    transport = GROUP_INPROC;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    transport = GROUP_TCP;
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    transport = GROUP_MEMORY;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
