/* What a drawing says of schedules: columns, both ends of messages, names of chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/draw/drawing.h"
#include "tests/support/schedules.h"

/* One call's schedules and what there is to see of them. */
struct sight {
    struct muster_topology topology;
    struct test_job job;
    struct muster_drawing drawing;
};

static struct sight see(size_t algorithm, struct muster_topology topology, uint64_t count,
                        bool uneven)
{
    struct sight sight = {.topology = topology};
    struct muster_plan plan = test_plan(algorithm, &sight.topology, count, 0);
    sight.job = test_job_create(algorithm, &plan, uneven);
    assert_int_equal(muster_drawing_init(sight.job.shapes, sight.job.schedules, sight.job.ranks,
                                         false, &sight.drawing),
                     MUSTER_OK);
    return sight;
}

static struct sight see_named(enum muster_collective collective, const char *name, uint32_t ranks,
                              uint64_t count)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    return see(algorithm, test_topology_even(ranks, 1), count, false);
}

static void close_eyes(struct sight *sight)
{
    muster_drawing_finish(&sight->drawing);
    test_job_finish(&sight->job);
    muster_topology_finish(&sight->topology);
}

static const char *label_of(const struct sight *sight, const struct muster_cargo *cargo)
{
    static char label[MUSTER_DRAWING_LABEL_MAX];
    muster_drawing_label(&sight->drawing, cargo, label, sizeof label);
    return label;
}

static void a_ring_sums_one_chunk_after_the_other(void **state)
{
    (void)state;
    struct sight sight = see_named(MUSTER_ALLREDUCE, "ring_two_phase", 4, 8);
    assert_int_equal(sight.drawing.chunks, 4);
    assert_int_equal(sight.drawing.columns, 6);
    assert_string_equal(label_of(&sight, &sight.drawing.begin[2]), "abcd");
    assert_int_equal(sight.drawing.begin[2].members, 1);
    assert_string_equal(label_of(&sight, &sight.drawing.end[3]), "abcd");
    assert_int_equal(sight.drawing.end[3].members, 4);
    static const char *const labels[] = {"a", "d", "d", "c", "c", "b",
                                         "b", "a", "a", "d", "d", "c"};
    static const uint32_t members[] = {1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const struct muster_drawn_step *drawn = &sight.drawing.steps[i];
        assert_int_equal(drawn->rank, 0);
        assert_int_equal(drawn->column, i / 2);
        assert_string_equal(label_of(&sight, &drawn->cargo), labels[i]);
        assert_int_equal(drawn->cargo.members, members[i]);
    }
    close_eyes(&sight);
}

static void a_rank_that_waits_has_an_empty_column(void **state)
{
    (void)state;
    struct sight sight = see_named(MUSTER_BROADCAST, "binomial", 4, 8);
    const struct muster_schedule *last = &sight.job.schedules[3];
    assert_int_equal(last->step_count, 1);
    assert_int_equal(last->steps[0].round, 0);
    assert_int_equal(sight.drawing.steps[sight.drawing.first_step[3]].column, 1);
    close_eyes(&sight);
}

static void many_chunks_have_numbers_and_long_names_are_cut(void **state)
{
    (void)state;
    struct sight sight = see_named(MUSTER_ALLGATHER, "ring", 60, 1);
    assert_int_equal(sight.drawing.chunks, 60);
    assert_string_equal(label_of(&sight, &sight.drawing.begin[59]), "59");
    assert_string_equal(label_of(&sight, &sight.drawing.end[0]), "0-59");
    close_eyes(&sight);
    sight = see_named(MUSTER_ALLTOALL, "pairwise", 4, 1);
    assert_string_equal(label_of(&sight, &sight.drawing.begin[2]), "2>0-3");
    assert_string_equal(label_of(&sight, &sight.drawing.end[2]), "0-3>2");
    char label[5];
    muster_drawing_label(&sight.drawing, &sight.drawing.end[2], label, sizeof label);
    assert_string_equal(label, "0>..");
    close_eyes(&sight);
}

static void what_lies_between_blocks_has_no_name(void **state)
{
    (void)state;
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLGATHERV, "ring", &algorithm), MUSTER_OK);
    struct sight sight = see(algorithm, test_topology_even(5, 1), 4, true);
    uint64_t blocks = 0;
    for (uint32_t rank = 0; rank < 5; rank++) {
        blocks += muster_shape_input_count(&sight.job.shapes[rank]) > 0 ? 1 : 0;
    }
    assert_int_equal(sight.drawing.chunks, blocks);
    close_eyes(&sight);
}

/* Both ends of a message stand in one column; what is received is named as what was sent. */
static void look_at_step(const struct sight *sight, size_t number)
{
    const struct muster_drawing *drawing = &sight->drawing;
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    assert_true(drawn->column < drawing->columns);
    assert_true(drawn->cargo.members <= drawing->ranks);
    assert_int_equal(drawn->cargo.run_count == 0, drawn->step->span.count == 0);
    if (drawn->step->kind >= MUSTER_STEP_COPY) {
        assert_true(drawn->other == SIZE_MAX);
        return;
    }
    const struct muster_drawn_step *other = &drawing->steps[drawn->other];
    assert_int_equal(drawing->steps[drawn->other].other, number);
    assert_int_equal(other->column, drawn->column);
    assert_int_equal(other->rank, drawn->step->peer);
    char label[MUSTER_DRAWING_LABEL_MAX];
    muster_drawing_label(drawing, &other->cargo, label, sizeof label);
    assert_string_equal(label_of(sight, &drawn->cargo), label);
}

static void look_at(size_t algorithm, uint32_t hosts, const uint32_t *sizes, uint64_t count)
{
    struct muster_topology topology = test_topology(hosts, sizes);
    struct muster_plan plan = test_plan(algorithm, &topology, count, 0);
    if (!test_fits(algorithm, &plan)) {
        muster_topology_finish(&topology);
        return;
    }
    struct sight sight = see(algorithm, topology, count, false);
    const struct muster_drawn_step *before = NULL;
    for (size_t i = 0; i < sight.drawing.first_step[sight.drawing.ranks]; i++) {
        const struct muster_drawn_step *drawn = &sight.drawing.steps[i];
        look_at_step(&sight, i);
        if (before != NULL && before->rank == drawn->rank &&
            before->step->lane == drawn->step->lane && before->step->round != drawn->step->round) {
            assert_true(before->column < drawn->column);
        }
        before = drawn;
    }
    close_eyes(&sight);
}

static void every_algorithm_can_be_seen(void **state)
{
    (void)state;
    static const uint32_t ragged[] = {3, 1, 2};
    static const uint64_t counts[] = {0, 1, 24};
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            uint64_t count = muster_algorithms[i].collective == MUSTER_BARRIER ? 0 : counts[j];
            for (uint32_t ranks = 1; ranks <= 9; ranks++) {
                look_at(i, 1, &ranks, count);
            }
            look_at(i, 3, ragged, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_sums_one_chunk_after_the_other),
        cmocka_unit_test(a_rank_that_waits_has_an_empty_column),
        cmocka_unit_test(many_chunks_have_numbers_and_long_names_are_cut),
        cmocka_unit_test(what_lies_between_blocks_has_no_name),
        cmocka_unit_test(every_algorithm_can_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
