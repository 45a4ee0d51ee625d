/* The members of each scope, on hosts of different sizes. */
#include "tests/support/schedules.h"
#include "worker/communicator/scope_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANKS = 6 };

static const uint32_t contribution_numbers[RANKS] = {50, 40, 30, 20, 10, 0};

/* Ranks 0, 1, 2 on the first host, 3 on the second, 4 and 5 on the third. */
static void expect_group(uint32_t rank, muster_scope scope, uint32_t expected_rank, uint32_t size,
                         const uint32_t *expected_ranks, uint32_t hosts)
{
    struct muster_topology topology = test_topology(3, (uint32_t[]){3, 1, 2});
    struct muster_scope_group group;
    assert_int_equal(muster_scope_group_init(&topology, contribution_numbers, rank, scope, &group),
                     MUSTER_OK);
    assert_int_equal(group.rank, expected_rank);
    assert_int_equal(group.topology.ranks, size);
    assert_int_equal(group.topology.hosts, hosts);
    for (uint32_t i = 0; i < size; i++) {
        assert_int_equal(group.ranks[i], expected_ranks[i]);
        assert_int_equal(group.contribution_numbers[i], contribution_numbers[expected_ranks[i]]);
    }
    muster_scope_group_finish(&group);
    muster_topology_finish(&topology);
}

static void the_global_scope_has_all_ranks(void **state)
{
    (void)state;
    expect_group(4, MUSTER_GLOBAL, 4, RANKS, (uint32_t[]){0, 1, 2, 3, 4, 5}, 3);
}

static void the_local_scope_has_the_ranks_of_the_host(void **state)
{
    (void)state;
    expect_group(1, MUSTER_LOCAL, 1, 3, (uint32_t[]){0, 1, 2}, 1);
    expect_group(3, MUSTER_LOCAL, 0, 1, (uint32_t[]){3}, 1);
    expect_group(5, MUSTER_LOCAL, 1, 2, (uint32_t[]){4, 5}, 1);
}

static void the_cross_scope_leaves_out_hosts_without_that_local_rank(void **state)
{
    (void)state;
    expect_group(4, MUSTER_CROSS, 2, 3, (uint32_t[]){0, 3, 4}, 3);
    expect_group(5, MUSTER_CROSS, 1, 2, (uint32_t[]){1, 5}, 2);
    expect_group(2, MUSTER_CROSS, 0, 1, (uint32_t[]){2}, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_global_scope_has_all_ranks),
        cmocka_unit_test(the_local_scope_has_the_ranks_of_the_host),
        cmocka_unit_test(the_cross_scope_leaves_out_hosts_without_that_local_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
