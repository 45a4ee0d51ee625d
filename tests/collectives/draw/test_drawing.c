/* Drawings: columns of time, both ends of messages, names of chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/draw/drawing.h"
#include "tests/support/schedules.h"

/* The schedules of one call and their drawing. */
struct view {
    struct muster_topology topology;
    struct test_job job;
    struct muster_drawing drawing;
};

static struct view draw(size_t algorithm, struct muster_topology topology, uint64_t count,
                        bool uneven)
{
    struct view view = {.topology = topology};
    struct muster_plan plan = test_plan(algorithm, &view.topology, count, 0);
    view.job = test_job_create(algorithm, &plan, uneven);
    assert_int_equal(muster_drawing_init(view.job.shapes, view.job.schedules, view.job.ranks, false,
                                         &view.drawing),
                     MUSTER_OK);
    return view;
}

static struct view draw_named(enum muster_collective collective, const char *name, uint32_t ranks,
                              uint64_t count)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    return draw(algorithm, test_topology_even(ranks, 1), count, false);
}

static void finish(struct view *view)
{
    muster_drawing_finish(&view->drawing);
    test_job_finish(&view->job);
    muster_topology_finish(&view->topology);
}

static const char *label_of(const struct view *view, const struct muster_step_data *data)
{
    static char label[MUSTER_DRAWING_LABEL_MAX];
    muster_drawing_label(&view->drawing, data, label, sizeof label);
    return label;
}

static void a_ring_sums_one_chunk_after_the_other(void **state)
{
    (void)state;
    struct view view = draw_named(MUSTER_ALLREDUCE, "ring", 4, 8);
    assert_int_equal(view.drawing.chunks, 4);
    assert_int_equal(view.drawing.columns, 6);
    assert_string_equal(label_of(&view, &view.drawing.begin[2]), "abcd");
    assert_int_equal(view.drawing.begin[2].members, 1);
    assert_string_equal(label_of(&view, &view.drawing.end[3]), "abcd");
    assert_int_equal(view.drawing.end[3].members, 4);
    static const char *const labels[] = {"a", "d", "d", "c", "c", "b",
                                         "b", "a", "a", "d", "d", "c"};
    static const uint32_t members[] = {1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const struct muster_drawn_step *drawn = &view.drawing.steps[i];
        assert_int_equal(drawn->rank, 0);
        assert_int_equal(drawn->column, i / 2);
        assert_string_equal(label_of(&view, &drawn->data), labels[i]);
        assert_int_equal(drawn->data.members, members[i]);
    }
    finish(&view);
}

static void a_rank_that_waits_has_an_empty_column(void **state)
{
    (void)state;
    struct view view = draw_named(MUSTER_BROADCAST, "binomial", 4, 8);
    const struct muster_schedule *last = &view.job.schedules[3];
    assert_int_equal(last->step_count, 1);
    assert_int_equal(last->steps[0].round, 0);
    assert_int_equal(view.drawing.steps[view.drawing.first_step[3]].column, 1);
    finish(&view);
}

static void many_chunks_have_numbers_and_long_names_are_cut(void **state)
{
    (void)state;
    struct view view = draw_named(MUSTER_ALLGATHER, "ring", 60, 1);
    assert_int_equal(view.drawing.chunks, 60);
    assert_string_equal(label_of(&view, &view.drawing.begin[59]), "59");
    assert_string_equal(label_of(&view, &view.drawing.end[0]), "0-59");
    finish(&view);
    view = draw_named(MUSTER_ALLTOALL, "pairwise", 4, 1);
    assert_string_equal(label_of(&view, &view.drawing.begin[2]), "2>0-3");
    assert_string_equal(label_of(&view, &view.drawing.end[2]), "0-3>2");
    char label[5];
    muster_drawing_label(&view.drawing, &view.drawing.end[2], label, sizeof label);
    assert_string_equal(label, "0>..");
    finish(&view);
}

static void elements_between_blocks_have_no_name(void **state)
{
    (void)state;
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLGATHERV, "ring", &algorithm), MUSTER_OK);
    struct view view = draw(algorithm, test_topology_even(5, 1), 4, true);
    uint64_t blocks = 0;
    for (uint32_t rank = 0; rank < 5; rank++) {
        blocks += muster_shape_input_count(&view.job.shapes[rank]) > 0 ? 1 : 0;
    }
    assert_int_equal(view.drawing.chunks, blocks);
    finish(&view);
}

/* Both ends of a message are in one column, and have the same name. */
static void check_step(const struct view *view, size_t number)
{
    const struct muster_drawing *drawing = &view->drawing;
    const struct muster_drawn_step *drawn = &drawing->steps[number];
    assert_true(drawn->column < drawing->columns);
    assert_true(drawn->data.members <= drawing->ranks);
    assert_int_equal(drawn->data.run_count == 0, drawn->step->span.count == 0);
    if (drawn->step->kind >= MUSTER_STEP_COPY) {
        assert_true(drawn->other == SIZE_MAX);
        return;
    }
    const struct muster_drawn_step *other = &drawing->steps[drawn->other];
    assert_int_equal(drawing->steps[drawn->other].other, number);
    assert_int_equal(other->column, drawn->column);
    assert_int_equal(other->rank, drawn->step->peer);
    char label[MUSTER_DRAWING_LABEL_MAX];
    muster_drawing_label(drawing, &other->data, label, sizeof label);
    assert_string_equal(label_of(view, &drawn->data), label);
}

static void check_drawing(size_t algorithm, uint32_t hosts, const uint32_t *sizes, uint64_t count)
{
    struct muster_topology topology = test_topology(hosts, sizes);
    struct muster_plan plan = test_plan(algorithm, &topology, count, 0);
    if (!test_fits(algorithm, &plan)) {
        muster_topology_finish(&topology);
        return;
    }
    struct view view = draw(algorithm, topology, count, false);
    const struct muster_drawn_step *before = NULL;
    for (size_t i = 0; i < view.drawing.first_step[view.drawing.ranks]; i++) {
        const struct muster_drawn_step *drawn = &view.drawing.steps[i];
        check_step(&view, i);
        if (before != NULL && before->rank == drawn->rank &&
            before->step->lane == drawn->step->lane && before->step->round != drawn->step->round) {
            assert_true(before->column < drawn->column);
        }
        before = drawn;
    }
    finish(&view);
}

static void every_algorithm_can_be_drawn(void **state)
{
    (void)state;
    static const uint32_t ragged[] = {3, 1, 2};
    static const uint64_t counts[] = {0, 1, 24};
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            uint64_t count = muster_algorithms[i].collective == MUSTER_BARRIER ? 0 : counts[j];
            for (uint32_t ranks = 1; ranks <= 9; ranks++) {
                check_drawing(i, 1, &ranks, count);
            }
            check_drawing(i, 3, ragged, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_sums_one_chunk_after_the_other),
        cmocka_unit_test(a_rank_that_waits_has_an_empty_column),
        cmocka_unit_test(many_chunks_have_numbers_and_long_names_are_cut),
        cmocka_unit_test(elements_between_blocks_have_no_name),
        cmocka_unit_test(every_algorithm_can_be_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
