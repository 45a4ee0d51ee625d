/*
 * Receives that are posted one round early, in every algorithm: they touch no element that the
 * round before uses, they change no bit of any result, and they cause no deadlock. Posting all
 * receives early does change results, which shows that the executions here can detect it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"

enum {
    TRIES = 3,
    EXECUTED_MOST = 8, /* ranks; larger jobs are examined but not executed */
    LARGE = 1 << 20,   /* elements, where no data is moved */
};

/* Where a step's elements are in the rank's memory, which INPUT and OUTPUT share in place. */
struct memory_range {
    int64_t begin, end;
};

static struct memory_range memory_range_of(const struct muster_shape *shape,
                                           const struct muster_schedule *schedule, bool in_place,
                                           unsigned buffer, uint64_t offset, uint64_t count)
{
    const int64_t apart = INT64_C(1) << 48; /* between buffers that share no memory */
    int64_t base = buffer == MUSTER_SCRATCH ? 2 * apart : 0;
    if (buffer == MUSTER_INPUT) {
        base = in_place ? muster_shape_in_place_offset(shape) : -apart;
    }
    assert_true(offset + count <= muster_buffer_count(schedule, buffer));
    return (struct memory_range){base + (int64_t)offset, base + (int64_t)(offset + count)};
}

static bool overlap(struct memory_range one, struct memory_range other)
{
    int64_t begin = one.begin > other.begin ? one.begin : other.begin;
    int64_t end = one.end < other.end ? one.end : other.end;
    return begin < end;
}

/* True if two steps that run at the same time would race. */
static bool clash(const struct muster_shape *shape, const struct muster_schedule *schedule,
                  bool in_place, const struct muster_step *one, const struct muster_step *other)
{
    const struct muster_step *steps[2] = {one, other};
    struct memory_range reads[2] = {{0, 0}, {0, 0}};
    struct memory_range writes[2] = {{0, 0}, {0, 0}};
    for (int i = 0; i < 2; i++) {
        const struct muster_step *step = steps[i];
        if (step->kind != MUSTER_STEP_RECV) {
            reads[i] = memory_range_of(shape, schedule, in_place, step->source, step->span.offset,
                                       step->span.count);
        }
        if (step->kind != MUSTER_STEP_SEND) {
            writes[i] = memory_range_of(shape, schedule, in_place, step->target, step->at,
                                        step->span.count);
        }
    }
    return overlap(writes[0], writes[1]) || overlap(writes[0], reads[1]) ||
           overlap(reads[0], writes[1]);
}

static bool is_receive(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_RECV || step->kind == MUSTER_STEP_RECV_REDUCE;
}

/* Returns how many receives of the schedule are early. */
static size_t check_receives(const struct muster_shape *shape,
                             const struct muster_schedule *schedule, bool in_place)
{
    size_t early = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *receive = &schedule->steps[i];
        if (!muster_schedule_receives_early(schedule, i)) {
            continue;
        }
        early++;
        assert_true(is_receive(receive) && receive->round > 0);
        for (size_t j = i; j-- > 0 && schedule->steps[j].lane == receive->lane;) {
            const struct muster_step *before = &schedule->steps[j];
            if (before->round + 1 == receive->round) {
                assert_false(clash(shape, schedule, in_place, receive, before));
            } else if (before->round == receive->round && is_receive(before)) {
                /* Else it would be posted before an earlier message of the same peer. */
                assert_int_not_equal(before->peer, receive->peer);
            }
        }
    }
    return early;
}

/* How the executions below post receives: like the executor, and wrongly. */
static bool is_never_early(const struct muster_schedule *schedule, size_t step)
{
    (void)schedule;
    (void)step;
    return false;
}

static bool is_always_early(const struct muster_schedule *schedule, size_t step)
{
    return is_receive(&schedule->steps[step]);
}

static uint64_t digest(const struct test_job *job, bool in_place, test_early early,
                       uint64_t *random)
{
    char why[MUSTER_CHECK_TEXT_MAX];
    uint64_t number = 0;
    if (!test_execute_mixed(job, in_place, early, random, &number, why)) {
        print_error("%s %s, %u ranks: %s\n", muster_collective_name(job->shapes[0].collective),
                    muster_algorithms[job->algorithm].name, job->ranks, why);
        fail();
    }
    return number;
}

static bool is_same(const struct test_job *job, bool in_place, test_early early, uint64_t *random)
{
    uint64_t plain = digest(job, in_place, is_never_early, random);
    bool same = true;
    for (int i = 0; i < TRIES; i++) {
        same = digest(job, in_place, early, random) == plain && same;
    }
    return same;
}

/* Counted over all calls. */
struct outcome {
    uint64_t random;
    size_t early, wrong;
};

/* One call, in one placement of its buffers. */
static void try_call(const struct test_job *job, bool in_place, bool execute,
                     struct outcome *outcome)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        outcome->early += check_receives(&job->shapes[rank], &job->schedules[rank], in_place);
    }
    if (execute && !is_same(job, in_place, muster_schedule_receives_early, &outcome->random)) {
        print_error("%s %s, %u ranks, in place %d: other results\n",
                    muster_collective_name(job->shapes[0].collective),
                    muster_algorithms[job->algorithm].name, job->ranks, in_place);
        fail();
    }
    if (execute) {
        outcome->wrong += !is_same(job, in_place, is_always_early, &outcome->random);
    }
}

static void try_plan(size_t algorithm, const struct muster_plan *plan, bool execute,
                     struct outcome *outcome)
{
    struct muster_plan chosen = *plan;
    for (int in_place = 0; in_place < 2; in_place++) {
        chosen.in_place = in_place != 0;
        if (!test_fits(algorithm, &chosen)) {
            continue;
        }
        struct test_job job = test_job_create(algorithm, &chosen, false);
        try_call(&job, in_place != 0, execute, outcome);
        test_job_finish(&job);
    }
}

static void try_topology(uint32_t hosts, const uint32_t *sizes, struct outcome *outcome)
{
    struct muster_topology topology = test_topology(hosts, sizes);
    const uint64_t counts[] = {1, 3 * topology.ranks + 2, 600, LARGE};
    for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const struct muster_plan plan =
                test_plan(algorithm, &topology, counts[i], (uint32_t)i % topology.ranks);
            bool execute = counts[i] != LARGE && topology.ranks <= EXECUTED_MOST;
            try_plan(algorithm, &plan, execute, outcome);
        }
    }
    muster_topology_finish(&topology);
}

static void early_receives_change_no_result(void **state)
{
    (void)state;
    static const uint32_t hosts[][4] = {
        {1},       {2},    {3},    {4},    {5},          {6},          {7},    {8},
        {1, 1},    {2, 2}, {3, 1}, {2, 3}, {4, 4},       {5, 2},       {1, 6}, {2, 2, 2, 2},
        {3, 1, 4}, {13},   {16},   {8, 8}, {4, 4, 4, 4}, {7, 5, 11, 1}};
    struct outcome outcome = {.random = test_seed()};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        try_topology(4, hosts[i], &outcome);
    }
    print_message("%zu receives are early; with all of them early, %zu calls have wrong results\n",
                  outcome.early, outcome.wrong);
    assert_true(outcome.early > 0 && outcome.wrong > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_receives_change_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
