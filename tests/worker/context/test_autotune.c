/* Autotuning: all members find the same algorithms, also if some calls between fail because the
 * members disagree, and a new generation starts with what an earlier one has found. */
#include "tests/support/group.h"
#include "tests/support/schedules.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 4,
    CALLS = 130, /* more than autotuning of a size class takes */
    STEPS = 600,
    COUNT_MAX = 4000,
};

static const uint32_t sizes[] = {1, 3};

struct found {
    struct muster_tuned_list lists[RANKS];
};

static void start_tuning(struct group_member *member, void *argument)
{
    static const struct muster_tuned_list nothing;
    const struct muster_tuned_list *known = argument;
    muster_context_tune(member->contexts[MUSTER_GLOBAL], known != NULL ? known : &nothing);
}

static muster_status call(struct group_member *member, const struct muster_request *request)
{
    struct muster_request with_deadline = *request;
    with_deadline.deadline_ns = group_deadline();
    return muster_context_run(member->contexts[MUSTER_GLOBAL], &with_deadline, NULL);
}

static void expect_sum(struct group_member *member, uint64_t count, const char *algorithm)
{
    float in[COUNT_MAX];
    float out[COUNT_MAX] = {0};
    for (uint64_t i = 0; i < count; i++) {
        in[i] = (float)(member->rank + i % 7);
    }
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = in,
                                           .out = out,
                                           .count = count,
                                           .type = MUSTER_FLOAT32,
                                           .algorithm = algorithm};
    uint32_t size = member->group->size;
    if (call(member, &request) != MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    for (uint64_t i = 0; i < count; i++) {
        if (out[i] != (float)(size * (i % 7) + size * (size - 1) / 2)) {
            group_fail(member, "element %zu is %g", (size_t)i, (double)out[i]);
        }
    }
}

static void read_found(struct group_member *member, void *argument)
{
    struct found *found = argument;
    muster_context_tuned(member->contexts[MUSTER_GLOBAL], &found->lists[member->rank]);
}

/* Asserts that all members have found the same; returns the number of decided size classes. */
static uint32_t assert_found_alike(struct group *group)
{
    static struct found found;
    memset(&found, 0, sizeof found);
    group_each(group, read_found, &found);
    for (uint32_t i = 1; i < group->size; i++) {
        assert_memory_equal(&found.lists[i], &found.lists[0], sizeof found.lists[0]);
    }
    assert_int_equal(muster_tuned_check(&found.lists[0]), MUSTER_OK);
    return found.lists[0].count;
}

static void call_often(struct group_member *member, void *argument)
{
    const uint64_t *counts = argument;
    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; counts[j] != 0; j++) {
            expect_sum(member, counts[j], NULL);
        }
    }
}

static void all_members_find_the_same_algorithms(void **state)
{
    static uint64_t counts[] = {1, 300, COUNT_MAX, 0};
    const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    (void)state;
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        struct group group;
        if (transports[i] == GROUP_MEMORY) {
            group_start_flat(&group, transports[i], RANKS);
        } else {
            group_start(&group, transports[i], 2, sizes, NULL);
        }
        group_each(&group, call_often, counts);
        /* Autotuning is off until muster_context_tune(). */
        assert_int_equal(assert_found_alike(&group), 0);
        group_each(&group, start_tuning, NULL);
        group_each(&group, call_often, counts);
        assert_int_equal(assert_found_alike(&group), 3);
        group_finish(&group);
    }
}

/* Calls with other counts of the size class use what autotuning of the class has found. */
static void counts_of_one_size_class_are_tuned_once(void **state)
{
    (void)state;
    static uint64_t counts[] = {1000, 1001, 1002, 0};
    struct group group;
    group_start(&group, GROUP_INPROC, 2, sizes, NULL);
    group_each(&group, start_tuning, NULL);
    group_each(&group, call_often, counts);
    assert_int_equal(assert_found_alike(&group), 1);
    group_finish(&group);
}

static void call_by_name(struct group_member *member, void *argument)
{
    (void)argument;
    for (int i = 0; i < CALLS; i++) {
        expect_sum(member, 300, "ring");
    }
}

static void named_and_overridden_algorithms_are_not_tuned(void **state)
{
    (void)state;
    static uint64_t counts[] = {300, 0};
    struct group group;
    group_start(&group, GROUP_INPROC, 2, sizes, NULL);
    group_each(&group, start_tuning, NULL);
    group_each(&group, call_by_name, NULL);
    assert_int_equal(assert_found_alike(&group), 0);
    group_regroup(&group, UINT32_MAX, "allreduce=ring_chunked");
    group_each(&group, start_tuning, NULL);
    group_each(&group, call_often, counts);
    assert_int_equal(assert_found_alike(&group), 0);
    group_finish(&group);
}

/* Disagreements ------------------------------------------------------------------------------- */

/* The calls of all members, drawn from one seed. */
struct plan {
    uint64_t seed;
    bool in_memory; /* shared memory detects that any two calls differ */
};

struct step {
    enum muster_collective collective;
    uint64_t count;
    muster_op op;
    const char *algorithm;
};

static struct step random_step(uint64_t *random)
{
    static const enum muster_collective collectives[] = {MUSTER_ALLREDUCE, MUSTER_ALLREDUCE,
                                                         MUSTER_ALLGATHER, MUSTER_REDUCE_SCATTER,
                                                         MUSTER_BARRIER,   MUSTER_BROADCAST};
    static const uint64_t counts[] = {1, 40, 41, 500};
    return (struct step){.collective = collectives[test_random_below(random, 6)],
                         .count = counts[test_random_below(random, 4)]};
}

/* Another call than the step's. Over messages only the operation differs, which is detected at
 * once. */
static struct step wrong_step(const struct plan *plan, const struct step *right, uint64_t *random)
{
    struct step wrong = *right;
    if (plan->in_memory && test_random_below(random, 2) == 0) {
        do {
            wrong = random_step(random);
        } while (wrong.collective == right->collective && wrong.count == right->count);
    } else {
        wrong.op = MUSTER_MAX;
    }
    return wrong;
}

static muster_status run_step(struct group_member *member, const struct step *step)
{
    static float in[RANKS][RANKS * 512];
    static float out[RANKS][RANKS * 512];
    const struct muster_request request = {
        .collective = step->collective,
        .in = step->collective == MUSTER_BROADCAST ? out[member->rank] : in[member->rank],
        .out = out[member->rank],
        .count = step->count,
        .op = step->op};
    return call(member, &request);
}

/* Calls on which all agree must succeed. After a disagreement no member's autotuning may be in
 * another state than the others'. */
static void run_steps_and_disagree(struct group_member *member, void *argument)
{
    const struct plan *plan = argument;
    uint64_t random = plan->seed;
    for (int i = 0; i < STEPS; i++) {
        struct step step = random_step(&random);
        bool reduces = muster_collective_reduces(step.collective);
        bool wrong = test_random_below(&random, 5) == 0 && (plan->in_memory || reduces);
        uint32_t who = test_random_below(&random, RANKS);
        struct step other = wrong ? wrong_step(plan, &step, &random) : step;
        muster_status status = run_step(member, member->rank == who ? &other : &step);
        if (status != MUSTER_OK && !(wrong && status == MUSTER_INVALID)) {
            group_fail(member, "step %d: %s: %s", i, muster_status_name(status),
                       muster_last_error());
            return;
        }
    }
}

static void members_find_the_same_after_disagreements(void **state)
{
    (void)state;
    struct plan plan = {.seed = test_seed() | 1};
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        struct group group;
        plan.in_memory = in_memory;
        group_start_flat(&group, in_memory ? GROUP_MEMORY : GROUP_INPROC, RANKS);
        group_each(&group, start_tuning, NULL);
        group_each(&group, run_steps_and_disagree, &plan);
        assert_in_range(assert_found_alike(&group), 1, MUSTER_TUNED_MAX);
        group_finish(&group);
    }
}

/* One member names the algorithm that the others use by themselves. Until the size class is
 * decided this is another call, because it would not count for this member's autotuning. */
static void name_on_one(struct group_member *member, void *argument)
{
    muster_status *statuses = argument;
    float in = 1;
    float out = 0;
    const struct muster_request plain = {
        .collective = MUSTER_ALLREDUCE, .in = &in, .out = &out, .count = 1};
    size_t algorithm = 0;
    char name[MUSTER_ALGORITHM_NAME_SIZE];
    struct muster_request request = plain;
    if (muster_context_algorithm(member->contexts[MUSTER_GLOBAL], &plain, &algorithm) !=
        MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    muster_algorithm_print(algorithm, name, sizeof name);
    if (member->rank == 2) {
        request.algorithm = name;
    }
    statuses[member->rank] = call(member, &request);
    for (int i = 0; i < CALLS; i++) {
        expect_sum(member, 1, NULL);
    }
}

static void an_algorithm_that_one_member_names_is_a_disagreement_during_autotuning(void **state)
{
    (void)state;
    muster_status statuses[RANKS];
    struct group group;
    group_start_flat(&group, GROUP_MEMORY, RANKS);
    group_each(&group, start_tuning, NULL);
    group_each(&group, name_on_one, statuses);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(statuses[i], MUSTER_INVALID);
    }
    assert_int_equal(assert_found_alike(&group), 1);
    group_finish(&group);
}

/* Generations --------------------------------------------------------------------------------- */

static void call_some(struct group_member *member, void *argument)
{
    const int *calls = argument;
    for (int i = 0; i < *calls; i++) {
        expect_sum(member, 300, NULL);
        expect_sum(member, 3, NULL);
    }
}

/* A generation may end at any point of autotuning; the next one starts again, with the found list
 * that it is given. */
static void a_new_generation_starts_again_with_the_list_that_it_is_given(void **state)
{
    (void)state;
    static uint64_t counts[] = {300, 0};
    static struct found found;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    for (int calls = 1; calls < CALLS; calls += 9) {
        group_each(&group, start_tuning, NULL);
        group_each(&group, call_some, &calls);
        (void)assert_found_alike(&group);
        group_regroup(&group, UINT32_MAX, NULL);
    }
    group_each(&group, start_tuning, NULL);
    group_each(&group, call_often, counts);
    group_each(&group, read_found, &found);
    group_regroup(&group, 1, NULL);
    group_each(&group, start_tuning, &found.lists[0]);
    int once = 1;
    group_each(&group, call_some, &once);
    assert_int_equal(assert_found_alike(&group), 1);
    group_finish(&group);
}

/* Members start a call of 300; one of them names an algorithm. */
static void start_with_one_named(struct group_member *member, void *argument)
{
    const char *name = argument;
    float in[300] = {0};
    float out[300];
    struct muster_started_call *started = NULL;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = in,
                                           .out = out,
                                           .count = 300,
                                           .type = MUSTER_FLOAT32,
                                           .algorithm = member->rank == 2 ? name : NULL,
                                           .deadline_ns = group_deadline()};
    if (muster_context_start(member->contexts[MUSTER_GLOBAL], &request, &started) != MUSTER_OK ||
        muster_started_call_end(started, NULL) != MUSTER_OK) {
        group_fail(member, "%s in flight: %s", name, muster_last_error());
    }
}

/* Whichever algorithm the list has, calls in flight run by it: naming it on one member is no
 * disagreement. */
static void calls_in_flight_use_the_list(void **state)
{
    (void)state;
    static const char *const names[] = {"ring", "recursive_doubling", "ring_whole"};
    static uint64_t counts[] = {300, 0};
    static struct found found;
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, start_tuning, NULL);
    group_each(&group, call_often, counts);
    group_each(&group, read_found, &found);
    assert_int_equal(found.lists[0].count, 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t algorithm = 0;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, names[i], &algorithm), MUSTER_OK);
        found.lists[0].items[0].algorithm = (uint32_t)algorithm;
        group_each(&group, start_tuning, &found.lists[0]);
        group_each(&group, start_with_one_named, (void *)names[i]);
    }
    group_finish(&group);
}

static void expect_another_algorithm(struct group_member *member, void *argument)
{
    const struct muster_tuned_list *known = argument;
    float value = 0;
    size_t algorithm = 0;
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = &value,
                                           .out = &value,
                                           .count = 1,
                                           .type = MUSTER_FLOAT32};
    if (muster_context_algorithm(member->contexts[MUSTER_GLOBAL], &request, &algorithm) !=
        MUSTER_OK) {
        group_fail(member, "%s", muster_last_error());
    }
    if (algorithm == known->items[0].algorithm) {
        group_fail(member, "an algorithm of shared memory was chosen without shared memory");
    }
    expect_sum(member, 1, NULL);
}

/* As when a job has stored what autotuning found in shared memory, and its next members run in
 * containers of their own. */
static void an_algorithm_of_shared_memory_is_ignored_where_none_is_shared(void **state)
{
    (void)state;
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, "host_memory", &algorithm), MUSTER_OK);
    struct muster_tuned_list known = {.count = 1,
                                      .items = {{.collective = MUSTER_ALLREDUCE,
                                                 .size_class = 1,
                                                 .element_size_bytes = sizeof(float),
                                                 .algorithm = (uint32_t)algorithm}}};
    struct group group;
    group_start_flat(&group, GROUP_INPROC, RANKS);
    group_each(&group, start_tuning, &known);
    group_each(&group, expect_another_algorithm, &known);
    group_finish(&group);
}

/* As when a member dies before the contexts of a generation have got the list of what is known. */
static void a_context_without_autotuning_leaves_the_list_as_it_is(void **state)
{
    (void)state;
    static struct found known = {.lists = {{.count = 1}}};
    struct group group;
    known.lists[0].items[0].element_size_bytes = 4;
    group_start_flat(&group, GROUP_INPROC, 1);
    group_each(&group, read_found, &known);
    assert_int_equal(known.lists[0].count, 1);
    assert_int_equal(known.lists[0].items[0].element_size_bytes, 4);
    group_each(&group, start_tuning, NULL);
    group_each(&group, read_found, &known);
    assert_int_equal(known.lists[0].count, 0);
    group_finish(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_find_the_same_algorithms),
        cmocka_unit_test(counts_of_one_size_class_are_tuned_once),
        cmocka_unit_test(named_and_overridden_algorithms_are_not_tuned),
        cmocka_unit_test(members_find_the_same_after_disagreements),
        cmocka_unit_test(an_algorithm_that_one_member_names_is_a_disagreement_during_autotuning),
        cmocka_unit_test(a_new_generation_starts_again_with_the_list_that_it_is_given),
        cmocka_unit_test(calls_in_flight_use_the_list),
        cmocka_unit_test(an_algorithm_of_shared_memory_is_ignored_where_none_is_shared),
        cmocka_unit_test(a_context_without_autotuning_leaves_the_list_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
