/*
 * The checker rejects right schedules after one change. Each kind of change below makes every
 * schedule of the table wrong, for the reason given with it. Some changes make no difference in
 * some places; then the interpreter must find the mutant right too. Steps without elements are not
 * changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"

/* The schedules to change, and what to change them with. */
struct subject {
    const struct test_job *job;
    const struct muster_schedule *right;
    size_t algorithm;
    uint32_t ranks;
    const char *mutation; /* for messages */
    bool may_be_right;    /* the change makes no difference in some places */
    size_t mutants;       /* rejected so far */
    size_t equivalents;   /* proven, and right */
    uint64_t *random;
};

/* Changes one step; false: it does not apply to this one. */
typedef bool (*step_mutation)(const struct muster_shape *shape, struct muster_step *step);

static bool is_message(const struct muster_step *step)
{
    return step->kind <= MUSTER_STEP_RECV_REDUCE;
}

static void must_be_rejected(struct subject *subject, const struct muster_schedule *mutant,
                             uint32_t rank, size_t step)
{
    struct muster_check_result result = test_check(subject->job, mutant);
    if (result.proven && subject->may_be_right &&
        test_executes_right(subject->job, mutant, subject->random)) {
        subject->equivalents++;
        return;
    }
    if (result.proven) {
        print_error("%s %s with %s at rank %u, step %zu was accepted\n",
                    muster_collective_name(subject->job->plans[0].collective),
                    muster_algorithms[subject->algorithm].name, subject->mutation, rank, step);
    }
    assert_false(result.proven);
    assert_true(strlen(result.why) > 0);
    subject->mutants++;
}

/* True if a later step reduces the target of this step in turn, so that its data is counted with
 * the mutation, too. */
static bool is_reduced_later(const struct muster_schedule *schedule, size_t index)
{
    const struct muster_step *step = &schedule->steps[index];
    for (size_t i = index + 1; step->kind == MUSTER_STEP_REDUCE && i < schedule->step_count; i++) {
        const struct muster_step *later = &schedule->steps[i];
        if (later->kind == MUSTER_STEP_REDUCE && later->source == step->target &&
            later->span.offset == step->at && later->span.count == step->span.count) {
            return true;
        }
    }
    return false;
}

/* True if an earlier step has copied the data from the mutant's source to the original source at
 * the same offset, so that both hold the same. */
static bool is_copied_before(const struct muster_schedule *schedule, size_t index,
                             const struct muster_step *original)
{
    const struct muster_step *step = &schedule->steps[index];
    for (size_t i = 0; step->source != original->source && i < index; i++) {
        const struct muster_step *copy = &schedule->steps[i];
        if (copy->kind == MUSTER_STEP_COPY && copy->source == step->source &&
            copy->target == original->source && copy->span.offset == copy->at &&
            copy->span.offset <= original->span.offset &&
            original->span.offset + original->span.count <= copy->span.offset + copy->span.count) {
            return true;
        }
    }
    return false;
}

/* Applies the mutation to one step at a time. Each mutant must be rejected, unless it is known to
 * make no difference. */
static void for_each_step(struct subject *subject, const char *name, step_mutation mutate)
{
    subject->mutation = name;
    struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
    for (uint32_t rank = 0; rank < subject->ranks; rank++) {
        for (size_t i = 0; i < mutant[rank].step_count; i++) {
            struct muster_step original = mutant[rank].steps[i];
            bool is_empty =
                original.span.count == 0 && subject->job->plans[0].collective != MUSTER_BARRIER;
            bool applies = mutate(&subject->job->shapes[rank], &mutant[rank].steps[i]);
            bool is_equivalent = (mutant[rank].steps[i].target != original.target &&
                                  is_reduced_later(&mutant[rank], i)) ||
                                 is_copied_before(&mutant[rank], i, &original);
            if (applies && !is_empty && !is_equivalent) {
                must_be_rejected(subject, mutant, rank, i);
            }
            mutant[rank].steps[i] = original;
        }
    }
    test_finish_all(mutant, subject->ranks);
}

/* Its message has no other end. */
static bool other_peer(const struct muster_shape *shape, struct muster_step *step)
{
    step->peer = (step->peer + 1) % shape->ranks;
    return is_message(step);
}

static bool no_peer(const struct muster_shape *shape, struct muster_step *step)
{
    step->peer = shape->ranks;
    return is_message(step);
}

static bool peer_is_self(const struct muster_shape *shape, struct muster_step *step)
{
    step->peer = shape->rank;
    return is_message(step);
}

/* The two ends differ; or a local step skips an element. */
static bool one_element_less(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->span.count--;
    return step->span.count != UINT64_MAX;
}

static bool one_element_more(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->span.count++;
    return is_message(step);
}

/* Other elements than the receiver expects. */
static bool source_moves_up(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->span.offset++;
    return step->span.count > 0;
}

static bool source_moves_down(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->span.offset--;
    return step->span.count > 0;
}

static bool target_moves_up(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->at++;
    return step->kind != MUSTER_STEP_SEND && step->span.count > 0;
}

static bool whole_recv_moves_up(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->at++;
    step->span.offset++;
    return step->kind == MUSTER_STEP_RECV && step->span.count > 0;
}

/* Another buffer holds something else, or nothing. It makes no difference where OUTPUT holds the
 * same as INPUT at the same offset: at the root of a broadcast, in the first rank's own block, in a
 * part that is not moved; or where SCRATCH does, to which a generator may copy INPUT. */
static bool other_source(const struct muster_shape *shape, struct muster_step *step, uint8_t source)
{
    (void)shape;
    bool same = step->source == source;
    step->source = source;
    return step->kind != MUSTER_STEP_RECV && !same && step->span.count > 0;
}

static bool source_is_input(const struct muster_shape *shape, struct muster_step *step)
{
    return other_source(shape, step, MUSTER_INPUT);
}

static bool source_is_output(const struct muster_shape *shape, struct muster_step *step)
{
    return other_source(shape, step, MUSTER_OUTPUT);
}

static bool source_is_scratch(const struct muster_shape *shape, struct muster_step *step)
{
    return other_source(shape, step, MUSTER_SCRATCH);
}

static bool no_source(const struct muster_shape *shape, struct muster_step *step)
{
    return other_source(shape, step, 3);
}

/* The result is in another buffer, or INPUT is overwritten. */
static bool other_target(struct muster_step *step, uint8_t target)
{
    bool same = step->target == target;
    step->target = target;
    return step->kind != MUSTER_STEP_SEND && !same && step->span.count > 0;
}

static bool target_is_input(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    return other_target(step, MUSTER_INPUT);
}

static bool target_is_output(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    return other_target(step, MUSTER_OUTPUT);
}

static bool target_is_scratch(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    return other_target(step, MUSTER_SCRATCH);
}

static bool no_target(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    return other_target(step, 77);
}

/* This rank's data is missing. */
static bool recv_without_reduce(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    bool applies = step->kind == MUSTER_STEP_RECV_REDUCE && step->span.count > 0;
    step->kind = MUSTER_STEP_RECV;
    step->span.offset = step->at;
    return applies;
}

/* The earlier contents of the target are counted too, or are undefined. */
static bool recv_with_reduce(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    bool applies = step->kind == MUSTER_STEP_RECV && step->span.count > 0;
    step->kind = MUSTER_STEP_RECV_REDUCE;
    step->source = step->target;
    return applies;
}

static bool copy_with_reduce(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    bool applies = step->kind == MUSTER_STEP_COPY;
    step->kind = MUSTER_STEP_REDUCE;
    return applies;
}

/* The message has no other end. */
static bool send_is_recv(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    bool applies = step->kind == MUSTER_STEP_SEND;
    step->kind = MUSTER_STEP_RECV;
    step->target = MUSTER_OUTPUT;
    step->at = step->span.offset;
    return applies;
}

static bool recv_is_send(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    bool applies = step->kind == MUSTER_STEP_RECV;
    step->kind = MUSTER_STEP_SEND;
    step->source = MUSTER_OUTPUT;
    return applies;
}

static bool kind_unknown(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->kind = step->kind == MUSTER_STEP_SEND ? 0 : MUSTER_STEP_GROUP_BARRIER + 1;
    return true;
}

/* The order is wrong, or the other end is in the old lane. */
static bool next_lane(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->lane++;
    return true;
}

/* The round does not exist, or rounds run backward. */
static bool far_round(const struct muster_shape *shape, struct muster_step *step)
{
    (void)shape;
    step->round += 2;
    return true;
}

/* All mutations of one field of one step. */
static void change_fields(struct subject *subject)
{
    for_each_step(subject, "another peer", other_peer);
    for_each_step(subject, "a peer out of range", no_peer);
    for_each_step(subject, "itself as peer", peer_is_self);
    for_each_step(subject, "an element less", one_element_less);
    for_each_step(subject, "an element more", one_element_more);
    for_each_step(subject, "the source one up", source_moves_up);
    for_each_step(subject, "the source one down", source_moves_down);
    for_each_step(subject, "the target one up", target_moves_up);
    for_each_step(subject, "the whole recv one up", whole_recv_moves_up);
    subject->may_be_right = true;
    for_each_step(subject, "input as source", source_is_input);
    for_each_step(subject, "output as source", source_is_output);
    for_each_step(subject, "scratch as source", source_is_scratch);
    subject->may_be_right = false;
    for_each_step(subject, "an unknown source", no_source);
    for_each_step(subject, "input as target", target_is_input);
    for_each_step(subject, "output as target", target_is_output);
    for_each_step(subject, "scratch as target", target_is_scratch);
    for_each_step(subject, "an unknown target", no_target);
    for_each_step(subject, "recv for recv_reduce", recv_without_reduce);
    for_each_step(subject, "recv_reduce for recv", recv_with_reduce);
    for_each_step(subject, "reduce for copy", copy_with_reduce);
    for_each_step(subject, "recv for send", send_is_recv);
    for_each_step(subject, "send for recv", recv_is_send);
    for_each_step(subject, "an unknown kind", kind_unknown);
    for_each_step(subject, "another lane", next_lane);
    for_each_step(subject, "a far round", far_round);
}

static void remove_step(struct muster_schedule *schedule, size_t index)
{
    memmove(&schedule->steps[index], &schedule->steps[index + 1],
            (schedule->step_count - index - 1) * sizeof *schedule->steps);
    schedule->step_count--;
}

/* A missing step: its message has no other end, or a copy is missing. */
static void leave_out(struct subject *subject)
{
    subject->mutation = "a step left out";
    for (uint32_t rank = 0; rank < subject->ranks; rank++) {
        for (size_t i = 0; i < subject->right[rank].step_count; i++) {
            struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
            remove_step(&mutant[rank], i);
            must_be_rejected(subject, mutant, rank, i);
            test_finish_all(mutant, subject->ranks);
        }
    }
}

/* A step twice: its message has no other end, or two copies race. */
static void do_twice(struct subject *subject)
{
    subject->mutation = "a step twice";
    for (uint32_t rank = 0; rank < subject->ranks; rank++) {
        for (size_t i = 0; i < subject->right[rank].step_count; i++) {
            struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
            struct muster_schedule *one = &mutant[rank];
            struct muster_step *steps = calloc(one->step_count + 1, sizeof *steps);
            assert_non_null(steps);
            memcpy(steps, one->steps, (i + 1) * sizeof *steps);
            memcpy(&steps[i + 1], &one->steps[i], (one->step_count - i) * sizeof *steps);
            free(one->steps);
            one->steps = steps;
            one->step_count++;
            must_be_rejected(subject, mutant, rank, i);
            test_finish_all(mutant, subject->ranks);
        }
    }
}

/* Index at the peer of the step that matches this one; both must have the same n. */
static size_t other_end(const struct muster_schedule *schedules, uint32_t rank, size_t index)
{
    const struct muster_step *step = &schedules[rank].steps[index];
    bool sends = step->kind == MUSTER_STEP_SEND;
    size_t n = 0;
    for (size_t i = 0; i < index; i++) {
        const struct muster_step *before = &schedules[rank].steps[i];
        n += is_message(before) && (before->kind == MUSTER_STEP_SEND) == sends &&
                     before->peer == step->peer && before->lane == step->lane
                 ? 1
                 : 0;
    }
    const struct muster_schedule *peer = &schedules[step->peer];
    for (size_t i = 0; i < peer->step_count; i++) {
        const struct muster_step *there = &peer->steps[i];
        if (is_message(there) && (there->kind == MUSTER_STEP_SEND) != sends &&
            there->peer == rank && there->lane == step->lane && n-- == 0) {
            return i;
        }
    }
    abort();
}

static void renumber(struct muster_schedule *schedule)
{
    uint32_t round = 0;
    uint32_t previous = 0;
    for (size_t i = 0; i < schedule->step_count; i++) {
        struct muster_step *step = &schedule->steps[i];
        bool first = i == 0 || step->lane != schedule->steps[i - 1].lane;
        round = first ? 0 : step->round != previous ? round + 1 : round;
        previous = step->round;
        step->round = round;
    }
}

enum pair_mutation { PAIR_GONE, PAIR_SHORTER, PAIR_SHIFTED };

/* Both ends change in the same way, so that they still agree; then the result is wrong. */
static void change_pairs(struct subject *subject, enum pair_mutation what)
{
    static const char *const names[] = {"a message left out", "a shorter message",
                                        "a shifted message"};
    subject->mutation = names[what];
    bool barrier = subject->job->plans[0].collective == MUSTER_BARRIER;
    if (barrier && what != PAIR_GONE) {
        return;
    }
    for (uint32_t rank = 0; rank < subject->ranks; rank++) {
        for (size_t i = 0; i < subject->right[rank].step_count; i++) {
            const struct muster_step *send = &subject->right[rank].steps[i];
            if (send->kind != MUSTER_STEP_SEND || (send->span.count == 0 && !barrier)) {
                continue;
            }
            size_t other = other_end(subject->right, rank, i);
            struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
            struct muster_step *here = &mutant[rank].steps[i];
            struct muster_step *there = &mutant[send->peer].steps[other];
            here->span.count -= what == PAIR_SHORTER ? 1 : 0;
            there->span.count -= what == PAIR_SHORTER ? 1 : 0;
            here->span.offset += what == PAIR_SHIFTED ? 1 : 0;
            there->span.offset += what == PAIR_SHIFTED ? 1 : 0;
            there->at += what == PAIR_SHIFTED ? 1 : 0;
            if (what == PAIR_GONE) {
                uint32_t peer = send->peer;
                remove_step(&mutant[rank], i);
                remove_step(&mutant[peer], other);
                renumber(&mutant[rank]);
                renumber(&mutant[peer]);
            }
            must_be_rejected(subject, mutant, rank, i);
            test_finish_all(mutant, subject->ranks);
        }
    }
}

/* One rank's schedule differs from the others' in its own fields. Less scratch makes no difference
 * if no step uses the part that is missing. */
static void change_heads(struct subject *subject)
{
    subject->mutation = "another head";
    for (uint32_t rank = 0; rank < subject->ranks; rank++) {
        for (int field = 0; field < 6; field++) {
            struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
            struct muster_schedule *one = &mutant[rank];
            one->input_count += field == 0 ? 1 : 0;
            one->rank += field == 1 ? 1 : 0;
            one->ranks += field == 2 ? 1 : 0;
            one->output_count += field == 3 ? 1 : 0;
            one->lanes += field == 4 ? 1 : 0;
            subject->may_be_right = field == 5;
            one->scratch_count -= field == 5 && one->scratch_count > 0 ? 1 : 0;
            if (field < 5 || subject->right[rank].scratch_count > 0) {
                must_be_rejected(subject, mutant, rank, 0);
            }
            test_finish_all(mutant, subject->ranks);
        }
    }
    subject->may_be_right = false;
}

/* In a ring each round sends what the one before received; it makes no difference if that was
 * nothing. */
static void join_rounds(struct subject *subject)
{
    subject->mutation = "two rounds as one";
    subject->may_be_right = true;
    bool ring = strncmp(muster_algorithms[subject->algorithm].name, "ring", 4) == 0;
    for (uint32_t rank = 0; ring && subject->ranks > 2 && rank < subject->ranks; rank++) {
        struct muster_schedule *mutant = test_copy_all(subject->right, subject->ranks);
        for (size_t i = 0; i < mutant[rank].step_count; i++) {
            mutant[rank].steps[i].round -= mutant[rank].steps[i].round > 0 ? 1 : 0;
        }
        must_be_rejected(subject, mutant, rank, 0);
        test_finish_all(mutant, subject->ranks);
    }
}

/* Mutates one algorithm's schedules, and adds up the mutants. */
static void mutate(size_t algorithm, const struct muster_plan *plan, uint64_t *random,
                   size_t *mutants, size_t *equivalents)
{
    struct test_job job = test_job_create(algorithm, plan, false);
    struct subject subject = {.job = &job,
                              .right = job.schedules,
                              .algorithm = algorithm,
                              .ranks = plan->topology->ranks,
                              .random = random};
    assert_true(test_prove(&job).proven);
    change_fields(&subject);
    leave_out(&subject);
    do_twice(&subject);
    change_pairs(&subject, PAIR_GONE);
    change_pairs(&subject, PAIR_SHORTER);
    change_pairs(&subject, PAIR_SHIFTED);
    change_heads(&subject);
    join_rounds(&subject);
    test_job_finish(&job);
    *mutants += subject.mutants;
    *equivalents += subject.equivalents;
}

/* Barriers only of powers of two: with other numbers of ranks some messages carry nothing new. */
static void every_change_to_a_schedule_is_rejected(void **state)
{
    (void)state;
    const uint32_t hosts[][3] = {{2}, {4}, {2, 2}, {3, 1, 2}, {5}, {3, 4}};
    uint64_t random = test_seed();
    size_t mutants = 0;
    size_t equivalents = 0;
    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0]; h++) {
        struct muster_topology topology = test_topology(3, hosts[h]);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            enum muster_collective collective = muster_algorithms[algorithm].collective;
            bool power = (topology.ranks & (topology.ranks - 1)) == 0;
            struct muster_plan plan =
                test_plan(algorithm, &topology, 3 * topology.ranks + 2, topology.ranks - 1);
            if (!test_fits(algorithm, &plan) || (collective == MUSTER_BARRIER && !power)) {
                continue;
            }
            mutate(algorithm, &plan, &random, &mutants, &equivalents);
            if (muster_collective_in_place_counts(collective)) {
                plan.in_place = true;
                mutate(algorithm, &plan, &random, &mutants, &equivalents);
            }
        }
        muster_topology_finish(&topology);
    }
    print_message("%zu mutants rejected, %zu are right\n", mutants, equivalents);
    assert_true(mutants > 10000);
    assert_true(equivalents < mutants / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_to_a_schedule_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
