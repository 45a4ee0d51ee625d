/* Executes the schedules of all ranks, step by step, in one thread. */
#include "tests/support/interpreter.h"

#include "collectives/schedule/group_step.h"
#include "tests/support/interpreter_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 4 };

__attribute__((format(printf, 2, 3))) void test_run_wrong(const struct test_run *run,
                                                          const char *format, ...)
{
    if (run->why[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(run->why, MUSTER_CHECK_TEXT_MAX, format, arguments);
        va_end(arguments);
    }
}

void *test_run_room(size_t count)
{
    void *items = calloc(count + 1, sizeof(uint64_t));
    if (items == NULL) {
        abort();
    }
    return items;
}

static bool is_receive(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_RECV || step->kind == MUSTER_STEP_RECV_REDUCE;
}

/* Where the elements are, or NULL and the run is wrong. */
uint64_t *test_run_place(const struct test_run *run, const struct test_machine *machine,
                         unsigned buffer, uint64_t offset, uint64_t count)
{
    uint64_t *const bases[] = {machine->in, machine->out, machine->scratch};
    uint64_t all = muster_buffer_count(machine->schedule, buffer);
    if (buffer > MUSTER_SCRATCH || offset > all || count > all - offset) {
        test_run_wrong(run, "rank %" PRIu32 ": out of bounds", machine->schedule->rank);
        return NULL;
    }
    return bases[buffer] + offset;
}

/* All earlier rounds of its lane are done; of an early receive, all but the one before. */
bool test_run_is_posted(const struct test_run *run, const struct test_machine *machine,
                        size_t index)
{
    const struct muster_step *step = &machine->schedule->steps[index];
    uint32_t ahead = run->early != NULL && run->early(machine->schedule, index) ? 1 : 0;
    for (size_t i = index; i-- > 0;) {
        const struct muster_step *before = &machine->schedule->steps[i];
        if (before->lane == step->lane && before->round + ahead < step->round &&
            !machine->done[i]) {
            return false;
        }
    }
    return true;
}

/* Index of the n-th message to the peer in the lane; SIZE_MAX if there is none. */
static size_t nth_send(const struct muster_schedule *schedule, uint32_t peer, uint16_t lane,
                       size_t n)
{
    for (size_t i = 0; i < schedule->step_count; i++) {
        const struct muster_step *step = &schedule->steps[i];
        if (step->kind == MUSTER_STEP_SEND && step->peer == peer && step->lane == lane &&
            n-- == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* A step of splitmix64. */
static uint64_t mix(uint64_t number)
{
    uint64_t mixed = number * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ mixed >> 31;
}

void test_run_reduce(const struct test_run *run, uint64_t *target, const uint64_t *left,
                     const uint64_t *right, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        target[i] = run->mixes ? mix(3 * left[i] + right[i]) : left[i] + right[i];
    }
}

static void do_local(const struct test_run *run, const struct test_machine *machine,
                     const struct muster_step *step)
{
    uint64_t *target = test_run_place(run, machine, step->target, step->at, step->span.count);
    const uint64_t *source =
        test_run_place(run, machine, step->source, step->span.offset, step->span.count);
    if (target == NULL || source == NULL) {
        return;
    }
    if (step->kind == MUSTER_STEP_COPY) {
        memmove(target, source, step->span.count * sizeof *target);
    } else {
        test_run_reduce(run, target, target, source, step->span.count);
    }
}

static void deliver(const struct test_run *run, const struct test_machine *machine,
                    const struct muster_step *step, const uint64_t *data)
{
    uint64_t *target = test_run_place(run, machine, step->target, step->at, step->span.count);
    if (target == NULL) {
        return;
    }
    if (step->kind == MUSTER_STEP_RECV) {
        memmove(target, data, step->span.count * sizeof *target);
        return;
    }
    const uint64_t *own =
        test_run_place(run, machine, step->source, step->span.offset, step->span.count);
    if (own != NULL) {
        test_run_reduce(run, target, own, data, step->span.count);
    }
}

/* Does the receive with its send, if that one is posted. */
static bool do_receive(const struct test_run *run, uint32_t rank, size_t index)
{
    const struct test_machine *machine = &run->machines[rank];
    const struct muster_step *step = &machine->schedule->steps[index];
    size_t n = 0;
    for (size_t i = 0; i < index; i++) {
        const struct muster_step *before = &machine->schedule->steps[i];
        n += is_receive(before) && before->peer == step->peer && before->lane == step->lane ? 1 : 0;
    }
    if (step->peer >= run->ranks || step->peer == run->absent) {
        return false;
    }
    const struct test_machine *sender = &run->machines[step->peer];
    size_t send = nth_send(sender->schedule, rank, step->lane, n);
    if (send == SIZE_MAX || !test_run_is_posted(run, sender, send)) {
        return false;
    }
    const struct muster_step *sent = &sender->schedule->steps[send];
    const uint64_t *data =
        test_run_place(run, sender, sent->source, sent->span.offset, sent->span.count);
    if (sent->span.count != step->span.count) {
        test_run_wrong(run, "rank %" PRIu32 ": a message of another size", rank);
    } else if (data != NULL) {
        deliver(run, machine, step, data);
    }
    sender->done[send] = true;
    return true;
}

static bool try_step(const struct test_run *run, uint32_t rank, size_t index)
{
    const struct test_machine *machine = &run->machines[rank];
    const struct muster_step *step = &machine->schedule->steps[index];
    if (machine->done[index] || step->kind == MUSTER_STEP_SEND ||
        !test_run_is_posted(run, machine, index)) {
        return false;
    }
    if (muster_step_is_group(step)) {
        return test_run_group_step(run, rank, index);
    }
    if (is_receive(step)) {
        machine->done[index] = do_receive(run, rank, index);
    } else {
        do_local(run, machine, step);
        machine->done[index] = true;
    }
    return machine->done[index];
}

static bool do_one(const struct test_run *run, uint32_t rank)
{
    size_t steps = run->machines[rank].schedule->step_count;
    size_t from = steps == 0 ? 0 : test_random_below(run->random, (uint32_t)steps);
    for (size_t i = 0; i < steps; i++) {
        if (try_step(run, rank, (from + i) % steps)) {
            return true;
        }
    }
    return false;
}

static bool is_done(const struct test_machine *machine)
{
    for (size_t i = 0; i < machine->schedule->step_count; i++) {
        if (!machine->done[i]) {
            return false;
        }
    }
    return true;
}

/* Runs until no rank can do a step. */
static void run_all(const struct test_run *run)
{
    for (bool moved = true; moved && run->why[0] == '\0';) {
        moved = false;
        for (uint32_t rank = 0; rank < run->ranks; rank++) {
            moved = (rank != run->absent && do_one(run, rank)) || moved;
        }
    }
}

/* A hash of rank and element, so that different sums of such numbers differ. */
static uint64_t contribution(uint32_t rank, uint64_t element)
{
    return mix((uint64_t)rank << 40 ^ element);
}

static uint64_t expected(const struct test_job *job, uint32_t rank, uint64_t element)
{
    struct muster_expected expected = muster_shape_expected(job->shapes, rank, element);
    if (!expected.reduced) {
        return contribution(expected.rank, expected.origin);
    }
    uint64_t sum = 0;
    for (uint32_t other = 0; other < job->ranks; other++) {
        sum += contribution(other, expected.origin);
    }
    return sum;
}

static void make_noise(uint64_t *memory, uint64_t count, uint64_t *random)
{
    for (uint64_t i = 0; i < count; i++) {
        memory[i] = test_random(random);
    }
}

static void open_machine(struct test_machine *machine, const struct test_job *job,
                         const struct muster_schedule *schedule, uint32_t rank, bool in_place,
                         uint64_t *random)
{
    const struct muster_shape *shape = &job->shapes[rank];
    int64_t offset = in_place ? muster_shape_in_place_offset(shape) : 0;
    uint64_t in = muster_shape_input_count(shape);
    uint64_t out = muster_shape_output_count(shape);
    machine->schedule = schedule;
    machine->scratch = test_run_room(schedule->scratch_count);
    machine->done = test_run_room(schedule->step_count);
    machine->memory = test_run_room(2 * (in + out));
    make_noise(machine->memory, 2 * (in + out), random);
    make_noise(machine->scratch, schedule->scratch_count, random);
    machine->out = machine->memory + (offset < 0 ? -offset : 0);
    machine->in = in_place ? machine->out + offset : machine->out + out;
    machine->in_copy = test_run_room(in);
    for (uint64_t i = 0; i < in && muster_shape_contributes(shape); i++) {
        machine->in[i] = contribution(rank, i);
    }
    memcpy(machine->in_copy, machine->in, in * sizeof *machine->in);
}

static void close_machine(struct test_machine *machine)
{
    free(machine->memory);
    free(machine->in_copy);
    free(machine->scratch);
    free(machine->done);
}

static void compare(const struct test_run *run, const struct test_job *job, uint32_t rank,
                    bool in_place)
{
    const struct test_machine *machine = &run->machines[rank];
    for (uint64_t i = 0; i < muster_shape_output_count(&job->shapes[rank]); i++) {
        if (machine->out[i] != expected(job, rank, i)) {
            test_run_wrong(run, "rank %" PRIu32 ": output[%" PRIu64 "] is wrong", rank, i);
            return;
        }
    }
    if (!in_place && memcmp(machine->in, machine->in_copy,
                            muster_shape_input_count(&job->shapes[rank]) * sizeof(uint64_t)) != 0) {
        test_run_wrong(run, "rank %" PRIu32 ": its input has changed", rank);
    }
}

/* False if the sizes in the schedules are not those of the job. */
static bool sizes_are_right(const struct test_job *job, const struct muster_schedule *schedules)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        if (schedules[rank].input_count != muster_shape_input_count(&job->shapes[rank]) ||
            schedules[rank].output_count != muster_shape_output_count(&job->shapes[rank]) ||
            schedules[rank].scratch_count > UINT32_MAX) {
            return false;
        }
    }
    return true;
}

static void open_machines(struct test_run *run, const struct test_job *job,
                          const struct muster_schedule *schedules, bool in_place)
{
    run->shapes = job->shapes;
    run->machines = calloc(job->ranks, sizeof *run->machines);
    if (run->machines == NULL) {
        abort();
    }
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        open_machine(&run->machines[rank], job, &schedules[rank], rank, in_place, run->random);
    }
}

static void close_machines(struct test_run *run)
{
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        close_machine(&run->machines[rank]);
    }
    free(run->machines);
}

/* Without an absent rank all ranks must finish with the right results; with one, none may finish.
 */
static void execute(struct test_run *run, const struct test_job *job,
                    const struct muster_schedule *schedules, bool in_place)
{
    run->why[0] = '\0';
    if (!sizes_are_right(job, schedules)) {
        test_run_wrong(run, "a schedule for other buffers");
        return;
    }
    open_machines(run, job, schedules, in_place);
    run_all(run);
    bool all = run->absent == run->ranks;
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        if (rank != run->absent && is_done(&run->machines[rank]) != all) {
            test_run_wrong(run, "rank %" PRIu32 " %s", rank, all ? "never ends" : "does not wait");
        }
        if (all) {
            compare(run, job, rank, in_place);
        }
    }
    close_machines(run);
}

bool test_execute(const struct test_job *job, const struct muster_schedule *schedules,
                  bool in_place, uint64_t *random, char *ret_why)
{
    struct test_run run = {
        .ranks = job->ranks, .absent = job->ranks, .random = random, .why = ret_why};
    execute(&run, job, schedules, in_place);
    return ret_why[0] == '\0';
}

bool test_executes_right(const struct test_job *job, const struct muster_schedule *schedules,
                         uint64_t *random)
{
    char why[MUSTER_CHECK_TEXT_MAX];
    enum muster_collective collective = job->shapes[0].collective;
    bool both = !muster_collective_in_place_counts(collective);
    for (int i = 0; i < TRIES; i++) {
        if (!test_execute(job, schedules, job->in_place, random, why) ||
            (both && !test_execute(job, schedules, !job->in_place, random, why))) {
            return false;
        }
    }
    for (uint32_t absent = 0; collective == MUSTER_BARRIER && absent < job->ranks; absent++) {
        struct test_run run = {.ranks = job->ranks, .absent = absent, .random = random, .why = why};
        execute(&run, job, schedules, false);
        if (why[0] != '\0') {
            return false;
        }
    }
    return true;
}

/* Elements of INPUT in place are as they were; those that OUTPUT has, too, may be results. */
static void compare_input(const struct test_run *run, const struct test_job *job, uint32_t rank,
                          bool results)
{
    const struct test_machine *machine = &run->machines[rank];
    const struct muster_shape *shape = &job->shapes[rank];
    int64_t offset = muster_shape_in_place_offset(shape);
    int64_t outputs = (int64_t)muster_shape_output_count(shape);
    if (!muster_shape_contributes(shape)) {
        return;
    }
    for (uint64_t i = 0; i < muster_shape_input_count(shape); i++) {
        int64_t element = (int64_t)i + offset; /* of OUTPUT */
        bool is_output = element >= 0 && element < outputs;
        bool is_result =
            results && is_output && machine->in[i] == expected(job, rank, (uint64_t)element);
        if (machine->in[i] != machine->in_copy[i] && !is_result) {
            test_run_wrong(run, "rank %" PRIu32 ": its input[%" PRIu64 "] has changed%s", rank, i,
                           results ? "" : " early");
        }
    }
}

/* As run_all(), but looks at the inputs after each pass. */
static void run_and_compare(const struct test_run *run, const struct test_job *job)
{
    for (bool moved = true; moved && run->why[0] == '\0';) {
        moved = false;
        for (uint32_t rank = 0; rank < run->ranks; rank++) {
            if (rank != run->absent && do_one(run, rank)) {
                moved = true;
                compare_input(run, job, rank, run->absent == run->ranks);
            }
        }
    }
}

bool test_keeps_promises(const struct test_job *job, const struct muster_schedule *schedules,
                         unsigned promises, uint64_t *random, char *ret_why)
{
    bool keeps = (promises & MUSTER_CHECK_INPUT_KEPT) != 0;
    bool together = (promises & MUSTER_CHECK_FINISH_TOGETHER) != 0;
    ret_why[0] = '\0';
    for (uint32_t absent = 0; absent <= job->ranks; absent++) {
        struct test_run run = {
            .ranks = job->ranks, .absent = absent, .random = random, .why = ret_why};
        open_machines(&run, job, schedules, keeps);
        if (keeps) {
            run_and_compare(&run, job);
        } else {
            run_all(&run);
        }
        for (uint32_t rank = 0; together && absent < job->ranks && rank < job->ranks; rank++) {
            if (rank != absent && is_done(&run.machines[rank])) {
                test_run_wrong(&run, "rank %" PRIu32 " does not wait", rank);
            }
        }
        close_machines(&run);
    }
    return ret_why[0] == '\0';
}

bool test_execute_mixed(const struct test_job *job, bool in_place, test_early early,
                        uint64_t *random, uint64_t *ret_digest, char *ret_why)
{
    struct test_run run = {.ranks = job->ranks,
                           .absent = job->ranks,
                           .random = random,
                           .early = early,
                           .mixes = true,
                           .why = ret_why};
    ret_why[0] = '\0';
    open_machines(&run, job, job->schedules, in_place);
    run_all(&run);
    uint64_t digest = 0;
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        if (!is_done(&run.machines[rank])) {
            test_run_wrong(&run, "rank %" PRIu32 " never ends", rank);
        }
        for (uint64_t i = 0; i < job->schedules[rank].output_count; i++) {
            digest = mix(digest + run.machines[rank].out[i]);
        }
    }
    close_machines(&run);
    *ret_digest = digest;
    return ret_why[0] == '\0';
}
