/* Allreduces need no more scratch than their files say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

enum { RANKS_MAX = 64, COUNT = 1200, LARGE = 1000000 };

/* The elements of SCRATCH on the rank that needs most; if the input is kept. */
static uint64_t scratch_to(bool keep_input, const char *name, uint32_t ranks, uint64_t count)
{
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm), MUSTER_OK);
    struct muster_topology topology = test_topology_even(ranks, 1);
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct muster_plan plan = {.collective = MUSTER_ALLREDUCE,
                                   .topology = &topology,
                                   .rank = rank,
                                   .count = count,
                                   .in_place = keep_input,
                                   .keep_input = keep_input};
        struct muster_schedule schedule;
        assert_int_equal(muster_schedule_generate(algorithm, &plan, &schedule), MUSTER_OK);
        most = schedule.scratch_count > most ? schedule.scratch_count : most;
        muster_schedule_finish(&schedule);
    }
    muster_topology_finish(&topology);
    return most;
}

static uint64_t scratch_of(const char *name, uint32_t ranks, uint64_t count)
{
    return scratch_to(false, name, ranks, count);
}

static void a_ring_of_whole_buffers_stores_two_for_each_doubling_of_the_ranks(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
        uint32_t doublings = 1;
        while (UINT32_C(1) << doublings < ranks) {
            doublings++;
        }
        assert_in_range(scratch_of("ring_whole", ranks, COUNT), COUNT, 2 * doublings * COUNT);
    }
}

static void rank_0_stores_three_small_buffers_whatever_the_number_of_ranks(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        uint32_t waiting = ranks < 3 ? 0 : ranks < 5 ? ranks - 2 : 3;
        assert_int_equal(scratch_of("all_to_one", ranks, COUNT), waiting * COUNT);
        assert_int_equal(scratch_of("all_to_one", ranks, LARGE), 0);
    }
}

static void exchanges_store_what_they_cannot_reduce_yet(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        assert_in_range(scratch_of("bcube", ranks, COUNT), 0, COUNT / 2);
        assert_in_range(scratch_of("bcube", ranks, LARGE), 0, 2 * 16384);
        assert_in_range(scratch_of("recursive_doubling", ranks, COUNT), 0, 2 * COUNT);
    }
}

static void algorithms_that_reduce_on_arrival_need_no_scratch(void **state)
{
    (void)state;
    static const char *const names[] = {
        "ring", "ring_chunked", "bidirectional_ring", "halving_doubling", "swing", "double_tree"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
            assert_int_equal(scratch_of(names[i], ranks, COUNT), 0);
        }
    }
}

/* A chunk is sent while the next one arrives; the first is read from the input, and the last sum is
 * a result. Of large chunks only as much is stored as one piece more than a chunk. A further small
 * piece lets receives be posted early. */
static void check_ring(uint32_t ranks, uint64_t count)
{
    uint64_t chunk = (count + ranks - 1) / ranks;
    uint64_t pieces = ranks < 4 ? 1 : (count / ranks) >> 18;
    pieces = pieces < 1 ? 1 : pieces > 16 ? 16 : pieces;
    uint64_t piece = (chunk + pieces - 1) / pieces;
    uint64_t most = pieces + (piece <= 1 << 18 ? 2 : 1);
    most = pieces == 1 && ranks - 2 < most ? ranks - 2 : most;
    assert_in_range(scratch_to(true, "ring", ranks, count), most * (piece - 1), most * piece);
}

static void large_chunks_of_a_ring_need_little_more_than_one_of_them(void **state)
{
    (void)state;
    for (uint32_t ranks = 4; ranks <= RANKS_MAX; ranks++) {
        uint64_t count = (UINT64_C(1) << 21) * ranks;
        uint64_t chunk = count / ranks;
        assert_int_equal(scratch_to(true, "ring", ranks, count), chunk + chunk / 4);
        assert_int_equal(scratch_to(true, "ring", ranks, 16 * count), 16 * (chunk + chunk / 16));
    }
}

/* S: the elements of the call. */
static void inputs_are_kept_with_little_scratch(void **state)
{
    (void)state;
    const uint64_t counts[] = {COUNT, LARGE, 1000003, UINT64_C(1) << 32};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t count = counts[i];
        for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
            check_ring(ranks, count);
            bool power = (ranks & (ranks - 1)) == 0;
            uint64_t half = ranks == 2 ? 0 : (count + 1) / 2;
            uint64_t halves = scratch_to(true, "halving_doubling", ranks, count);
            assert_in_range(halves, 0, power ? half : count);
            assert_true(!power || halves == half);
            assert_int_equal(scratch_to(true, "recursive_doubling", ranks, count),
                             scratch_of("recursive_doubling", ranks, count));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_of_whole_buffers_stores_two_for_each_doubling_of_the_ranks),
        cmocka_unit_test(rank_0_stores_three_small_buffers_whatever_the_number_of_ranks),
        cmocka_unit_test(exchanges_store_what_they_cannot_reduce_yet),
        cmocka_unit_test(algorithms_that_reduce_on_arrival_need_no_scratch),
        cmocka_unit_test(large_chunks_of_a_ring_need_little_more_than_one_of_them),
        cmocka_unit_test(inputs_are_kept_with_little_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
