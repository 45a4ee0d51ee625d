/* Algorithms that are forced by name. */
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
    struct muster_algorithm_override forced;
    if (muster_algorithm_override_parse(text, &forced) != MUSTER_OK) {
        fail_msg("\"%s\": %s", text, muster_last_error());
    }
    return forced;
}

static void refuse(const char *text, const char *word)
{
    struct muster_algorithm_override forced;
    assert_int_equal(muster_algorithm_override_parse(text, &forced), MUSTER_INVALID);
    if (strstr(muster_last_error(), word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", muster_last_error(), word);
    }
}

static void a_name_alone_is_for_all_collectives_that_have_it(void **state)
{
    (void)state;
    struct muster_algorithm_override forced = parse("ring");
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        const struct muster_algorithm *row = &muster_algorithms[i];
        if (strcmp(row->name, "ring") == 0) {
            assert_int_equal(forced.plus_one[row->collective], i + 1);
        }
    }
    assert_int_equal(forced.plus_one[MUSTER_BROADCAST], 0);
    forced = parse("recursive_doubling,ring");
    assert_int_equal(forced.plus_one[MUSTER_ALLREDUCE], number(MUSTER_ALLREDUCE, "ring") + 1);
}

static void a_collective_can_have_its_own(void **state)
{
    (void)state;
    struct muster_algorithm_override forced =
        parse("allreduce=recursive_doubling,broadcast=binomial");
    assert_int_equal(forced.plus_one[MUSTER_ALLREDUCE],
                     number(MUSTER_ALLREDUCE, "recursive_doubling") + 1);
    assert_int_equal(forced.plus_one[MUSTER_BROADCAST], number(MUSTER_BROADCAST, "binomial") + 1);
    assert_int_equal(forced.plus_one[MUSTER_ALLGATHER], 0);
}

static void every_algorithm_can_be_forced_under_its_own_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < muster_algorithm_count; i++) {
        char text[64 + MUSTER_ALGORITHM_NAME_SIZE];
        char name[MUSTER_ALGORITHM_NAME_SIZE];
        enum muster_collective collective = muster_algorithms[i].collective;
        muster_algorithm_print(i, name, sizeof name);
        (void)snprintf(text, sizeof text, "%s,%s=%s", "ring", muster_collective_name(collective),
                       name);
        assert_int_equal(parse(text).plus_one[collective], i + 1);
    }
}

static void commas_and_equals_signs_in_brackets_are_the_names(void **state)
{
    (void)state;
    const char *name = "hierarchical(local=ring,cross=recursive_doubling)";
    char text[128];
    (void)snprintf(text, sizeof text, "allreduce=%s,broadcast=binomial", name);
    struct muster_algorithm_override forced = parse(text);
    assert_int_equal(forced.plus_one[MUSTER_ALLREDUCE], number(MUSTER_ALLREDUCE, name) + 1);
    assert_int_equal(forced.plus_one[MUSTER_BROADCAST], number(MUSTER_BROADCAST, "binomial") + 1);
    forced = parse(name);
    assert_int_equal(forced.plus_one[MUSTER_ALLREDUCE], number(MUSTER_ALLREDUCE, name) + 1);
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

static void what_does_not_fit_is_not_forced(void **state)
{
    (void)state;
    struct muster_algorithm_override forced = parse("hierarchical");
    struct muster_topology one;
    struct muster_topology two;
    size_t algorithm = SIZE_MAX;
    assert_int_equal(muster_topology_init_even(4, 1, &one), MUSTER_OK);
    assert_int_equal(muster_topology_init_even(4, 2, &two), MUSTER_OK);
    struct muster_plan plan = {.collective = MUSTER_ALLREDUCE, .topology = &one, .count = 64};
    assert_false(muster_algorithm_override_find(&forced, &plan, &algorithm));
    plan.topology = &two;
    assert_true(muster_algorithm_override_find(&forced, &plan, &algorithm));
    assert_int_equal(algorithm, number(MUSTER_ALLREDUCE, "hierarchical"));
    plan.collective = MUSTER_ALLTOALL;
    assert_false(muster_algorithm_override_find(&forced, &plan, &algorithm));
    muster_topology_finish(&one);
    muster_topology_finish(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_alone_is_for_all_collectives_that_have_it),
        cmocka_unit_test(a_collective_can_have_its_own),
        cmocka_unit_test(every_algorithm_can_be_forced_under_its_own_name),
        cmocka_unit_test(commas_and_equals_signs_in_brackets_are_the_names),
        cmocka_unit_test(a_wrong_name_is_refused_with_those_that_exist),
        cmocka_unit_test(what_does_not_fit_is_not_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
