/* In what two lists of members differ: all pairs of lists of up to four ranks out of five, beside a
 * plain search. */
#include "worker/communicator/set_difference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5, LENGTH_MAX = 4, LISTS_MAX = 300 };

static uint32_t lists[LISTS_MAX][LENGTH_MAX];
static uint32_t counts[LISTS_MAX];
static uint32_t list_count;

static void add_lists(uint32_t *list, uint32_t count)
{
    assert_true(list_count < LISTS_MAX);
    memcpy(lists[list_count], list, LENGTH_MAX * sizeof *list);
    counts[list_count++] = count;
    for (uint32_t rank = 0; count < LENGTH_MAX && rank < RANKS; rank++) {
        bool is_new = true;
        for (uint32_t i = 0; i < count; i++) {
            is_new = is_new && list[i] != rank;
        }
        if (is_new) {
            list[count] = rank;
            add_lists(list, count + 1);
        }
    }
}

static bool has(uint32_t list, uint32_t rank)
{
    for (uint32_t i = 0; i < counts[list]; i++) {
        if (lists[list][i] == rank) {
            return true;
        }
    }
    return false;
}

/* Owner 10 has list a, owner 11 has list b. */
static void expected_text(uint32_t a, uint32_t b, char *text, size_t size)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (has(a, rank) != has(b, rank)) {
            bool in_a = has(a, rank);
            (void)snprintf(
                text, size,
                "ranks 10 and 11 have different lists: rank %u is in that of rank %d (%u "
                "members), not in that of rank %d (%u members)",
                rank, in_a ? 10 : 11, in_a ? counts[a] : counts[b], in_a ? 11 : 10,
                in_a ? counts[b] : counts[a]);
            return;
        }
    }
    for (uint32_t i = 0; i < counts[a]; i++) {
        if (lists[a][i] != lists[b][i]) {
            (void)snprintf(text, size,
                           "ranks 10 and 11 have the same %u members in different orders: place %u "
                           "is rank %u at rank 10, and rank %u at rank 11",
                           counts[a], i, lists[a][i], lists[b][i]);
            return;
        }
    }
    text[0] = '\0';
}

static void every_difference_is_named_alike_by_both(void **state)
{
    (void)state;
    uint32_t list[LENGTH_MAX] = {0};
    uint32_t different = 0;
    add_lists(list, 0);
    for (uint32_t a = 0; a < list_count; a++) {
        for (uint32_t b = 0; b < list_count; b++) {
            const struct muster_named_list one = {10, lists[a], counts[a]};
            const struct muster_named_list other = {11, lists[b], counts[b]};
            char wanted[256] = "";
            char here[256] = "";
            char there[256] = "";
            expected_text(a, b, wanted, sizeof wanted);
            bool differ = muster_set_difference(&one, &other, here, sizeof here);
            assert_int_equal(muster_set_difference(&other, &one, there, sizeof there), differ);
            assert_int_equal(differ, wanted[0] != '\0');
            assert_string_equal(here, wanted);
            assert_string_equal(there, wanted);
            different += differ;
        }
    }
    assert_int_equal(list_count, 1 + 5 + 20 + 60 + 120);
    assert_int_equal(different, list_count * (list_count - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_difference_is_named_alike_by_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
