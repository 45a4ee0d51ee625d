/* Plans of hosts and slots, and the ranks that follow from them. */
#include "elastic/horovod/horovod_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_answers(const char *text, const char *expected)
{
    struct muster_horovod_plan plan;
    char answers[2048] = "";
    assert_int_equal(muster_horovod_plan_parse(text, strlen(text), &plan), MUSTER_OK);
    for (uint32_t i = 0; i < plan.host_count; i++) {
        for (uint32_t k = 0; k < plan.hosts[i].slot_count; k++) {
            char ranks[MUSTER_HOROVOD_RANKS_SIZE];
            struct muster_horovod_ranks place = muster_horovod_plan_ranks(&plan, i, k);
            muster_horovod_ranks_format(&place, ranks);
            size_t used = strlen(answers);
            (void)snprintf(answers + used, sizeof answers - used, "%s ", ranks);
        }
    }
    assert_string_equal(answers, expected);
    muster_horovod_plan_finish(&plan);
}

static void a_plan_gives_every_slot_its_six_numbers(void **state)
{
    (void)state;
    expect_answers("a:1", "0,1,0,1,0,1 ");
    expect_answers("a:2,b:2", "0,4,0,2,0,2 1,4,1,2,0,2 2,4,0,2,1,2 3,4,1,2,1,2 ");
    expect_answers(" a:1,b:3,c:2\n",
                   "0,6,0,1,0,3 1,6,0,3,1,3 2,6,1,3,0,2 3,6,2,3,0,1 "
                   "4,6,0,2,2,3 5,6,1,2,1,2 ");
    expect_answers("node-1.example.org:1,10.0.0.2:1", "0,2,0,1,0,2 1,2,0,1,1,2 ");
}

static void a_plan_that_is_wrong_is_refused_with_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "is not HOST:SLOTS"},
        {"  \n", "is not HOST:SLOTS"},
        {"a", "\"a\" is not HOST:SLOTS"},
        {":2", "is not HOST:SLOTS"},
        {"a:2,", "is not HOST:SLOTS"},
        {"a:2,,b:1", "is not HOST:SLOTS"},
        {"a b:2", "is not HOST:SLOTS"},
        {"a/b:2", "is not HOST:SLOTS"},
        {"a:", "slots must be 1 to 4096"},
        {"a:0", "slots must be 1 to 4096"},
        {"a:-1", "slots must be 1 to 4096"},
        {"a:2x", "slots must be 1 to 4096"},
        {"a:4097", "slots must be 1 to 4096"},
        {"a:99999999999999999999", "slots must be 1 to 4096"},
        {"a:1,b:1,a:1", "host a comes twice"},
        {"a:4000,b:97", "more than 4096 slots"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct muster_horovod_plan plan;
        assert_int_equal(muster_horovod_plan_parse(rows[i].text, strlen(rows[i].text), &plan),
                         MUSTER_INVALID);
        if (strstr(muster_last_error(), rows[i].part) == NULL) {
            fail_msg("\"%s\": %s", rows[i].text, muster_last_error());
        }
    }
}

static void a_plan_has_bounds(void **state)
{
    (void)state;
    char *text = malloc(64 * 1024);
    struct muster_horovod_plan plan;
    size_t used = 0;
    for (unsigned i = 0; i < MUSTER_HOROVOD_HOSTS_MAX; i++) {
        used += (size_t)sprintf(text + used, "%sh%u:1", i > 0 ? "," : "", i);
    }
    assert_int_equal(muster_horovod_plan_parse(text, used, &plan), MUSTER_OK);
    assert_int_equal(plan.size, MUSTER_HOROVOD_HOSTS_MAX);
    muster_horovod_plan_finish(&plan);
    used += (size_t)sprintf(text + used, ",more:1");
    assert_int_equal(muster_horovod_plan_parse(text, used, &plan), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "more than 1024 hosts"));
    memset(text, 'a', 254);
    text[254] = ':';
    text[255] = '1';
    assert_int_equal(muster_horovod_plan_parse(text, 256, &plan), MUSTER_INVALID);
    assert_int_equal(muster_horovod_plan_parse(text + 1, 255, &plan), MUSTER_OK);
    muster_horovod_plan_finish(&plan);
    assert_int_equal(muster_horovod_plan_parse("a:1\0,b:1", 8, &plan), MUSTER_INVALID);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_gives_every_slot_its_six_numbers),
        cmocka_unit_test(a_plan_that_is_wrong_is_refused_with_what_is_wrong),
        cmocka_unit_test(a_plan_has_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
