/* Gloo's and NCCL's names of algorithms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/algorithms/algorithm.h"
#include "worker/base/status.h"

static const struct {
    enum muster_collective collective;
    const char *alias, *name;
} expected[] = {
    {MUSTER_ALLREDUCE, "allreduce_ring", "ring_whole"},
    {MUSTER_ALLREDUCE, "allreduce_ring_chunked", "ring_chunked"},
    {MUSTER_ALLREDUCE, "allreduce_halving_doubling", "halving_doubling"},
    {MUSTER_ALLREDUCE, "allreduce_bcube", "bcube"},
    {MUSTER_ALLREDUCE, "Ring", "ring"},
    {MUSTER_ALLREDUCE, "RING", "ring"},
    {MUSTER_ALLREDUCE, "Tree", "double_tree"},
    {MUSTER_ALLREDUCE, "TREE", "double_tree"},
    {MUSTER_REDUCE_SCATTER, "reduce_scatter", "halving_doubling"},
    {MUSTER_REDUCE_SCATTER, "Ring", "ring"},
    {MUSTER_REDUCE_SCATTER, "RING", "ring"},
    {MUSTER_REDUCE_SCATTER, "PAT", "pat"},
    {MUSTER_ALLGATHER, "allgather_ring", "ring"},
    {MUSTER_ALLGATHER, "Ring", "ring"},
    {MUSTER_ALLGATHER, "RING", "ring"},
    {MUSTER_ALLGATHER, "PAT", "pat"},
    {MUSTER_BROADCAST, "broadcast_one_to_all", "one_to_all"},
    {MUSTER_BROADCAST, "Ring", "pipelined"},
    {MUSTER_BROADCAST, "RING", "pipelined"},
    {MUSTER_BARRIER, "barrier_all_to_all", "all_to_all"},
    {MUSTER_BARRIER, "barrier_all_to_one", "all_to_one"},
    {MUSTER_PAIRWISE_EXCHANGE, "pairwise_exchange", "pairwise_exchange"},
};
enum { EXPECTED = sizeof expected / sizeof expected[0] };

/* Finds the algorithm and prints its name. */
static const char *name_of(enum muster_collective collective, const char *alias)
{
    static char name[MUSTER_ALGORITHM_NAME_SIZE];
    size_t algorithm = 0;
    if (muster_algorithm_find(collective, alias, &algorithm) != MUSTER_OK) {
        fail_msg("%s", muster_last_error());
    }
    muster_algorithm_print(algorithm, name, sizeof name);
    return name;
}

static void refuse(enum muster_collective collective, const char *alias, const char *text)
{
    size_t algorithm = 77;
    assert_int_equal(muster_algorithm_find(collective, alias, &algorithm), MUSTER_INVALID);
    assert_int_equal(algorithm, 77);
    if (strstr(muster_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", muster_last_error(), text);
    }
}

static void every_alias_finds_its_algorithm(void **state)
{
    (void)state;
    for (size_t i = 0; i < EXPECTED; i++) {
        assert_string_equal(name_of(expected[i].collective, expected[i].alias), expected[i].name);
    }
}

static bool is_expected(const struct muster_algorithm *row, const char *alias)
{
    for (size_t i = 0; i < EXPECTED; i++) {
        if (expected[i].collective == row->collective && strcmp(expected[i].name, row->name) == 0 &&
            strcmp(expected[i].alias, alias) == 0) {
            return true;
        }
    }
    return false;
}

static void the_table_has_no_other_aliases_and_none_of_two_algorithms(void **state)
{
    (void)state;
    size_t count = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        for (size_t j = 0; j < MUSTER_ALIASES_MAX && row->aliases[j].name != NULL; j++) {
            const struct muster_alias *alias = &row->aliases[j];
            assert_non_null(alias->library);
            if (!is_expected(row, alias->name)) {
                fail_msg("%s %s: %s", muster_collective_name(row->collective), row->name,
                         alias->name);
            }
            assert_string_equal(name_of(row->collective, alias->name), row->name);
            count++;
        }
    }
    assert_int_equal(count, EXPECTED);
}

static void an_alias_of_another_collective_is_refused(void **state)
{
    (void)state;
    refuse(MUSTER_ALLREDUCE, "broadcast_one_to_all",
           "allreduce has no algorithm \"broadcast_one_to_all\"; it has ring, ring_whole, ");
    refuse(MUSTER_BROADCAST, "allreduce_ring_chunked", "it has binomial, ");
    refuse(MUSTER_ALLTOALL, "Ring", "alltoall has no algorithm \"Ring\"");
}

static void aliases_are_compared_as_they_are_written(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "ALLREDUCE_RING",          "rING",    "tree", "allreduce_rin",        "allreduce_", "pat",
        "allreduce_ring_chunked_", "COLLNET", "NVLS", "Gloo's allreduce_ring"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuse(MUSTER_ALLREDUCE, wrong[i], "allreduce has no algorithm");
    }
}

static void an_alias_takes_the_parameters_of_its_algorithm(void **state)
{
    (void)state;
    assert_string_equal(name_of(MUSTER_ALLREDUCE, "allreduce_bcube(base=8)"), "bcube(base=8)");
    refuse(MUSTER_ALLREDUCE, "allreduce_bcube(base=17)", "algorithm bcube: \"base=17\"");
    refuse(MUSTER_ALLREDUCE, "allreduce_ring(base=2)", "ring_whole takes nothing in brackets");
}

static void aliases_are_printed_with_their_library(void **state)
{
    (void)state;
    char text[128];
    size_t algorithm = 0;
    assert_int_equal(muster_algorithm_find(MUSTER_ALLGATHER, "ring", &algorithm), MUSTER_OK);
    muster_algorithm_print_aliases(&muster_algorithms[algorithm], text, sizeof text);
    assert_string_equal(text, "Gloo's allgather_ring, NCCL's Ring, RING");
    muster_algorithm_print_aliases(&muster_algorithms[algorithm], text, 9);
    assert_string_equal(text, "Gloo's a");
    assert_int_equal(muster_algorithm_find(MUSTER_ALLGATHER, "bruck", &algorithm), MUSTER_OK);
    muster_algorithm_print_aliases(&muster_algorithms[algorithm], text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alias_finds_its_algorithm),
        cmocka_unit_test(the_table_has_no_other_aliases_and_none_of_two_algorithms),
        cmocka_unit_test(an_alias_of_another_collective_is_refused),
        cmocka_unit_test(aliases_are_compared_as_they_are_written),
        cmocka_unit_test(an_alias_takes_the_parameters_of_its_algorithm),
        cmocka_unit_test(aliases_are_printed_with_their_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
