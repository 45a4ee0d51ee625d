/* Pairwise exchanges with every number of steps, and the parameter for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/interpreter.h"
#include "worker/base/status.h"

static size_t with_steps(uint32_t steps)
{
    char name[40];
    char printed[MUSTER_ALGORITHM_NAME_SIZE];
    size_t algorithm = 0;
    (void)snprintf(name, sizeof name, "pairwise_exchange(steps=%u)", steps);
    assert_int_equal(muster_algorithm_find(MUSTER_PAIRWISE_EXCHANGE, name, &algorithm), MUSTER_OK);
    muster_algorithm_print(algorithm, printed, sizeof printed);
    assert_string_equal(printed, name);
    return algorithm;
}

static uint32_t log2_of(uint32_t ranks)
{
    uint32_t result = 0;
    for (; ranks > 1; ranks /= 2) {
        result++;
    }
    return result;
}

static void prove(uint32_t steps, uint32_t ranks, uint64_t count, bool in_place, uint64_t *random)
{
    struct muster_topology topology = test_topology_even(ranks, ranks > 8 ? 3 : 1);
    const struct muster_plan plan = {.collective = MUSTER_PAIRWISE_EXCHANGE,
                                     .topology = &topology,
                                     .count = count,
                                     .in_place = in_place};
    size_t algorithm = with_steps(steps);
    struct test_job job = test_job_create(algorithm, &plan, false);
    const struct muster_check_result result = test_prove(&job);
    struct muster_formula formula;
    muster_algorithm_formula(algorithm, &plan, &formula);
    char why[MUSTER_CHECK_TEXT_MAX] = "";
    if (!result.proven || result.rounds != formula.rounds ||
        result.elements_sent_max != formula.elements ||
        (ranks <= 16 && !test_execute(&job, job.schedules, in_place, random, why))) {
        fail_msg("steps %u, %u ranks, count %llu: %u rounds of %u, %llu elements of %llu: %s %s",
                 steps, ranks, (unsigned long long)count, result.rounds, formula.rounds,
                 (unsigned long long)result.elements_sent_max, (unsigned long long)formula.elements,
                 result.why, why);
    }
    test_job_finish(&job);
    muster_topology_finish(&topology);
}

static void every_number_of_steps_is_proven_for_2_to_64_ranks(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (uint32_t ranks = 2; ranks <= 64; ranks++) {
        const uint64_t counts[] = {0, 1, ranks + 1, 3000};
        for (uint32_t steps = 1; steps <= log2_of(ranks); steps++) {
            prove(steps, ranks, counts[(ranks + steps) % 4], false, &random);
            prove(steps, ranks, counts[(ranks + steps + 1) % 4], true, &random);
        }
    }
}

/* Eight ranks, two steps: half of the data in each. */
static void step_k_sends_its_part_to_the_rank_that_differs_in_bit_k(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(8, 1);
    const struct muster_plan plan = {
        .collective = MUSTER_PAIRWISE_EXCHANGE, .topology = &topology, .count = 10};
    struct test_job job = test_job_create(with_steps(2), &plan, false);
    for (uint32_t rank = 0; rank < 8; rank++) {
        uint32_t sent = 0;
        for (size_t i = 0; i < job.schedules[rank].step_count; i++) {
            const struct muster_step *step = &job.schedules[rank].steps[i];
            if (step->kind == MUSTER_STEP_SEND) {
                assert_int_equal(step->peer, rank ^ (1U << sent));
                assert_int_equal(step->round, sent);
                assert_int_equal(step->span.count, 5);
                assert_int_equal(step->span.offset, 5 * sent);
                sent++;
            }
        }
        assert_int_equal(sent, 2);
    }
    test_job_finish(&job);
    muster_topology_finish(&topology);
}

static void without_a_number_there_are_as_many_steps_as_can_be(void **state)
{
    (void)state;
    const struct {
        uint32_t ranks, steps;
    } cases[] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 2}, {8, 3}, {63, 5}, {64, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct muster_shape shape = {.collective = MUSTER_PAIRWISE_EXCHANGE,
                                           .ranks = cases[i].ranks};
        assert_int_equal(muster_shape_steps(&shape), cases[i].steps);
        assert_int_equal(muster_pairwise_steps_max(cases[i].ranks), cases[i].steps);
    }
    assert_int_equal(muster_pairwise_steps_max(UINT32_MAX), 31);
}

static void more_steps_than_bits_of_a_rank_do_not_fit(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology_even(7, 1);
    const struct muster_plan plan = {
        .collective = MUSTER_PAIRWISE_EXCHANGE, .topology = &topology, .count = 10};
    assert_int_equal(muster_plan_check(with_steps(2), &plan), MUSTER_OK);
    assert_int_equal(muster_plan_check(with_steps(3), &plan), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "on 7 ranks its steps must be from 1 to 2"));
    muster_topology_finish(&topology);
}

static void wrong_parameters_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"()",         "(steps)",    "(steps=)",  "(steps=0)",
                                        "(steps=32)", "(steps=-1)", "(step=2)",  "(steps=2x)",
                                        "(base=2)",   "(steps=2",   "(steps= 2)"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char name[64];
        size_t algorithm = 77;
        (void)snprintf(name, sizeof name, "pairwise_exchange%s", wrong[i]);
        assert_int_equal(muster_algorithm_find(MUSTER_PAIRWISE_EXCHANGE, name, &algorithm),
                         MUSTER_INVALID);
        assert_int_equal(algorithm, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_steps_is_proven_for_2_to_64_ranks),
        cmocka_unit_test(step_k_sends_its_part_to_the_rank_that_differs_in_bit_k),
        cmocka_unit_test(without_a_number_there_are_as_many_steps_as_can_be),
        cmocka_unit_test(more_steps_than_bits_of_a_rank_do_not_fit),
        cmocka_unit_test(wrong_parameters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
