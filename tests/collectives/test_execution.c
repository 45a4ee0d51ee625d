/*
 * Every algorithm really executed: an interpreter of schedules that shares nothing with the checker
 * runs them on integers, out of place and in place, and the results are compared with sums made
 * directly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

/* One rank's memory and where it is in its schedule. */
struct machine {
    const struct muster_schedule *schedule;
    int64_t *memory; /* of in and out */
    int64_t *in, *out, *scratch;
    int64_t *in_copy; /* as it was */
    bool *done;       /* [steps] */
};

/* The interpreter takes the slowest way that is allowed: in each pass over all ranks it does one
 * step where one can be done, so that rounds interleave as badly as they can. */
struct run {
    struct machine *machines;
    uint32_t ranks;
    uint64_t random;
};

static int64_t *place(const struct machine *machine, unsigned buffer, uint64_t offset)
{
    int64_t *bases[] = {machine->in, machine->out, machine->scratch};
    return bases[buffer] + offset;
}

/* All earlier rounds of its lane are done. */
static bool is_posted(const struct machine *machine, size_t index)
{
    const struct muster_step *step = &machine->schedule->steps[index];
    for (size_t i = index; i-- > 0;) {
        const struct muster_step *before = &machine->schedule->steps[i];
        if (before->lane != step->lane) {
            break;
        }
        if (before->round < step->round && !machine->done[i]) {
            return false;
        }
    }
    return true;
}

/* Index of the n-th message from or to the peer in the lane; SIZE_MAX if there is none. */
static size_t nth(const struct muster_schedule *schedule, bool sends, uint32_t peer, uint16_t lane,
                  size_t n)
{
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        bool message =
            sends ? step->kind == MUSTER_STEP_SEND
                  : step->kind == MUSTER_STEP_RECV || step->kind == MUSTER_STEP_RECV_REDUCE;
        if (message && step->peer == peer && step->lane == lane && n-- == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void reduce(int64_t *target, const int64_t *left, const int64_t *right, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        target[i] = left[i] + right[i];
    }
}

static void do_local(struct machine *machine, const struct muster_step *step)
{
    int64_t *target = place(machine, step->target, step->at);
    const int64_t *source = place(machine, step->source, step->span.offset);
    if (step->kind == MUSTER_STEP_COPY) {
        memmove(target, source, step->span.count * sizeof *target);
    } else {
        reduce(target, target, source, step->span.count);
    }
}

/* Does the receive with its send, if that one is posted. */
static bool do_receive(struct run *run, uint32_t rank, size_t index)
{
    struct machine *machine = &run->machines[rank];
    const struct muster_step *step = &machine->schedule->steps[index];
    size_t n = 0;
    for (size_t i = 0; i < index; i++) {
        const struct muster_step *before = &machine->schedule->steps[i];
        n += (before->kind == MUSTER_STEP_RECV || before->kind == MUSTER_STEP_RECV_REDUCE) &&
                     before->peer == step->peer && before->lane == step->lane
                 ? 1
                 : 0;
    }
    struct machine *sender = &run->machines[step->peer];
    size_t send = nth(sender->schedule, true, rank, step->lane, n);
    assert_int_not_equal(send, SIZE_MAX);
    if (!is_posted(sender, send)) {
        return false;
    }
    const struct muster_step *sent = &sender->schedule->steps[send];
    assert_int_equal(sent->span.count, step->span.count);
    const int64_t *data = place(sender, sent->source, sent->span.offset);
    int64_t *target = place(machine, step->target, step->at);
    if (step->kind == MUSTER_STEP_RECV) {
        memmove(target, data, step->span.count * sizeof *target);
    } else {
        reduce(target, place(machine, step->source, step->span.offset), data, step->span.count);
    }
    sender->done[send] = true;
    return true;
}

static bool try_step(struct run *run, uint32_t rank, size_t index)
{
    struct machine *machine = &run->machines[rank];
    const struct muster_step *step = &machine->schedule->steps[index];
    if (machine->done[index] || step->kind == MUSTER_STEP_SEND || !is_posted(machine, index)) {
        return false;
    }
    if (step->kind == MUSTER_STEP_COPY || step->kind == MUSTER_STEP_REDUCE) {
        do_local(machine, step);
    } else if (!do_receive(run, rank, index)) {
        return false;
    }
    machine->done[index] = true;
    return true;
}

/* Runs until nothing moves; from a random step on, so that the order differs each time. */
static void run_all(struct run *run)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t rank = 0; rank < run->ranks; rank++) {
            size_t steps = run->machines[rank].schedule->step_count;
            size_t from = steps == 0 ? 0 : test_random_below(&run->random, (uint32_t)steps);
            for (size_t i = 0; i < steps; i++) {
                if (try_step(run, rank, (from + i) % steps)) {
                    moved = true;
                    break;
                }
            }
        }
    }
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        for (size_t i = 0; i < run->machines[rank].schedule->step_count; i++) {
            assert_true(run->machines[rank].done[i]);
        }
    }
}

/* A number that tells rank and element. */
static int64_t contribution(uint32_t rank, uint64_t element)
{
    return (int64_t)((rank + 1) * 1000003 + element * 7919 + rank * element);
}

static int64_t expected(const struct test_job *job, uint32_t rank, uint64_t element)
{
    struct muster_promise promise = muster_shape_promise(job->shapes, rank, element);
    if (!promise.reduced) {
        return contribution(promise.rank, promise.origin);
    }
    int64_t sum = 0;
    for (uint32_t other = 0; other < job->ranks; other++) {
        sum += contribution(other, promise.origin);
    }
    return sum;
}

static void open_machine(struct machine *machine, const struct test_job *job, uint32_t rank,
                         bool in_place)
{
    const struct muster_schedule *schedule = &job->schedules[rank];
    int64_t offset = in_place ? muster_shape_in_place_offset(&job->shapes[rank]) : 0;
    uint64_t in = schedule->input_count;
    machine->schedule = schedule;
    machine->scratch = calloc(schedule->scratch_count + 1, sizeof(int64_t));
    machine->done = calloc(schedule->step_count + 1, sizeof(bool));
    machine->memory = calloc(2 * (in + schedule->output_count) + 1, sizeof(int64_t));
    machine->out = machine->memory + (offset < 0 ? -offset : 0);
    machine->in = in_place ? machine->out + offset : machine->out + schedule->output_count;
    machine->in_copy = calloc(in + 1, sizeof(int64_t));
    bool has_input = muster_shape_contributes(&job->shapes[rank]);
    for (uint64_t i = 0; i < in; i++) {
        machine->in[i] = has_input ? contribution(rank, i) : -1;
        machine->in_copy[i] = machine->in[i];
    }
}

static void close_machine(struct machine *machine)
{
    free(machine->memory);
    free(machine->in_copy);
    free(machine->scratch);
    free(machine->done);
}

static void execute(size_t algorithm, const struct muster_plan *plan, bool in_place, bool uneven,
                    uint64_t *random)
{
    struct muster_plan asked = *plan;
    asked.in_place = in_place;
    struct test_job job = test_job_create(algorithm, &asked, uneven);
    struct machine *machines = calloc(job.ranks, sizeof *machines);
    assert_non_null(machines);
    for (uint32_t rank = 0; rank < job.ranks; rank++) {
        open_machine(&machines[rank], &job, rank, in_place);
    }
    struct run run = {.machines = machines, .ranks = job.ranks, .random = test_random(random)};
    run_all(&run);
    for (uint32_t rank = 0; rank < job.ranks; rank++) {
        for (uint64_t i = 0; i < job.schedules[rank].output_count; i++) {
            assert_int_equal(machines[rank].out[i], expected(&job, rank, i));
        }
        if (!in_place) {
            assert_memory_equal(machines[rank].in, machines[rank].in_copy,
                                job.schedules[rank].input_count * sizeof(int64_t));
        }
        close_machine(&machines[rank]);
    }
    free(machines);
    test_job_finish(&job);
}

static bool may_be_uneven(const struct muster_plan *plan)
{
    return plan->collective == MUSTER_REDUCE_SCATTER || test_blocks_needed(plan->collective);
}

static void execute_everywhere(bool in_place)
{
    uint64_t random = test_seed();
    const uint32_t hosts[][4] = {{1},    {2},    {3},    {4},         {5},       {7},
                                 {8},    {2, 2}, {4, 4}, {3, 1, 4},   {1, 1, 1}, {2, 3, 2, 1},
                                 {5, 2}, {1, 6}, {13},   {4, 4, 4, 4}};
    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0]; h++) {
        uint32_t count = 0;
        while (count < 4 && hosts[h][count] > 0) {
            count++;
        }
        struct muster_topology topology = test_topology(count, hosts[h]);
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            const uint64_t counts[] = {1, topology.ranks, 3 * topology.ranks + 2, 9000};
            for (size_t c = 0; c < (topology.ranks > 8 ? 3 : 4); c++) {
                struct muster_plan plan =
                    test_plan(algorithm, &topology, counts[c], (uint32_t)c % topology.ranks);
                if (test_fits(algorithm, &plan)) {
                    execute(algorithm, &plan, in_place, c == 2 && may_be_uneven(&plan), &random);
                }
            }
        }
        muster_topology_finish(&topology);
    }
}

static void all_algorithms_give_the_right_numbers_out_of_place(void **state)
{
    (void)state;
    execute_everywhere(false);
}

static void all_algorithms_give_the_right_numbers_in_place(void **state)
{
    (void)state;
    execute_everywhere(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_algorithms_give_the_right_numbers_out_of_place),
        cmocka_unit_test(all_algorithms_give_the_right_numbers_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
