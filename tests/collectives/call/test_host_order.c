/* The order of ranks by host and rack, from ranks in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/call/host_order.h"
#include "tests/support/schedules.h"
#include "worker/base/status.h"

enum { RANKS_MAX = 40, ROUNDS = 2000 };

static void check(uint32_t ranks, const uint32_t *hosts, const uint32_t *racks,
                  const uint32_t *expected, uint32_t expected_hosts, uint32_t expected_racks)
{
    uint32_t callers[RANKS_MAX];
    struct muster_topology topology = {0};
    assert_int_equal(muster_host_order(ranks, hosts, racks, callers, &topology), MUSTER_OK);
    assert_memory_equal(callers, expected, ranks * sizeof *expected);
    assert_int_equal(topology.ranks, ranks);
    assert_int_equal(topology.hosts, expected_hosts);
    assert_int_equal(topology.racks, expected_racks);
    muster_topology_finish(&topology);
}

static void ranks_that_are_contiguous_keep_their_numbers(void **state)
{
    (void)state;
    static const uint32_t in_order[] = {0, 1, 2, 3, 4, 5};
    static const uint32_t one_host[] = {3, 3, 3, 3, 3, 3};
    static const uint32_t three[] = {5, 5, 0, 2, 2, 2};
    check(6, one_host, NULL, in_order, 1, 1);
    check(6, three, NULL, in_order, 3, 1);
    check(1, in_order, NULL, in_order, 1, 1);
}

static void ranks_of_a_host_and_hosts_of_a_rack_come_together(void **state)
{
    (void)state;
    static const uint32_t dealt[] = {0, 1, 2, 0, 1, 2};
    static const uint32_t by_host[] = {0, 3, 1, 4, 2, 5};
    check(6, dealt, NULL, by_host, 3, 1);
    static const uint32_t racks[] = {4, 1, 4, 4, 1, 4};
    static const uint32_t by_rack[] = {0, 3, 2, 5, 1, 4};
    check(6, dealt, racks, by_rack, 3, 2);
}

static void numbers_out_of_range_are_named(void **state)
{
    (void)state;
    static const uint32_t hosts[] = {0, 2};
    uint32_t callers[2];
    struct muster_topology topology = {0};
    assert_int_equal(muster_host_order(2, hosts, NULL, callers, &topology), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), "rank 1 is on host 2"));
    assert_int_equal(muster_host_order(0, hosts, NULL, callers, &topology), MUSTER_INVALID);
}

/* Each rank stands once, ranks of a host ascend, no host is met again, rank 0 is the first. */
static void any_order_is_grouped(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t ranks = 1 + test_random_below(&random, RANKS_MAX);
        uint32_t hosts[RANKS_MAX];
        uint32_t callers[RANKS_MAX];
        bool met[RANKS_MAX] = {false};
        struct muster_topology topology = {0};
        for (uint32_t i = 0; i < ranks; i++) {
            hosts[i] = test_random_below(&random, 1 + test_random_below(&random, ranks));
        }
        assert_int_equal(muster_host_order(ranks, hosts, NULL, callers, &topology), MUSTER_OK);
        assert_int_equal(callers[0], 0);
        for (uint32_t i = 0; i < ranks; i++) {
            bool first = i == 0 || hosts[callers[i]] != hosts[callers[i - 1]];
            assert_true(first ? !met[hosts[callers[i]]] : callers[i] > callers[i - 1]);
            assert_int_equal(muster_topology_locate(&topology, i).local_rank == 0, first);
            met[hosts[callers[i]]] = true;
        }
        muster_topology_finish(&topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_contiguous_keep_their_numbers),
        cmocka_unit_test(ranks_of_a_host_and_hosts_of_a_rack_come_together),
        cmocka_unit_test(numbers_out_of_range_are_named),
        cmocka_unit_test(any_order_is_grouped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
