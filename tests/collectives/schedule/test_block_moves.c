/* Schedules for buffers whose blocks lie in another order: which can be rewritten, and into what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/schedule/block_moves.h"
#include "worker/base/status.h"

enum { RANKS = 8, COUNT = 10 };

/* Blocks of equal size; block i lies where block places[i] would. */
static struct muster_block_moves moves_to(const uint32_t *places)
{
    struct muster_block_moves moves;
    assert_int_equal(muster_block_moves_init(RANKS, &moves), MUSTER_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        moves.from[i + 1] = moves.from[i] + COUNT;
        moves.to[i] = (uint64_t)places[i] * COUNT;
    }
    return moves;
}

static const uint32_t dealt[RANKS] = {0, 2, 4, 6, 1, 3, 5, 7};
static const uint32_t swapped[RANKS] = {4, 5, 6, 7, 0, 1, 2, 3};

static void a_piece_goes_on_while_blocks_follow_each_other(void **state)
{
    (void)state;
    struct muster_block_moves moves = moves_to(swapped);
    struct muster_moved_piece piece =
        muster_block_moves_piece(&moves, (struct muster_span){.offset = 5, .count = 60});
    assert_int_equal(piece.at, 45);
    assert_int_equal(piece.count, 35);
    piece = muster_block_moves_piece(&moves, (struct muster_span){.offset = 40, .count = 40});
    assert_int_equal(piece.at, 0);
    assert_int_equal(piece.count, 40);
    muster_block_moves_finish(&moves);
}

static void empty_blocks_end_no_piece(void **state)
{
    (void)state;
    struct muster_block_moves moves;
    assert_int_equal(muster_block_moves_init(3, &moves), MUSTER_OK);
    memcpy(moves.from, (uint64_t[]){0, 4, 4, 9}, 4 * sizeof *moves.from);
    memcpy(moves.to, (uint64_t[]){0, 9, 4}, 3 * sizeof *moves.to);
    struct muster_moved_piece piece =
        muster_block_moves_piece(&moves, (struct muster_span){.offset = 1, .count = 8});
    assert_int_equal(piece.at, 1);
    assert_int_equal(piece.count, 8);
    muster_block_moves_finish(&moves);
}

static bool fits_on_all_ranks(enum muster_collective collective, const char *name,
                              enum muster_buffer buffer, const uint32_t *places)
{
    uint32_t host_sizes[] = {RANKS};
    struct muster_topology topology;
    size_t algorithm = 0;
    bool fits = true;
    assert_int_equal(muster_topology_init(1, host_sizes, &topology), MUSTER_OK);
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    struct muster_block_moves moves = moves_to(places);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct muster_plan plan = {
            .collective = collective, .topology = &topology, .rank = rank, .count = COUNT};
        struct muster_schedule schedule;
        assert_int_equal(muster_schedule_generate(algorithm, &plan, &schedule), MUSTER_OK);
        fits = fits && muster_block_moves_fit(&moves, &schedule, buffer);
        muster_schedule_finish(&schedule);
    }
    muster_block_moves_finish(&moves);
    muster_topology_finish(&topology);
    return fits;
}

/* Those that are chosen for large blocks send one block in a message, so that none is copied. */
static void algorithms_for_large_blocks_need_no_copy(void **state)
{
    (void)state;
    assert_true(fits_on_all_ranks(MUSTER_ALLGATHER, "ring", MUSTER_OUTPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_REDUCE_SCATTER, "ring", MUSTER_INPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_ALLTOALL, "pairwise", MUSTER_INPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_ALLTOALL, "pairwise", MUSTER_OUTPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_ALLTOALL, "bruck", MUSTER_INPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_ALLTOALL, "bruck", MUSTER_OUTPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_GATHER, "linear", MUSTER_OUTPUT, dealt));
    assert_true(fits_on_all_ranks(MUSTER_SCATTER, "linear", MUSTER_INPUT, dealt));
    assert_false(fits_on_all_ranks(MUSTER_ALLGATHER, "recursive_doubling", MUSTER_OUTPUT, dealt));
}

static void local_steps_are_cut_and_messages_are_not(void **state)
{
    (void)state;
    struct muster_block_moves moves = moves_to(dealt);
    const struct muster_block_moves none = {0};
    struct muster_step steps[] = {
        {.kind = MUSTER_STEP_RECV, .target = MUSTER_OUTPUT, .peer = 1, .span = {10, 10}, .at = 10},
        {.kind = MUSTER_STEP_COPY,
         .source = MUSTER_SCRATCH,
         .target = MUSTER_OUTPUT,
         .round = 1,
         .span = {100, 25},
         .at = 15},
        {.kind = MUSTER_STEP_SEND, .source = MUSTER_SCRATCH, .round = 2, .span = {100, 30}},
    };
    struct muster_schedule schedule = {.ranks = RANKS, .lanes = 1, .step_count = 3};
    schedule.steps = malloc(sizeof steps);
    assert_non_null(schedule.steps);
    memcpy(schedule.steps, steps, sizeof steps);
    assert_int_equal(muster_block_moves_apply(&none, &moves, &schedule), MUSTER_OK);
    assert_int_equal(schedule.step_count, 5);
    assert_int_equal(schedule.steps[0].at, 20);
    assert_int_equal(schedule.steps[0].span.offset, 20);
    static const uint64_t at[] = {25, 40, 60};
    static const uint64_t source[] = {100, 105, 115};
    static const uint64_t count[] = {5, 10, 10};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(schedule.steps[1 + i].at, at[i]);
        assert_int_equal(schedule.steps[1 + i].span.offset, source[i]);
        assert_int_equal(schedule.steps[1 + i].span.count, count[i]);
        assert_int_equal(schedule.steps[1 + i].round, 1);
    }
    assert_int_equal(schedule.steps[4].span.count, 30);
    muster_schedule_finish(&schedule);
    muster_block_moves_finish(&moves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_goes_on_while_blocks_follow_each_other),
        cmocka_unit_test(empty_blocks_end_no_piece),
        cmocka_unit_test(algorithms_for_large_blocks_need_no_copy),
        cmocka_unit_test(local_steps_are_cut_and_messages_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
