/* The algorithm override: texts, and what they set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "collectives/select/algorithm_override.h"
#include "worker/base/status.h"

static size_t number(enum muster_collective collective, const char *name)
{
    size_t algorithm;
    assert_int_equal(muster_algorithm_find(collective, name, &algorithm), MUSTER_OK);
    return algorithm;
}

static struct muster_algorithm_override parse(const char *text)
{
    struct muster_algorithm_override override;
    if (muster_algorithm_override_parse(text, &override) != MUSTER_OK) {
        fail_msg("\"%s\": %s", text, muster_last_error());
    }
    return override;
}

static void expect_set(const struct muster_algorithm_override *override,
                       enum muster_collective collective, size_t algorithm)
{
    assert_true(override->by_collective[collective].is_set);
    assert_int_equal(override->by_collective[collective].algorithm, algorithm);
}

static void refuse(const char *text, const char *word)
{
    struct muster_algorithm_override override;
    assert_int_equal(muster_algorithm_override_parse(text, &override), MUSTER_INVALID);
    if (strstr(muster_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), word);
    }
}

static void a_name_alone_is_for_all_collectives_that_have_it(void **state)
{
    (void)state;
    struct muster_algorithm_override override = parse("ring");
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        if (strcmp(row->name, "ring") == 0) {
            expect_set(&override, row->collective, i);
        }
    }
    assert_false(override.by_collective[MUSTER_BROADCAST].is_set);
    override = parse("recursive_doubling,ring");
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, "ring"));
}

static void a_collective_can_have_an_override_of_its_own(void **state)
{
    (void)state;
    struct muster_algorithm_override override =
        parse("allreduce=recursive_doubling,broadcast=binomial");
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, "recursive_doubling"));
    expect_set(&override, MUSTER_BROADCAST, number(MUSTER_BROADCAST, "binomial"));
    assert_false(override.by_collective[MUSTER_ALLGATHER].is_set);
}

static void an_alias_sets_the_algorithm_of_the_collectives_that_have_it(void **state)
{
    (void)state;
    struct muster_algorithm_override override = parse("broadcast_one_to_all");
    expect_set(&override, MUSTER_BROADCAST, number(MUSTER_BROADCAST, "one_to_all"));
    assert_false(override.by_collective[MUSTER_ALLREDUCE].is_set);
    override = parse("RING");
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, "ring"));
    expect_set(&override, MUSTER_REDUCE_SCATTER, number(MUSTER_REDUCE_SCATTER, "ring"));
    expect_set(&override, MUSTER_ALLGATHER, number(MUSTER_ALLGATHER, "ring"));
    expect_set(&override, MUSTER_BROADCAST, number(MUSTER_BROADCAST, "pipelined"));
    assert_false(override.by_collective[MUSTER_BARRIER].is_set);
    override = parse("allreduce=allreduce_bcube(base=8),allgather=PAT");
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, "bcube(base=8)"));
    expect_set(&override, MUSTER_ALLGATHER, number(MUSTER_ALLGATHER, "pat"));
    refuse("allgather=allreduce_ring", "allgather has no algorithm \"allreduce_ring\"");
}

static void every_algorithm_can_be_set_by_its_own_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        char text[64 + MUSTER_ALGORITHM_NAME_SIZE];
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        enum muster_collective collective = muster_algorithms[i].collective;
        muster_algorithm_print(i, name, sizeof name);
        (void)snprintf(text, sizeof text, "%s,%s=%s", "ring", muster_collective_name(collective),
                       name);
        const struct muster_algorithm_override override = parse(text);
        expect_set(&override, collective, i);
    }
}

static void commas_and_equals_signs_in_brackets_are_the_names(void **state)
{
    (void)state;
    const char *name = "hierarchical(local=ring,cross=recursive_doubling)";
    char text[128];
    (void)snprintf(text, sizeof text, "allreduce=%s,broadcast=binomial", name);
    struct muster_algorithm_override override = parse(text);
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, name));
    expect_set(&override, MUSTER_BROADCAST, number(MUSTER_BROADCAST, "binomial"));
    override = parse(name);
    expect_set(&override, MUSTER_ALLREDUCE, number(MUSTER_ALLREDUCE, name));
}

static void a_wrong_name_is_refused_with_those_that_exist(void **state)
{
    (void)state;
    refuse("rign", "\"rign\"");
    refuse("rign", "ring, ");
    refuse("rign", "halving_doubling");
    refuse("allreduce=rign", "halving_doubling");
    refuse("alreduce=ring", "allreduce");
    refuse("broadcast=binomial,", "\"\"");
    refuse("", "\"\"");
    refuse("allreduce=", "\"\"");
    refuse("ring,broadcast=ring", "binomial");
    refuse("hierarchical(local=rign)", "rign");
    char longest[4096];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refuse(longest, "too long");
}

static void an_override_that_does_not_fit_is_not_used(void **state)
{
    (void)state;
    struct muster_algorithm_override override = parse("hierarchical");
    struct muster_topology one;
    struct muster_topology two;
    size_t algorithm = SIZE_MAX;
    assert_int_equal(muster_topology_init_even(4, 1, &one), MUSTER_OK);
    assert_int_equal(muster_topology_init_even(4, 2, &two), MUSTER_OK);
    struct muster_plan plan = {.collective = MUSTER_ALLREDUCE, .topology = &one, .count = 64};
    assert_false(muster_algorithm_override_find(&override, &plan, &algorithm));
    plan.topology = &two;
    assert_true(muster_algorithm_override_find(&override, &plan, &algorithm));
    assert_int_equal(algorithm, number(MUSTER_ALLREDUCE, "hierarchical"));
    plan.collective = MUSTER_ALLTOALL;
    assert_false(muster_algorithm_override_find(&override, &plan, &algorithm));
    muster_topology_finish(&one);
    muster_topology_finish(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_alone_is_for_all_collectives_that_have_it),
        cmocka_unit_test(a_collective_can_have_an_override_of_its_own),
        cmocka_unit_test(an_alias_sets_the_algorithm_of_the_collectives_that_have_it),
        cmocka_unit_test(every_algorithm_can_be_set_by_its_own_name),
        cmocka_unit_test(commas_and_equals_signs_in_brackets_are_the_names),
        cmocka_unit_test(a_wrong_name_is_refused_with_those_that_exist),
        cmocka_unit_test(an_override_that_does_not_fit_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
