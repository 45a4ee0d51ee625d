/*
 * Every field of a step and of a schedule is set to other values, also extreme ones: the checker
 * rejects the mutant, or an interpreter that shares no code with the checker finds that the change
 * makes no difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"

enum { VALUES = 8, STEPS_PER_JOB = 8 };

struct field {
    const char *name;
    size_t offset, size;
};

#define FIELD(type, member)                                                           \
    {                                                                                 \
#member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member) \
    }

static const struct field step_fields[] = {
    FIELD(muster_step, kind),        FIELD(muster_step, source),     FIELD(muster_step, target),
    FIELD(muster_step, lane),        FIELD(muster_step, round),      FIELD(muster_step, peer),
    FIELD(muster_step, span.offset), FIELD(muster_step, span.count), FIELD(muster_step, at),
};

/* The fields of a schedule that are changed. Not changed are the steps and their number, because
 * they describe memory, and the size of SCRATCH, because a larger one is right. */
static const struct field schedule_fields[] = {
    FIELD(muster_schedule, rank),        FIELD(muster_schedule, ranks),
    FIELD(muster_schedule, input_count), FIELD(muster_schedule, output_count),
    FIELD(muster_schedule, lanes),
};

struct subject {
    const struct test_job *job;
    struct muster_schedule *mutant; /* right except for the field that is being changed */
    uint64_t *random;
    size_t rejected, right;
};

static uint64_t load(const void *record, const struct field *field)
{
    const char *at = (const char *)record + field->offset;
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (field->size) {
    case 1:
        memcpy(&one, at, sizeof one);
        return one;
    case 2:
        memcpy(&two, at, sizeof two);
        return two;
    case 4:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
}

static void store(void *record, const struct field *field, uint64_t value)
{
    char *at = (char *)record + field->offset;
    uint8_t one = (uint8_t)value;
    uint16_t two = (uint16_t)value;
    uint32_t four = (uint32_t)value;
    const void *const sources[] = {&one, &two, &four, &value};
    memcpy(at,
           sources[field->size == 1   ? 0
                   : field->size == 2 ? 1
                   : field->size == 4 ? 2
                                      : 3],
           field->size);
}

static void check_mutant(struct subject *subject, const char *what, uint64_t value)
{
    if (!test_check(subject->job, subject->mutant).proven) {
        subject->rejected++;
        return;
    }
    if (!test_executes_right(subject->job, subject->mutant, subject->random)) {
        fail_msg("%s %s on %u ranks: %s = %llu was accepted",
                 muster_collective_name(subject->job->plans[0].collective),
                 muster_algorithms[subject->job->algorithm].name, subject->job->ranks, what,
                 (unsigned long long)value);
    }
    subject->right++;
}

/* The record is one of the mutant's. */
static void change(struct subject *subject, void *record, const struct field *field)
{
    uint64_t was = load(record, field);
    uint64_t most = UINT64_MAX >> (64 - 8 * field->size);
    const uint64_t values[VALUES] = {0,        1,    was + 1,      was - 1,
                                     was ^ 1U, most, most / 2 + 1, subject->job->ranks};
    for (size_t i = 0; i < VALUES; i++) {
        store(record, field, values[i]);
        if (load(record, field) != was) {
            check_mutant(subject, field->name, values[i]);
        }
        store(record, field, was);
    }
}

static void change_steps(struct subject *subject)
{
    for (int i = 0; i < STEPS_PER_JOB; i++) {
        uint32_t rank = test_random_below(subject->random, subject->job->ranks);
        struct muster_schedule *schedule = &subject->mutant[rank];
        if (schedule->step_count == 0) {
            continue;
        }
        uint32_t number = test_random_below(subject->random, (uint32_t)schedule->step_count);
        for (size_t f = 0; f < sizeof step_fields / sizeof step_fields[0]; f++) {
            change(subject, &schedule->steps[number], &step_fields[f]);
        }
    }
}

static void change_head(struct subject *subject)
{
    uint32_t rank = test_random_below(subject->random, subject->job->ranks);
    struct muster_schedule *schedule = &subject->mutant[rank];
    for (size_t f = 0; f < sizeof schedule_fields / sizeof schedule_fields[0]; f++) {
        change(subject, schedule, &schedule_fields[f]);
    }
    uint64_t scratch = schedule->scratch_count;
    const uint64_t values[] = {0, scratch - 1, scratch + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        schedule->scratch_count = values[i];
        check_mutant(subject, "scratch_count", values[i]);
    }
    schedule->scratch_count = scratch;
    size_t steps = schedule->step_count;
    for (schedule->step_count = 0; schedule->step_count < steps; schedule->step_count++) {
        check_mutant(subject, "step_count", schedule->step_count);
    }
}

static void mutate(size_t algorithm, const struct muster_plan *plan, struct subject *totals)
{
    struct test_job job = test_job_create(algorithm, plan, false);
    struct subject subject = {
        .job = &job, .mutant = test_copy_all(job.schedules, job.ranks), .random = totals->random};
    change_steps(&subject);
    change_head(&subject);
    totals->rejected += subject.rejected;
    totals->right += subject.right;
    test_finish_all(subject.mutant, job.ranks);
    test_job_finish(&job);
}

static void every_change_of_a_field_is_rejected_or_makes_no_difference(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    struct subject totals = {.random = &random};
    const uint32_t hosts[][3] = {{4}, {3, 1, 2}};
    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0]; h++) {
        struct muster_topology topology = test_topology(3, hosts[h]);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            struct muster_plan plan = test_plan(algorithm, &topology, 2 * topology.ranks + 1, 1);
            if (!test_fits(algorithm, &plan)) {
                continue;
            }
            mutate(algorithm, &plan, &totals);
            if (muster_collective_in_place_counts(plan.collective)) {
                plan.in_place = true;
                mutate(algorithm, &plan, &totals);
            }
        }
        muster_topology_finish(&topology);
    }
    print_message("%zu rejected, %zu make no difference\n", totals.rejected, totals.right);
    assert_true(totals.rejected > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_of_a_field_is_rejected_or_makes_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
