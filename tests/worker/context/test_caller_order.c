/* Ranks that are not contiguous by host: every algorithm of every collective gives the caller's
 * result in the caller's order, blocking and in flight, with equal and different blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "tests/support/sweep.h"
#include "worker/base/cleanup.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SHUFFLES = 1, FLIGHTS = 3 };
#else
enum { SHUFFLES = 3, FLIGHTS = 10 };
#endif
enum { RANKS_MAX = 17, COUNT = 37, SIZE_BYTES = 2 * (COUNT + 1) * RANKS_MAX * 8 };

static uint64_t seed;

static void shuffle(uint32_t *callers, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        callers[i] = i;
    }
    for (uint32_t i = ranks; i > 1; i--) {
        uint32_t other = test_random_below(&seed, i);
        uint32_t kept = callers[i - 1];
        callers[i - 1] = callers[other];
        callers[other] = kept;
    }
}

static const struct sweep_shape shapes[] = {
    {1, {4}}, {2, {1, 2}}, {2, {4, 4}}, {3, {3, 1, 4}}, {3, {1, 1, 5}}, {4, {2, 5, 1, 4}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void every_algorithm_is_right_in_any_order_of_ranks(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 1001, 0};
    for (unsigned i = 0; i < SHUFFLES * SHAPES; i++) {
        uint32_t callers[RANKS_MAX];
        shuffle(callers, RANKS_MAX);
        uint32_t ranks = 0;
        for (uint32_t host = 0; host < shapes[i % SHAPES].hosts; host++) {
            ranks += shapes[i % SHAPES].host_sizes[host];
        }
        shuffle(callers, ranks);
        const struct sweep sweep = {.counts = counts, .count_count = 3, .callers = callers};
        sweep_shape(&shapes[i % SHAPES], &sweep);
    }
}

/* What MPI calls round robin by node, over links with real messages. */
static void ranks_may_be_dealt_out_to_the_hosts(void **state)
{
    (void)state;
    static const struct sweep_shape two_hosts = {2, {4, 4}};
    static const uint32_t dealt[] = {0, 2, 4, 6, 1, 3, 5, 7};
    static const uint64_t counts[] = {777, 1};
    const struct sweep sweep = {
        .counts = counts, .count_count = 2, .callers = dealt, .place = SWEEP_TCP};
    sweep_shape(&two_hosts, &sweep);
}

/* Calls in flight ------------------------------------------------------------------------------ */

static void start_and_end(struct group_member *member, struct muster_request *request, bool uneven)
{
    uint32_t ranks = member->group->size;
    char text[128] = "";
    struct muster_started_call *call = NULL;
    AUTO_FREE char *in = calloc(1, SIZE_BYTES);
    AUTO_FREE char *out = calloc(1, SIZE_BYTES);
    request->in = request->collective == MUSTER_BROADCAST ? NULL : in;
    request->out = out;
    request->deadline_ns = group_deadline();
    if (uneven) {
        pattern_make_counts(request, member->rank, ranks);
    }
    pattern_fill(request, request->in != NULL ? in : out, member->rank, ranks);
    muster_status status = muster_context_start(member->contexts[MUSTER_GLOBAL], request, &call);
    status = status == MUSTER_OK ? muster_started_call_end(call, NULL) : status;
    if (status != MUSTER_OK) {
        group_fail(member, "%s: %s", muster_collective_name(request->collective),
                   muster_last_error());
    } else if (pattern_check(request, member->rank, ranks, text, sizeof text) > 0) {
        group_fail(member, "%s in flight, root %u: %s", muster_collective_name(request->collective),
                   request->root, text);
    }
    pattern_free_counts(request);
}

static void start_each_collective(struct group_member *member, void *argument)
{
    (void)argument;
    for (unsigned i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
        enum muster_collective collective = (enum muster_collective)i;
        for (uint32_t root = 0; root < member->group->size; root++) {
            struct muster_request request = {
                .collective = collective, .count = COUNT, .type = MUSTER_INT32};
            request.root = muster_collective_has_root(collective) ? root : 0;
            start_and_end(member, &request, muster_collective_needs_bounds(collective));
        }
    }
}

static void calls_in_flight_are_right_in_any_order_of_ranks(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {3, 1, 3};
    for (unsigned i = 0; i < FLIGHTS; i++) {
        uint32_t callers[RANKS_MAX];
        struct group group;
        shuffle(callers, 7);
        group_start_shuffled(&group, GROUP_INPROC, 3, sizes, callers, NULL);
        group_each(&group, start_each_collective, NULL);
        group_finish(&group);
    }
}

/* Ranks, and what is told of them -------------------------------------------------------------- */

static void ranks_are_the_callers(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 1, 2};
    static const uint32_t callers[] = {3, 0, 4, 2, 1};
    static const uint32_t local[] = {1, 1, 0, 0, 0}; /* by caller's rank */
    static const uint32_t cross[] = {0, 1, 2, 0, 1};
    struct group group;
    group_start_shuffled(&group, GROUP_INPROC, 3, sizes, callers, NULL);
    for (uint32_t rank = 0; rank < group.size; rank++) {
        struct muster_context **contexts = group.members[rank].contexts;
        assert_int_equal(muster_context_rank(contexts[MUSTER_GLOBAL]), rank);
        assert_int_equal(muster_context_rank(contexts[MUSTER_LOCAL]), local[rank]);
        assert_int_equal(muster_context_rank(contexts[MUSTER_CROSS]), cross[rank]);
    }
    group_finish(&group);
}

struct lost_rank {
    uint32_t victim;
    uint32_t suspects[RANKS_MAX];
};

static void allreduce_until_lost(struct group_member *member, void *argument)
{
    struct lost_rank *lost = argument;
    int32_t number = 1;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &number,
                                           .out = &number,
                                           .count = 1,
                                           .type = MUSTER_INT32,
                                           .algorithm = "all_to_one",
                                           .deadline_ns = group_deadline()};
    if (member->rank == lost->victim) {
        muster_fabric_kill(member->fabric);
        return;
    }
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request,
                           &lost->suspects[member->rank]) == MUSTER_OK) {
        group_fail(member, "the call succeeded without rank %u", lost->victim);
    }
    for (uint32_t i = 0; i < member->group->size; i++) {
        muster_fabric_revoke(member->group->members[i].fabric, member->group->generation, "lost");
    }
}

static void a_lost_rank_is_named_as_callers_know_it(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 1, 2};
    static const uint32_t callers[] = {3, 0, 4, 2, 1};
    struct lost_rank lost = {.victim = 2};
    struct group group;
    group_start_shuffled(&group, GROUP_TCP, 3, sizes, callers, NULL);
    group_each(&group, allreduce_until_lost, &lost);
    assert_int_equal(lost.suspects[3], 2); /* the rank of the topology 0, which receives from all */
    group_finish(&group);
}

/* A reproducible sum has the order of the callers' ranks, so that it has the same bits wherever
 * they are. */
struct sums {
    float results[RANKS_MAX];
};

static void add_reproducibly(struct group_member *member, void *argument)
{
    struct sums *sums = argument;
    static const float values[] = {1e8F, 1.25F, -1e8F, 3e-3F, 7e7F, 0.125F, -7e7F};
    float in = values[member->rank];
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &in,
                                           .out = &sums->results[member->rank],
                                           .count = 1,
                                           .type = MUSTER_FLOAT32,
                                           .reproducible = true,
                                           .deadline_ns = group_deadline()};
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
}

static void reproducible_sums_have_the_order_of_the_callers(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {3, 1, 3};
    uint32_t callers[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6};
    float expected = 0;
    for (unsigned i = 0; i < FLIGHTS; i++) {
        struct sums sums = {0};
        struct group group;
        group_start_shuffled(&group, GROUP_INPROC, 3, sizes, callers, NULL);
        group_each(&group, add_reproducibly, &sums);
        group_finish(&group);
        expected = i == 0 ? sums.results[0] : expected;
        for (uint32_t rank = 0; rank < 7; rank++) {
            assert_memory_equal(&sums.results[rank], &expected, sizeof expected);
        }
        shuffle(callers, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_the_callers),
        cmocka_unit_test(a_lost_rank_is_named_as_callers_know_it),
        cmocka_unit_test(reproducible_sums_have_the_order_of_the_callers),
        cmocka_unit_test(calls_in_flight_are_right_in_any_order_of_ranks),
        cmocka_unit_test(every_algorithm_is_right_in_any_order_of_ranks),
        cmocka_unit_test(ranks_may_be_dealt_out_to_the_hosts),
    };
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
