/* Several contexts at once, each driven by a thread of its own on every member: all results are
 * right, no context starves while others are busy, and a sender waits for a slow receiver. */
#include "tests/support/group.h"
#include "tests/support/pattern.h"
#include "tests/support/schedules.h"
#include "worker/base/clock.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 3,
    LANES = 4, /* contexts, and threads of each member */
    ELEMENT_MAX = 8,
    COUNT_MAX = 8000,
    CALLS = 20,
    LARGE_COUNT = 70000,
    LARGE_CALLS = 5,
    HANGS_MS = 60000,  /* only a hanging test takes so long */
    FIRST_NUMBER = 10, /* this test's contexts have the numbers from here */
    AHEAD_CALLS = 300,
    AHEAD_COUNT = 4000, /* floats: a message that is sent eagerly, without a grant */
    AHEAD_MOST = 128,   /* calls: about twice what a link's eager window has room for */
};

struct fixture;

/* One context on one member, and the thread that drives it. */
struct lane {
    struct fixture *fixture;
    struct group_member *member;
    uint32_t number;
    struct muster_context *context;
    char failure[MUSTER_ERROR_MAX]; /* empty: none */
    pthread_t thread;
};

typedef void (*lane_work)(struct lane *lane);

struct fixture {
    struct group group;
    uint64_t seed;
    lane_work works[LANES];
    struct lane lanes[RANKS][LANES];
    atomic_uint finished[RANKS]; /* lanes of the member that have finished their calls */
    sem_t may_begin[RANKS];
};

static void lane_fail(struct lane *lane, const char *format, ...) MUSTER_PRINTF(2, 3);

static void lane_fail(struct lane *lane, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (lane->failure[0] == '\0') {
        (void)vsnprintf(lane->failure, sizeof lane->failure, format, arguments);
    }
    va_end(arguments);
}

static void make_context(struct lane *lane)
{
    static const uint32_t ranks[RANKS] = {0, 1, 2};
    char name[16];
    (void)snprintf(name, sizeof name, "lane %u", lane->number);
    const struct muster_context_options options = {
        .fabric = lane->member->fabric,
        .generation = lane->member->group->generation,
        .number = FIRST_NUMBER + lane->number,
        .name = name,
        .topology = &lane->member->group->topology,
        .ranks = ranks,
        .rank = lane->member->rank,
        .model = &muster_cost_model_default,
    };
    assert_int_equal(muster_context_create(&options, &lane->context), MUSTER_OK);
}

static void *run_lane(void *argument)
{
    struct lane *lane = argument;
    lane->fixture->works[lane->number](lane);
    return NULL;
}

/* Runs all lanes of a member at once. */
static void run_lanes(struct group_member *member, void *argument)
{
    struct fixture *fixture = argument;
    struct lane *lanes = fixture->lanes[member->rank];
    for (uint32_t i = 0; i < LANES; i++) {
        if (pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]) != 0) {
            abort();
        }
    }
    for (uint32_t i = 0; i < LANES; i++) {
        (void)pthread_join(lanes[i].thread, NULL);
        if (lanes[i].failure[0] != '\0') {
            group_fail(member, "lane %u: %s", i, lanes[i].failure);
        }
    }
}

/* Runs works[i] in lane i of each member, over each transport. */
static void run_everywhere(const lane_work works[LANES])
{
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_SHM};
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        struct fixture *fixture = calloc(1, sizeof *fixture);
        assert_non_null(fixture);
        fixture->seed = seed;
        memcpy(fixture->works, works, sizeof fixture->works);
        group_start_flat(&fixture->group, transports[i], RANKS);
        for (uint32_t j = 0; j < RANKS * LANES; j++) {
            struct lane *lane = &fixture->lanes[j / LANES][j % LANES];
            *lane = (struct lane){.fixture = fixture,
                                  .member = &fixture->group.members[j / LANES],
                                  .number = j % LANES};
            make_context(lane);
        }
        for (uint32_t j = 0; j < RANKS; j++) {
            assert_int_equal(sem_init(&fixture->may_begin[j], 0, 0), 0);
        }
        group_each(&fixture->group, run_lanes, fixture);
        for (uint32_t j = 0; j < RANKS * LANES; j++) {
            muster_context_destroy(fixture->lanes[j / LANES][j % LANES].context);
        }
        group_finish(&fixture->group);
        free(fixture);
    }
}

static bool run(struct lane *lane, struct muster_request *request)
{
    request->deadline_ns = muster_clock_after_ms(HANGS_MS);
    if (muster_context_run(lane->context, request, NULL) != MUSTER_OK) {
        lane_fail(lane, "%s", muster_last_error());
    }
    return lane->failure[0] == '\0';
}

/* Any collectives ------------------------------------------------------------------------------ */

static struct muster_request draw_request(const struct lane *lane, uint64_t *random)
{
    struct muster_request request = {.user_function = pattern_user};
    struct muster_plan plan;
    size_t row;
    do {
        request.root = test_random_below(random, RANKS);
        request.count = 1 + test_random_below(random, COUNT_MAX);
        row = test_random_below(random, (uint32_t)muster_algorithm_count);
        plan = test_plan(row, &lane->member->group->topology, request.count, request.root);
    } while (!test_fits(row, &plan) || muster_algorithms[row].collective == MUSTER_BARRIER ||
             muster_collective_needs_bounds(muster_algorithms[row].collective));
    request.collective = muster_algorithms[row].collective;
    request.algorithm = muster_algorithms[row].name;
    request.root = plan.root;
    pattern_pair(test_random_below(random, (uint32_t)pattern_pairs()), &request.type, &request.op);
    return request;
}

static void call_anything(struct lane *lane)
{
    size_t size_bytes = (size_t)COUNT_MAX * RANKS * ELEMENT_MAX;
    char *in = malloc(size_bytes);
    char *out = malloc(size_bytes);
    /* The same on all members. */
    uint64_t random = lane->fixture->seed + 2 * (uint64_t)lane->number;
    char text[128];
    for (uint32_t i = 0; i < CALLS && lane->failure[0] == '\0'; i++) {
        struct muster_request request = draw_request(lane, &random);
        request.in = request.collective == MUSTER_BROADCAST ? NULL : in;
        request.out = out;
        pattern_fill(&request, request.in != NULL ? in : out, lane->member->rank, RANKS);
        if (run(lane, &request) &&
            pattern_check(&request, lane->member->rank, RANKS, text, sizeof text) > 0) {
            lane_fail(lane, "%s %s: %s", muster_collective_name(request.collective),
                      request.algorithm, text);
        }
    }
    free(in);
    free(out);
}

static void calls_of_different_contexts_do_not_mix(void **state)
{
    (void)state;
    static const lane_work works[LANES] = {call_anything, call_anything, call_anything,
                                           call_anything};
    run_everywhere(works);
}

/* Fairness ------------------------------------------------------------------------------------- */

static void allreduce_times(struct lane *lane, uint32_t count, uint32_t calls)
{
    float *data = calloc(count, sizeof *data);
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = data,
                                     .out = data,
                                     .count = count,
                                     .type = MUSTER_FLOAT32};
    for (uint32_t i = 0; i < calls && run(lane, &request); i++) {
    }
    atomic_fetch_add(&lane->fixture->finished[lane->member->rank], 1);
    free(data);
}

/* Calls until the other lanes of all members have finished. The reduced value, the MIN of a flag,
 * says so; so all members make the same number of calls. */
static void allreduce_until_others_finish(struct lane *lane, uint32_t count)
{
    float *in = calloc(count, sizeof *in);
    float *out = calloc(count, sizeof *out);
    struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = MUSTER_FLOAT32,
                                     .op = MUSTER_MIN};
    int64_t late_ns = muster_clock_after_ms(HANGS_MS);
    while (out[0] == 0 && run(lane, &request)) {
        bool finished = atomic_load(&lane->fixture->finished[lane->member->rank]) == LANES - 1;
        if (!finished && muster_clock_ns() > late_ns) {
            lane_fail(lane, "the other contexts make no progress");
        }
        in[0] = finished || lane->failure[0] != '\0' ? 1 : 0;
    }
    free(in);
    free(out);
}

static void large_until_others_finish(struct lane *lane)
{
    allreduce_until_others_finish(lane, LARGE_COUNT);
}

static void small_until_others_finish(struct lane *lane)
{
    allreduce_until_others_finish(lane, 1);
}

static void small_times(struct lane *lane)
{
    allreduce_times(lane, 1, CALLS);
}

static void large_times(struct lane *lane)
{
    allreduce_times(lane, LARGE_COUNT, LARGE_CALLS);
}

static void large_operations_do_not_starve_small_ones(void **state)
{
    (void)state;
    static const lane_work works[LANES] = {large_until_others_finish, small_times, small_times,
                                           small_times};
    run_everywhere(works);
}

static void small_operations_do_not_starve_large_ones(void **state)
{
    (void)state;
    static const lane_work works[LANES] = {small_until_others_finish, large_times, large_times,
                                           small_times};
    run_everywhere(works);
}

/* Back pressure -------------------------------------------------------------------------------- */

static void fill(float *data, uint32_t call)
{
    for (uint32_t i = 0; i < AHEAD_COUNT; i++) {
        data[i] = (float)(call + i % 7);
    }
}

/* Rank 0 only sends, so nothing but the limit of unexpected messages makes it wait for the other
 * ranks, which start late. */
static void run_ahead(struct lane *lane)
{
    float data[AHEAD_COUNT];
    float wanted[AHEAD_COUNT];
    struct muster_request request = {.collective = MUSTER_BROADCAST,
                                     .out = data,
                                     .count = AHEAD_COUNT,
                                     .type = MUSTER_FLOAT32,
                                     .algorithm = "one_to_all"};
    uint32_t rank = lane->member->rank;
    while (rank != 0 && sem_wait(&lane->fixture->may_begin[rank]) != 0) {
    }
    uint64_t ahead = muster_context_progress(lane->fixture->lanes[0][lane->number].context);
    if (rank == 1 && ahead > AHEAD_MOST) {
        lane_fail(lane, "rank 0 has made %llu calls before another rank has made one",
                  (unsigned long long)ahead);
    }
    for (uint32_t i = 0; i < AHEAD_CALLS; i++) {
        fill(rank == 0 ? data : wanted, i);
        if (!run(lane, &request)) {
            return;
        }
        if (rank != 0 && memcmp(data, wanted, sizeof data) != 0) {
            lane_fail(lane, "call %u got the data of another call", i);
        }
    }
}

/* The threads of this lane progress the links of all members meanwhile. */
static void small_times_then_let_begin(struct lane *lane)
{
    small_times(lane);
    (void)sem_post(&lane->fixture->may_begin[lane->member->rank]);
}

static void a_sender_that_runs_ahead_waits_for_its_receivers(void **state)
{
    (void)state;
    static const lane_work works[LANES] = {run_ahead, small_times_then_let_begin, small_times,
                                           small_times};
    run_everywhere(works);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_different_contexts_do_not_mix),
        cmocka_unit_test(large_operations_do_not_starve_small_ones),
        cmocka_unit_test(small_operations_do_not_starve_large_ones),
        cmocka_unit_test(a_sender_that_runs_ahead_waits_for_its_receivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
