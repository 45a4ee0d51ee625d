/* Reproducible sums, whose order is that of the contributors: without them the bits depend on the
 * ranks' places, with them a part of the data has the bits of the whole, and wrong requests are
 * refused. test_same_bits.c checks which bits they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/group.h"
#include "tests/support/schedules.h"

enum { CONTRIBUTORS = 7, COUNT = 3001 };

/* One call of all members; the logical number of a rank is 10 times its contributor. */
struct sums {
    const char *algorithm;
    bool reproducible;
    size_t count;
    uint64_t seed;
    bool first; /* rank 0's result is to be stored as the reference */
    float reference[COUNT];
    float result[COUNT];
};

/* The values have very different sizes, so that the rounding errors depend on the order. */
static void fill_input(const struct sums *sums, uint32_t contributor, float *data)
{
    uint64_t random = sums->seed + contributor + 1;
    for (size_t i = 0; i < COUNT; i++) {
        double value = (double)(test_random(&random) >> 40) - 8e6;
        for (uint32_t scale = test_random_below(&random, 12); scale > 0; scale--) {
            value *= 17.0;
        }
        data[i] = (float)value;
    }
}

static void allreduce(struct group_member *member, void *argument)
{
    struct sums *sums = argument;
    float in[COUNT];
    float out[COUNT] = {0};
    const struct muster_request request = {.collective = MUSTER_ALLREDUCE,
                                           .in = in,
                                           .out = out,
                                           .count = sums->count,
                                           .type = MUSTER_FLOAT32,
                                           .op = MUSTER_SUM,
                                           .algorithm = sums->algorithm,
                                           .reproducible = sums->reproducible,
                                           .deadline_ns = group_deadline()};
    fill_input(sums, member->group->orders[member->rank] / 10, in);
    if (muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL) != MUSTER_OK) {
        group_fail(member, "%s: %s", sums->algorithm != NULL ? sums->algorithm : "by cost",
                   muster_last_error());
    }
    if (member->rank == 0) {
        memcpy(sums->result, out, sizeof out);
    }
}

static bool is_same(const struct sums *sums)
{
    return memcmp(sums->reference, sums->result, sizeof sums->reference) == 0;
}

/* Starts ranks with the logical numbers 0, 10, 20, ... in a random order, on the hosts of a layout.
 */
static void start(struct group *group, unsigned layout, uint64_t *random)
{
    static const uint32_t hosts[][4] = {{7}, {4, 3}, {1, 5, 1}, {2, 2, 2, 1}};
    uint32_t orders[CONTRIBUTORS];
    uint32_t count = 0;
    while (count < 4 && hosts[layout][count] > 0) {
        count++;
    }
    for (uint32_t i = 0; i < CONTRIBUTORS; i++) {
        uint32_t other = test_random_below(random, i + 1);
        orders[i] = orders[other];
        orders[other] = 10 * i;
    }
    group_start_ordered(group, GROUP_INPROC, count, hosts[layout], orders, 0);
}

/* Runs all algorithms that fit; returns how many results differ from the reference. */
static int count_differences(struct group *group, struct sums *sums)
{
    int differences = 0;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_plan plan = {
            .collective = MUSTER_ALLREDUCE, .topology = &group->topology, .count = COUNT};
        if (muster_algorithms[i].collective != MUSTER_ALLREDUCE || !test_fits(i, &plan)) {
            continue;
        }
        sums->algorithm = muster_algorithms[i].name;
        group_each(group, allreduce, sums);
        if (sums->first) {
            memcpy(sums->reference, sums->result, sizeof sums->reference);
            sums->first = false;
        }
        differences += is_same(sums) ? 0 : 1;
    }
    return differences;
}

static int count_differences_over_layouts(struct sums *sums, uint64_t seed)
{
    int differences = 0;
    uint64_t random = seed;
    for (unsigned layout = 0; layout < 4; layout++) {
        for (int times = 0; times < 2; times++) {
            struct group group;
            start(&group, layout, &random);
            differences += count_differences(&group, sums);
            group_finish(&group);
        }
    }
    return differences;
}

static void without_reproducible_the_bits_depend_on_layout_and_algorithm(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    struct sums *sums = calloc(1, sizeof *sums);
    assert_non_null(sums);
    *sums = (struct sums){.count = COUNT, .seed = seed, .first = true};
    assert_true(count_differences_over_layouts(sums, seed) > 0);
    free(sums);
}

/* The algorithm is chosen by cost, and each count divides the data among the ranks in another way.
 */
static void a_part_of_the_data_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    float whole[COUNT];
    static const size_t counts[] = {COUNT, COUNT / 2, 100, 7, 1};
    uint64_t random = seed;
    struct group group;
    start(&group, 1, &random);
    struct sums *sums = calloc(1, sizeof *sums);
    assert_non_null(sums);
    *sums = (struct sums){.reproducible = true, .seed = seed};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        sums->count = counts[i];
        group_each(&group, allreduce, sums);
        if (i == 0) {
            memcpy(whole, sums->result, sizeof whole);
        }
        assert_memory_equal(whole, sums->result, counts[i] * sizeof(float));
    }
    free(sums);
    group_finish(&group);
}

struct refusal {
    muster_status statuses[GROUP_SIZE_MAX];
    char texts[GROUP_SIZE_MAX][MUSTER_ERROR_MAX];
    struct muster_request requests[GROUP_SIZE_MAX];
};

static void call_and_record(struct group_member *member, void *argument)
{
    struct refusal *refusal = argument;
    float in = 1;
    float out = 0;
    struct muster_request request = refusal->requests[member->rank];
    request.collective = MUSTER_ALLREDUCE;
    request.in = &in;
    request.out = &out;
    request.count = 1;
    request.deadline_ns = group_deadline();
    refusal->statuses[member->rank] =
        muster_context_run(member->contexts[MUSTER_GLOBAL], &request, NULL);
    (void)snprintf(refusal->texts[member->rank], MUSTER_ERROR_MAX, "%s", muster_last_error());
}

static void algorithms_without_an_order_are_refused_and_those_that_fit_are_named(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 1};
    static const char *const forced[] = {NULL, "ring"};
    for (size_t i = 0; i < 2; i++) {
        struct group group;
        struct refusal *refusal = calloc(1, sizeof *refusal);
        assert_non_null(refusal);
        group_start(&group, GROUP_INPROC, 2, sizes, forced[i]);
        for (uint32_t rank = 0; rank < 3; rank++) {
            refusal->requests[rank].reproducible = true;
            refusal->requests[rank].algorithm = forced[i] == NULL ? "ring" : NULL;
        }
        group_each(&group, call_and_record, refusal);
        group_finish(&group);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(refusal->statuses[rank], MUSTER_INVALID);
            assert_non_null(strstr(refusal->texts[rank], "algorithm ring does not fit"));
            assert_non_null(
                strstr(refusal->texts[rank], "these fit: ring_whole, halving_doubling"));
        }
        free(refusal);
    }
}

static void a_disagreement_about_reproducible_is_an_error_on_all_members(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2};
    struct group group;
    struct refusal *refusal = calloc(1, sizeof *refusal);
    assert_non_null(refusal);
    group_start(&group, GROUP_INPROC, 1, sizes, NULL);
    refusal->requests[0] =
        (struct muster_request){.reproducible = true, .algorithm = "halving_doubling"};
    refusal->requests[1] = (struct muster_request){.algorithm = "halving_doubling"};
    group_each(&group, call_and_record, refusal);
    group_finish(&group);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(refusal->statuses[rank], MUSTER_INVALID);
        assert_non_null(strstr(refusal->texts[rank], "reproducible "));
    }
    free(refusal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_reproducible_the_bits_depend_on_layout_and_algorithm),
        cmocka_unit_test(a_part_of_the_data_has_the_bits_of_the_whole),
        cmocka_unit_test(algorithms_without_an_order_are_refused_and_those_that_fit_are_named),
        cmocka_unit_test(a_disagreement_about_reproducible_is_an_error_on_all_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
