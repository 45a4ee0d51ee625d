/*
 * The moves of every algorithm's schedules, looked at element by element: what a step reads has
 * been fetched when it may begin, nothing else is fetched, everything that is written is stored
 * once, after its last write, and in place no fetch is under way where a step writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedule/group_step.h"
#include "collectives/schedule/moves.h"
#include "tests/support/interpreter.h"

enum { NOTHING = -1 };

/* What happens to the elements of one rank's buffers. */
struct record {
    const struct muster_shape *shape;
    const struct muster_schedule *schedule;
    const struct muster_schedule_moves *moves;
    int64_t *fetched_by; /* [input_count] the fetch, or NOTHING */
    int64_t *written_by; /* [output_count] the last step that writes it, or NOTHING */
    int64_t *touched_by; /* [output_count] the last one that reads or writes it after that */
};

static int64_t *filled(uint64_t count)
{
    int64_t *made = calloc(count + 1, sizeof *made);
    assert_non_null(made);
    for (uint64_t i = 0; i < count; i++) {
        made[i] = NOTHING;
    }
    return made;
}

static void note_fetches(struct record *record)
{
    for (size_t i = 0; i < record->moves->fetch_count; i++) {
        const struct muster_span fetch = record->moves->fetches[i];
        assert_in_range(fetch.offset + fetch.count, 1, record->schedule->input_count);
        for (uint64_t at = fetch.offset; at < fetch.offset + fetch.count; at++) {
            assert_int_equal(record->fetched_by[at], NOTHING); /* once */
            record->fetched_by[at] = (int64_t)i;
        }
    }
}

/* How many fetches are complete when the round of the step begins, in its lane. */
static size_t complete_at(const struct record *record, size_t step)
{
    const struct muster_step *steps = record->schedule->steps;
    size_t complete = 0;
    for (size_t i = 0; i < record->schedule->step_count; i++) {
        if (steps[i].lane == steps[step].lane && steps[i].round <= steps[step].round &&
            record->moves->needs[i] > complete) {
            complete = record->moves->needs[i];
        }
    }
    return complete;
}

static void check_reads(const struct record *record, size_t index, uint8_t *read)
{
    const struct muster_step *step = &record->schedule->steps[index];
    const struct muster_step_ranges ranges =
        muster_step_ranges(record->shape, record->schedule, step);
    if (!ranges.reads || step->source != MUSTER_INPUT) {
        return;
    }
    for (uint64_t i = 0; i < ranges.source.count; i++) {
        uint64_t at = ranges.source.offset + i;
        assert_int_not_equal(record->fetched_by[at], NOTHING);
        assert_true((size_t)record->fetched_by[at] < record->moves->needs[index]);
        read[at] = 1;
    }
}

/* In place, what a step writes is no element that is still to be fetched. */
static void check_writes(const struct record *record, size_t index, bool in_place)
{
    const struct muster_step *step = &record->schedule->steps[index];
    const struct muster_step_ranges ranges =
        muster_step_ranges(record->shape, record->schedule, step);
    if (!ranges.writes || step->target != MUSTER_OUTPUT) {
        return;
    }
    size_t complete = complete_at(record, index);
    int64_t shift = in_place ? muster_shape_in_place_offset(record->shape) : 0;
    for (uint64_t i = 0; i < ranges.target.count; i++) {
        uint64_t at = ranges.target.offset + i;
        int64_t of_input = (int64_t)at - shift;
        const struct muster_step *before = record->written_by[at] == NOTHING
                                               ? step
                                               : &record->schedule->steps[record->written_by[at]];
        assert_int_equal(before->lane, step->lane);
        if (before->round <= step->round) {
            record->written_by[at] = (int64_t)index;
        }
        if (in_place && of_input >= 0 && (uint64_t)of_input < record->schedule->input_count &&
            record->fetched_by[of_input] != NOTHING) {
            assert_true((size_t)record->fetched_by[of_input] < complete);
        }
    }
}

/* Notes which step reads what is written last. */
static void note_touches(const struct record *record)
{
    for (uint64_t at = 0; at < record->schedule->output_count; at++) {
        record->touched_by[at] = record->written_by[at];
    }
    for (size_t i = 0; i < record->schedule->step_count; i++) {
        const struct muster_step *step = &record->schedule->steps[i];
        const struct muster_step_ranges ranges =
            muster_step_ranges(record->shape, record->schedule, step);
        for (uint64_t k = 0;
             ranges.reads && step->source == MUSTER_OUTPUT && k < ranges.source.count; k++) {
            int64_t *touched = &record->touched_by[ranges.source.offset + k];
            const struct muster_step *last =
                *touched == NOTHING ? NULL : &record->schedule->steps[*touched];
            if (last != NULL && last->lane == step->lane && step->round > last->round) {
                *touched = (int64_t)i;
            }
        }
    }
}

/* Each element is stored once, in the round after which it may be. */
static void check_stores(const struct record *record, const int64_t *stored_after)
{
    const struct muster_schedule_moves *moves = record->moves;
    uint64_t stored = 0;
    for (size_t step = 0; step < record->schedule->step_count; step++) {
        for (size_t i = moves->stored_by[step]; i < moves->stored_by[step + 1]; i++) {
            for (uint64_t at = 0; at < moves->stores[i].count; at++) {
                int64_t after = stored_after[moves->stores[i].offset + at];
                assert_int_not_equal(after, NOTHING);
                assert_int_equal(record->schedule->steps[after].round,
                                 record->schedule->steps[step].round);
                assert_int_equal(record->schedule->steps[after].lane,
                                 record->schedule->steps[step].lane);
                stored++;
            }
        }
    }
    uint64_t written = 0;
    for (uint64_t at = 0; at < record->schedule->output_count; at++) {
        written += record->written_by[at] != NOTHING;
    }
    assert_int_equal(stored, written);
}

static void check_schedule(const struct muster_shape *shape, const struct muster_schedule *schedule,
                           bool in_place, bool finishes, uint64_t first)
{
    struct muster_schedule_moves moves;
    const uint64_t most = 8 * first;
    assert_int_equal(muster_schedule_moves_plan(shape, schedule, finishes, first, most, &moves),
                     MUSTER_OK);
    struct record record = {.shape = shape,
                            .schedule = schedule,
                            .moves = &moves,
                            .fetched_by = filled(schedule->input_count),
                            .written_by = filled(schedule->output_count),
                            .touched_by = filled(schedule->output_count)};
    uint8_t *read = calloc(schedule->input_count + 1, 1);
    note_fetches(&record);
    for (size_t i = 0; i < schedule->step_count; i++) {
        check_reads(&record, i, read);
        check_writes(&record, i, in_place);
    }
    note_touches(&record);
    check_stores(&record, finishes ? record.touched_by : record.written_by);
    for (uint64_t at = 0; at < schedule->input_count; at++) {
        assert_int_equal(read[at], record.fetched_by[at] != NOTHING);
    }
    for (size_t i = 0; i < moves.fetch_count; i++) {
        uint64_t room = i < 32 && first << i < most ? first << i : most;
        assert_in_range(moves.fetches[i].count, 1, room);
    }
    free(read);
    free(record.fetched_by);
    free(record.written_by);
    free(record.touched_by);
    muster_schedule_moves_finish(&moves);
}

static void check_algorithm(size_t algorithm, const struct muster_topology *topology,
                            uint64_t count)
{
    struct muster_plan plan =
        test_plan(algorithm, topology, count, (uint32_t)count % topology->ranks);
    for (int in_place = 0; in_place < 2; in_place++) {
        plan.in_place = in_place != 0;
        if (!test_fits(algorithm, &plan)) {
            continue;
        }
        struct test_job job = test_job_create(algorithm, &plan, false);
        for (uint32_t rank = 0; rank < job.ranks; rank++) {
            check_schedule(&job.shapes[rank], &job.schedules[rank], in_place != 0, false, 3);
            check_schedule(&job.shapes[rank], &job.schedules[rank], in_place != 0, true, 50);
        }
        test_job_finish(&job);
    }
}

static void moves_fetch_before_a_step_reads_and_store_after_the_last_write(void **state)
{
    (void)state;
    static const uint32_t hosts[][4] = {{1},    {2},    {3},    {4},       {5},
                                        {8},    {1, 1}, {2, 2}, {3, 1},    {4, 4},
                                        {2, 3}, {1, 6}, {7},    {3, 1, 4}, {2, 2, 2, 2}};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct muster_topology topology = test_topology(4, hosts[i]);
        const uint64_t counts[] = {1, 3 * topology.ranks + 2, 600};
        for (size_t algorithm = 0; algorithm < muster_algorithm_count; algorithm++) {
            for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
                check_algorithm(algorithm, &topology, counts[j]);
            }
        }
        muster_topology_finish(&topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_fetch_before_a_step_reads_and_store_after_the_last_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
