/* Parts of the checker against simple implementations: sorting, sets of ranks, cells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/check/cells.h"
#include "collectives/check/sort.h"
#include "tests/support/schedules.h"

enum { ITEMS = 500, RANKS_MAX = 200, TERMS = 400, ELEMENTS = 60, CUTS = 12 };

static void sorting_keeps_the_order_of_equal_keys(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    static struct muster_sort_item items[ITEMS];
    static struct muster_sort_item spare[ITEMS];
    for (int round = 0; round < 300; round++) {
        size_t count = test_random_below(&random, ITEMS);
        unsigned shift = test_random_below(&random, 64); /* few or many values */
        for (size_t i = 0; i < count; i++) {
            items[i] = (struct muster_sort_item){.key = test_random(&random) >> shift, .value = i};
        }
        muster_sort(items, spare, count);
        uint64_t seen = 0;
        for (size_t i = 0; i < count; i++) {
            seen += items[i].value + 1;
            bool rises = i == 0 || items[i - 1].key < items[i].key ||
                         (items[i - 1].key == items[i].key && items[i - 1].value < items[i].value);
            assert_true(rises);
        }
        assert_int_equal(seen, count * (count + 1) / 2);
    }
}

/* The ranks that a term counts, one byte a rank. */
struct counted {
    bool ranks[RANKS_MAX];
};

static bool share_a_rank(const struct counted *one, const struct counted *other, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (one->ranks[rank] && other->ranks[rank]) {
            return true;
        }
    }
    return false;
}

static uint32_t unite(const struct counted *one, const struct counted *other, uint32_t ranks,
                      struct counted *ret_both)
{
    uint32_t members = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        ret_both->ranks[rank] = one->ranks[rank] || other->ranks[rank];
        members += ret_both->ranks[rank] ? 1 : 0;
    }
    return members;
}

/* Sums of terms, chosen so that consecutive ranks are frequent. */
static void add_terms(uint32_t ranks, uint64_t *random)
{
    struct muster_terms terms;
    assert_int_equal(muster_terms_init(ranks, &terms), MUSTER_OK);
    struct counted *counted = calloc(1 + (size_t)ranks + TERMS, sizeof *counted);
    assert_non_null(counted);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        counted[muster_terms_leaf(rank)].ranks[rank] = true;
    }
    uint32_t known = ranks + 1;
    uint32_t recent = 1;
    for (int i = 0; i < TERMS; i++) {
        uint32_t left =
            test_random_below(random, 3) == 0 ? 1 + test_random_below(random, known - 1) : recent;
        uint32_t right =
            1 + test_random_below(random, test_random_below(random, 2) == 0 ? known - 1 : ranks);
        uint32_t sum = 0;
        muster_status status = muster_terms_add(&terms, left, right, &sum);
        bool twice = share_a_rank(&counted[left], &counted[right], ranks);
        assert_int_equal(status, twice ? MUSTER_INVALID : MUSTER_OK);
        if (!twice) {
            uint32_t members = unite(&counted[left], &counted[right], ranks, &counted[sum]);
            assert_int_equal(muster_terms_members(&terms, sum), members);
            assert_true(muster_terms_is_full(&terms, sum) == (members == ranks));
            known = sum == known ? known + 1 : known;
            recent = members == ranks ? 1 + test_random_below(random, ranks) : sum;
        }
    }
    free(counted);
    muster_terms_finish(&terms);
}

static void a_term_counts_the_ranks_of_its_parts_and_none_twice(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int round = 0; round < 200; round++) {
        add_terms(1 + test_random_below(&random, RANKS_MAX), &random);
    }
}

/* One element of a rank's memory, in the simple implementation. */
struct element {
    uint64_t origin;
    uint32_t term;
};

/* Draws cuts in any order; some may be equal. */
static void make_cuts(uint64_t *random, uint64_t *ret_cuts)
{
    for (size_t i = 0; i < CUTS; i++) {
        ret_cuts[i] = test_random_below(random, ELEMENTS + 1);
    }
    ret_cuts[test_random_below(random, CUTS)] = 0;
}

static void make_part(uint64_t count, uint64_t *random, struct muster_element_ranges *part)
{
    muster_element_ranges_clear(part);
    for (uint64_t filled = 0; filled < count;) {
        uint64_t some = 1 + test_random_below(random, (uint32_t)(count - filled));
        assert_int_equal(muster_element_ranges_append(part, some, test_random_below(random, 1000),
                                                      1 + test_random_below(random, 3)),
                         MUSTER_OK);
        filled += some;
    }
}

/* The part must equal the elements, in as few ranges as possible. */
static void compare(const struct muster_element_ranges *part, const struct element *elements,
                    uint64_t count)
{
    uint64_t at = 0;
    for (size_t i = 0; i < part->used; i++) {
        const struct muster_element_range *range = &part->items[i];
        assert_int_equal(range->begin, at);
        for (uint64_t k = 0; k < range->count; k++, at++) {
            assert_int_equal(range->term, elements[at].term);
            assert_true(range->term == MUSTER_TERM_NONE ||
                        range->origin + k == elements[at].origin);
        }
        bool joins = i > 0 && range->term == range[-1].term &&
                     (range->term == MUSTER_TERM_NONE ||
                      range->origin == range[-1].origin + range[-1].count);
        assert_false(joins);
    }
    assert_int_equal(at, count);
}

static void put(const struct muster_element_ranges *part, struct element *elements)
{
    for (size_t i = 0; i < part->used; i++) {
        for (uint64_t k = 0; k < part->items[i].count; k++) {
            *elements++ =
                (struct element){.origin = part->items[i].origin + k, .term = part->items[i].term};
        }
    }
}

static bool are_unwritten_or(const struct element *elements,
                             const struct muster_element_range *range)
{
    for (uint64_t i = 0; i < range->count; i++) {
        if (elements[i].term != MUSTER_TERM_NONE &&
            (elements[i].term != range->term || elements[i].origin != range->origin + i)) {
            return false;
        }
    }
    return true;
}

/* Writes, reads and compares, from one cut to another. */
static void use_cells(struct muster_cells *cells, const uint64_t *cuts, const uint32_t *numbers,
                      uint64_t *random)
{
    struct element elements[ELEMENTS + 1] = {0};
    struct muster_element_ranges part = {0};
    for (int i = 0; i < 60; i++) {
        uint32_t one = test_random_below(random, CUTS);
        uint32_t other = test_random_below(random, CUTS);
        uint32_t from = cuts[one] < cuts[other] ? one : other;
        uint64_t begin = cuts[from];
        uint64_t count = cuts[from == one ? other : one] - begin;
        make_part(count, random, &part);
        if (test_random_below(random, 2) == 0) {
            assert_int_equal(muster_cells_write(cells, numbers[from], &part), MUSTER_OK);
            put(&part, &elements[begin]);
        }
        struct muster_element_range range = {.count = count, .origin = begin, .term = 1};
        range = part.used == 1 ? part.items[0] : range;
        assert_true(muster_cells_are_unwritten_or(cells, numbers[from], &range) ==
                    are_unwritten_or(&elements[begin], &range));
        assert_int_equal(muster_cells_read(cells, numbers[from], count, &part), MUSTER_OK);
        compare(&part, &elements[begin], count);
    }
    muster_element_ranges_finish(&part);
}

static void cells_hold_what_was_written(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int round = 0; round < 500; round++) {
        uint64_t cuts[CUTS];
        uint32_t numbers[CUTS];
        make_cuts(&random, cuts);
        struct muster_cells cells;
        assert_int_equal(muster_cells_init(cuts, CUTS, numbers, &cells), MUSTER_OK);
        use_cells(&cells, cuts, numbers, &random);
        muster_cells_finish(&cells);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorting_keeps_the_order_of_equal_keys),
        cmocka_unit_test(a_term_counts_the_ranks_of_its_parts_and_none_twice),
        cmocka_unit_test(cells_hold_what_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
