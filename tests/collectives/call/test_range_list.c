/* Lists of ranges: every wrong one is named, and a place in a list is the same byte as in a buffer
 * that has all the ranges one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/request_ranges.h"
#include "tests/support/schedules.h"
#include "worker/base/status.h"

enum { ROUNDS = 500, BYTES = 4096, RANGES_MAX = 40 };

static _Alignas(8) char memory[BYTES];

static void *at(size_t offset)
{
    return memory + offset;
}

static void assert_invalid(const muster_range *ranges, size_t count, const char *text)
{
    struct muster_range_list list = {.runs = NULL};
    uint64_t total = 7;
    muster_status status = muster_range_list_total(ranges, count, "ins", &total);
    if (status == MUSTER_OK) {
        status = muster_range_list_fill(&list, ranges, count, 4, "ins");
    } else {
        assert_int_equal(total, 7);
    }
    assert_int_equal(status, MUSTER_INVALID);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, muster_last_error());
    }
    muster_range_list_finish(&list);
}

static void test_each_wrong_range_is_named(void **state)
{
    (void)state;
    assert_invalid((muster_range[]){{at(0), 1}, {NULL, 2}}, 2, "range 1 of ins is NULL, with 2");
    assert_invalid((muster_range[]){{at(0), 1}, {at(6), 2}}, 2, "range 1 of ins begins at");
    assert_invalid((muster_range[]){{at(0), 1}, {at(6), 2}}, 2, "elements of 4 bytes");
    assert_invalid((muster_range[]){{at(8), 4}, {at(64), 1}, {at(0), 3}}, 3,
                   "ranges 2 and 0 of ins overlap");
    assert_invalid((muster_range[]){{at(8), 4}, {at(8), 4}}, 2, "overlap");
    assert_invalid((muster_range[]){{at(0), SIZE_MAX}}, 1, "over the limit of");
    assert_invalid((muster_range[]){{at(0), (size_t)1 << 60}, {at(8), 1}}, 2, "range 1 of ins");
    assert_invalid((muster_range[]){{(void *)(UINTPTR_MAX - 7), 4}}, 1, // NOLINT
                   "more than there is memory");
    assert_invalid(NULL, 3, "ins is NULL, with 3 ranges");
    assert_invalid((muster_range[]){{at(0), 1}}, MUSTER_RANGES_MAX + 1, "65536 are the most");
}

static void test_empty_ranges_are_left_out_and_neighbours_become_one_run(void **state)
{
    struct muster_range_list list = {.runs = NULL};
    const muster_range ranges[] = {{NULL, 0},  {at(0), 2}, {at(3), 0},
                                   {at(8), 1}, {at(4), 0}, {at(16), 5}};
    const muster_range nothing[] = {{NULL, 0}};
    (void)state;
    assert_int_equal(muster_range_list_fill(&list, ranges, 6, 4, "ins"), MUSTER_OK);
    assert_int_equal(list.count, 2);
    assert_ptr_equal(list.runs[0].address, at(0));
    assert_ptr_equal(list.runs[1].address, at(16));
    assert_int_equal(list.runs[1].begin_bytes, 12);
    assert_int_equal(list.runs[2].begin_bytes, 32);
    assert_int_equal(muster_range_list_fill(&list, nothing, 1, 4, "ins"), MUSTER_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(list.runs[0].begin_bytes, 0);
    assert_int_equal(muster_range_list_fill(&list, NULL, 0, 4, "ins"), MUSTER_OK);
    assert_int_equal(list.count, 0);
    muster_range_list_finish(&list);
}

/* Binds an allreduce of int32. */
static muster_status bind(const muster_range *ins, size_t in_count, const muster_range *outs,
                          size_t out_count, struct muster_bound_ranges *bound,
                          struct muster_request *ret_request)
{
    const struct muster_given_ranges given = {ins, outs, in_count, out_count};
    const struct muster_request request = {
        .collective = MUSTER_ALLREDUCE, .ranges = &given, .type = MUSTER_INT32};
    return muster_request_bind_ranges(&request, bound, ret_request);
}

static void test_both_sides_are_one_list_or_apart(void **state)
{
    struct muster_bound_ranges bound = {.in = {.runs = NULL}};
    struct muster_request request = {.count = 99};
    const muster_range two[] = {{at(0), 2}, {at(16), 2}};
    const muster_range three[] = {{at(0), 1}, {at(4), 1}, {at(16), 2}};
    const muster_range apart[] = {{at(32), 3}, {at(48), 1}};
    const muster_range partly[] = {{at(0), 2}, {at(48), 2}};
    const muster_range one[] = {{at(64), 4}};
    const muster_range fewer[] = {{at(32), 3}};
    (void)state;
    assert_int_equal(bind(two, 2, partly, 2, &bound, &request), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "allreduce: range 0 of ins overlaps range 0 of"));
    assert_int_equal(bind(two, 2, fewer, 1, &bound, &request), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "ins have 4 elements together, and outs 3"));
    assert_int_equal(request.count, 99); /* untouched so far */
    assert_int_equal(bind(two, 2, three, 3, &bound, &request), MUSTER_OK);
    assert_int_equal(request.count, 4);
    assert_non_null(request.in_ranges);
    assert_ptr_equal(request.in_ranges, request.out_ranges); /* the same memory, cut elsewhere */
    assert_int_equal(bind(two, 2, apart, 2, &bound, &request), MUSTER_OK);
    assert_ptr_not_equal(request.in_ranges, request.out_ranges);
    assert_int_equal(bind(two, 2, one, 1, &bound, &request), MUSTER_OK);
    assert_non_null(request.in_ranges);
    assert_null(request.out_ranges); /* an ordinary buffer */
    assert_ptr_equal(request.out, at(64));
    muster_bound_ranges_finish(&bound);
}

/* Cuts the memory at random; the order of the ranges in memory is not theirs in the list. */
static size_t cut(muster_range *ranges, uint64_t *random)
{
    size_t count = 1 + test_random(random) % RANGES_MAX;
    size_t next = 0;
    size_t turn = test_random(random) % count;
    for (size_t i = 0; i < count; i++) {
        size_t place = (i + turn) % count;
        ranges[place].count = test_random(random) % 12;
        ranges[place].address = at(next);
        next += 4 * (ranges[place].count + test_random(random) % 2);
    }
    return count;
}

/* The concatenation as a list of addresses, by the definition. */
static size_t flatten(const muster_range *ranges, size_t count, char **addresses)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < 4 * ranges[i].count; j++) {
            addresses[bytes++] = (char *)ranges[i].address + j;
        }
    }
    return bytes;
}

static void test_a_place_is_the_byte_of_the_concatenation(void **state)
{
    static char *addresses[BYTES];
    struct muster_range_list list = {.runs = NULL};
    uint64_t random = test_seed();
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        muster_range ranges[RANGES_MAX];
        size_t count = cut(ranges, &random);
        size_t bytes = flatten(ranges, count, addresses);
        uint64_t total = 0;
        assert_int_equal(muster_range_list_total(ranges, count, "ins", &total), MUSTER_OK);
        assert_int_equal(4 * total, bytes);
        assert_int_equal(muster_range_list_fill(&list, ranges, count, 4, "ins"), MUSTER_OK);
        for (size_t i = 0; i < bytes; i++) {
            const struct muster_place place = {.ranges = &list, .at_bytes = i};
            uint64_t size = bytes - i;
            assert_ptr_equal(muster_place_at(&place, &size), addresses[i]);
            assert_true(size > 0 && size <= bytes - i);
            assert_ptr_equal(addresses[i + size - 1], addresses[i] + size - 1);
            assert_true(i + size == bytes || addresses[i + size] != addresses[i] + size);
        }
    }
    muster_range_list_finish(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_wrong_range_is_named),
        cmocka_unit_test(test_empty_ranges_are_left_out_and_neighbours_become_one_run),
        cmocka_unit_test(test_both_sides_are_one_list_or_apart),
        cmocka_unit_test(test_a_place_is_the_byte_of_the_concatenation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
