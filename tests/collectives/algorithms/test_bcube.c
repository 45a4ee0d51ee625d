/* BCube allreduces with every base, and the parameter for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

enum { BASE_MAX = 16 };

static size_t with_base(uint32_t base)
{
    char name[32];
    size_t algorithm = 0;
    (void)snprintf(name, sizeof name, "bcube(base=%u)", base);
    assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, name, &algorithm), MUSTER_OK);
    char printed[MUSTER_ALGORITHM_NAME_SIZE];
    muster_algorithm_print(algorithm, printed, sizeof printed);
    assert_string_equal(printed, name);
    return algorithm;
}

static void prove(uint32_t base, uint32_t ranks, uint32_t hosts, uint64_t count)
{
    size_t algorithm = with_base(base);
    struct muster_topology topology = test_topology_even(ranks, hosts);
    const struct muster_plan plan = {
        .collective = MUSTER_ALLREDUCE, .topology = &topology, .count = count};
    struct test_job job = test_job_create(algorithm, &plan, false);
    struct muster_check_result result = test_prove(&job);
    struct muster_formula formula;
    muster_algorithm_formula(algorithm, &plan, &formula);
    if (!result.proven || result.rounds != formula.rounds ||
        result.elements_sent_max != formula.elements) {
        fail_msg("base %u, %u ranks, count %llu: %u rounds of %u, %llu elements of %llu", base,
                 ranks, (unsigned long long)count, result.rounds, formula.rounds,
                 (unsigned long long)result.elements_sent_max,
                 (unsigned long long)formula.elements);
    }
    test_job_finish(&job);
    muster_topology_finish(&topology);
}

static void every_base_is_proven_for_1_to_64_ranks(void **state)
{
    (void)state;
    for (uint32_t base = 2; base <= BASE_MAX; base++) {
        for (uint32_t ranks = 1; ranks <= 64; ranks++) {
            const uint64_t counts[] = {0, 1, ranks - 1, ranks, 3 * ranks + 2, 1000003};
            prove(base, ranks, ranks > 8 ? 3 : 1, counts[(base + ranks) % 6]);
        }
    }
}

static void one_digit_for_all_ranks_takes_the_fewest_rounds_of_messages(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(13, 1);
    const struct muster_plan plan = {.collective = MUSTER_ALLREDUCE, .topology = &topology};
    struct muster_formula formula;
    muster_algorithm_formula(with_base(13), &plan, &formula);
    assert_int_equal(formula.rounds, 2);
    muster_topology_finish(&topology);
}

static void wrong_bases_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"bcube()",        "bcube(base=)",   "bcube(base=1)",
                                        "bcube(base=17)", "bcube(base=4x)", "bcube(bass=4)",
                                        "bcube(base=-4)", "bcube(4)"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t algorithm = 77;
        assert_int_equal(muster_algorithm_find(MUSTER_ALLREDUCE, wrong[i], &algorithm),
                         MUSTER_INVALID);
        assert_int_equal(algorithm, 77);
        assert_non_null(strstr(muster_last_error(), "must be base= and a number from 2 to 16"));
    }
    struct muster_topology topology = test_topology_even(4, 1);
    const struct muster_plan plan = {.collective = MUSTER_ALLREDUCE, .topology = &topology};
    /* As it may come from the wire. */
    assert_int_equal(muster_plan_check(with_base(16) + MUSTER_ALGORITHM_ROWS_MAX, &plan),
                     MUSTER_INVALID);
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_base_is_proven_for_1_to_64_ranks),
        cmocka_unit_test(one_digit_for_all_ranks_takes_the_fewest_rounds_of_messages),
        cmocka_unit_test(wrong_bases_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
