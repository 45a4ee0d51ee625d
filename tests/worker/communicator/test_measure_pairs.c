/* Which pairs measure, and how many ranks share how many cores: pure, so checked for many shapes.
 */
#include "tests/support/schedules.h"
#include "worker/communicator/measure_core.h"
#include "worker/communicator/measure_pairs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROUNDS = 300, HOSTS_MAX = 40, RANKS_MAX = 12, PAIRS_MAX = 4 };

static const struct muster_core_figures own_cores = {.cores = 0};

static struct muster_topology random_topology(uint64_t *random)
{
    uint32_t sizes[HOSTS_MAX];
    uint32_t racks[HOSTS_MAX] = {0};
    uint32_t hosts = 1 + test_random_below(random, HOSTS_MAX);
    uint32_t most = 1 + test_random_below(random, RANKS_MAX);
    uint32_t count = 1;
    for (uint32_t host = 0; host < hosts; host++) {
        sizes[host] = 1 + test_random_below(random, most);
        count += host > 0 && test_random_below(random, 6) == 0 ? 1 : 0;
        racks[count - 1]++;
    }
    struct muster_topology topology = test_topology(hosts, sizes);
    assert_int_equal(muster_topology_set_racks(&topology, count, racks), MUSTER_OK);
    return topology;
}

/* The level of the link between two ranks. */
static enum muster_link_level level_of(const struct muster_topology *topology, uint32_t rank,
                                       uint32_t peer)
{
    struct muster_position here = muster_topology_locate(topology, rank);
    struct muster_position there = muster_topology_locate(topology, peer);
    return here.host == there.host   ? MUSTER_LEVEL_HOST
           : here.rack == there.rack ? MUSTER_LEVEL_RACK
                                     : MUSTER_LEVEL_WORLD;
}

/* Returns the number of ranks that are active in the stage. */
static uint32_t check_stage(const struct muster_measure_pairs *pairs, enum muster_link_level level,
                            enum muster_measure_stage stage)
{
    uint32_t active = 0;
    for (uint32_t rank = 0; rank < pairs->topology->ranks; rank++) {
        struct muster_measure_role role = muster_measure_role(pairs, rank, level, stage);
        if (!role.active) {
            continue;
        }
        struct muster_measure_role other = muster_measure_role(pairs, role.peer, level, stage);
        assert_true(other.active && other.peer == rank && role.peer != rank);
        assert_int_equal(other.streams, role.streams);
        assert_int_equal(level_of(pairs->topology, rank, role.peer), level);
        assert_true(role.streams > 0);
        assert_true(muster_measure_has_role(pairs, rank));
        active++;
    }
    assert_int_equal(muster_measure_count_active(pairs, level, stage), active);
    return active;
}

/* Ranks whose rates are added up belong to one host, or to one rack. */
static void check_groups(const struct muster_measure_pairs *pairs, enum muster_link_level level)
{
    uint32_t first = UINT32_MAX;
    uint32_t left = 0;
    for (uint32_t rank = 0; rank < pairs->topology->ranks; rank++) {
        struct muster_measure_role role =
            muster_measure_role(pairs, rank, level, MUSTER_MEASURE_SHARED);
        if (!role.active) {
            continue;
        }
        first = left == 0 ? rank : first;
        left = left == 0 ? role.streams : left;
        struct muster_position here = muster_topology_locate(pairs->topology, rank);
        struct muster_position other = muster_topology_locate(pairs->topology, first);
        assert_true(level == MUSTER_LEVEL_WORLD ? here.rack == other.rack
                                                : here.host == other.host);
        left--;
    }
    assert_int_equal(left, 0);
}

static void pairs_are_mutual_and_every_level_has_some(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        struct muster_topology topology = random_topology(&random);
        struct muster_core_figures core = {.cores = test_random_below(&random, 5)};
        core.one_machine = core.cores > 0 ? test_random_below(&random, 2) : 0;
        struct muster_measure_pairs pairs;
        assert_int_equal(muster_measure_pairs_init(&topology, &core, &pairs), MUSTER_OK);
        for (unsigned level = 0; level < MUSTER_LEVEL_COUNT; level++) {
            bool exists = (muster_measure_levels(&topology) & 1U << level) != 0;
            for (unsigned stage = 0; stage < MUSTER_MEASURE_STAGES; stage++) {
                assert_int_equal(check_stage(&pairs, level, stage) > 0, exists);
            }
            if (exists) {
                check_groups(&pairs, level);
            }
        }
        muster_measure_pairs_finish(&pairs);
        muster_topology_finish(&topology);
    }
}

static void the_work_does_not_grow_with_the_job(void **state)
{
    (void)state;
    for (uint32_t hosts = 2; hosts <= 1024; hosts *= 2) {
        struct muster_topology topology = test_topology_even(4 * hosts, hosts);
        struct muster_measure_pairs pairs;
        assert_int_equal(muster_measure_pairs_init(&topology, &own_cores, &pairs), MUSTER_OK);
        assert_true(check_stage(&pairs, MUSTER_LEVEL_HOST, MUSTER_MEASURE_ALONE) <= 2 * PAIRS_MAX);
        assert_true(check_stage(&pairs, MUSTER_LEVEL_RACK, MUSTER_MEASURE_ALONE) <= 2 * PAIRS_MAX);
        assert_true(check_stage(&pairs, MUSTER_LEVEL_RACK, MUSTER_MEASURE_SHARED) <=
                    4 * 2 * PAIRS_MAX);
        muster_measure_pairs_finish(&pairs);
        muster_topology_finish(&topology);
    }
}

static void where_ranks_share_cores_few_are_active_at_once(void **state)
{
    (void)state;
    const struct muster_core_figures two = {.cores = 2, .one_machine = 1};
    struct muster_topology topology = test_topology_even(64, 8);
    struct muster_measure_pairs pairs;
    assert_int_equal(muster_measure_pairs_init(&topology, &two, &pairs), MUSTER_OK);
    for (unsigned level = MUSTER_LEVEL_HOST; level <= MUSTER_LEVEL_RACK; level++) {
        assert_int_equal(check_stage(&pairs, level, MUSTER_MEASURE_ALONE), 2);
        assert_in_range(check_stage(&pairs, level, MUSTER_MEASURE_SHARED), 2, 8);
    }
    muster_measure_pairs_finish(&pairs);
    muster_topology_finish(&topology);
}

static void where_ranks_have_cores_all_of_a_host_share_its_uplink(void **state)
{
    (void)state;
    struct muster_topology topology = test_topology(2, (uint32_t[]){5, 3});
    struct muster_measure_pairs pairs;
    assert_int_equal(muster_measure_pairs_init(&topology, &own_cores, &pairs), MUSTER_OK);
    assert_int_equal(check_stage(&pairs, MUSTER_LEVEL_RACK, MUSTER_MEASURE_ALONE), 2);
    assert_int_equal(check_stage(&pairs, MUSTER_LEVEL_RACK, MUSTER_MEASURE_SHARED), 6);
    assert_int_equal(
        muster_measure_role(&pairs, 0, MUSTER_LEVEL_RACK, MUSTER_MEASURE_SHARED).streams, 3);
    assert_int_equal(
        muster_measure_role(&pairs, 0, MUSTER_LEVEL_HOST, MUSTER_MEASURE_SHARED).streams, 4);
    muster_measure_pairs_finish(&pairs);
    muster_topology_finish(&topology);
}

/* Cores ---------------------------------------------------------------------------------------- */

static struct muster_core_figures shared(uint32_t ranks, uint32_t hosts,
                                         const struct muster_core_description *descriptions)
{
    struct muster_topology topology = test_topology_even(ranks, hosts);
    struct muster_core_figures core = {.cores = 99, .one_machine = 99};
    assert_int_equal(muster_core_count_shared(&topology, descriptions, &core), MUSTER_OK);
    muster_topology_finish(&topology);
    return core;
}

static void more_ranks_than_cores_share_the_cores(void **state)
{
    (void)state;
    const struct muster_core_description apart[] = {{1, 7, 2, 8}, {1, 7, 2, 8}, {1, 7, 2, 8},
                                                    {2, 7, 4, 8}, {2, 7, 4, 8}, {2, 7, 4, 8}};
    struct muster_core_figures core = shared(6, 2, apart);
    assert_int_equal(core.cores, 2); /* the most crowded host counts */
    assert_int_equal(core.one_machine, 0);
    const struct muster_core_description pretended[] = {
        {1, 7, 3, 8}, {1, 7, 3, 8}, {1, 7, 3, 8}, {1, 7, 3, 8}};
    core = shared(4, 2, pretended);
    assert_int_equal(core.cores, 3);
    assert_int_equal(core.one_machine, 1);
}

static void ranks_bound_to_cores_of_their_own_share_none(void **state)
{
    (void)state;
    const struct muster_core_description bound[] = {{1, 5, 1, 8}, {1, 6, 1, 8}, {1, 7, 1, 8}};
    assert_int_equal(shared(3, 1, bound).cores, 0);
    const struct muster_core_description halves[] = {
        {1, 5, 1, 8}, {1, 6, 1, 8}, {1, 5, 1, 8}, {1, 6, 1, 8}};
    assert_int_equal(shared(4, 1, halves).cores, 2);
    /* Core sets that overlap have no more cores together than the machine. */
    const struct muster_core_description overlapping[] = {
        {1, 5, 3, 4}, {1, 6, 3, 4}, {1, 7, 3, 4}, {1, 5, 3, 4}, {1, 5, 3, 4}};
    assert_int_equal(shared(5, 1, overlapping).cores, 4);
}

static void impossible_descriptions_are_ignored(void **state)
{
    (void)state;
    const struct muster_core_description bad[] = {{NAN, NAN, NAN, NAN},
                                                  {1, 5, -3, -1},
                                                  {INFINITY, -INFINITY, INFINITY, INFINITY},
                                                  {1, 5, 1e300, 0},
                                                  {0, 0, 0, 0}};
    struct muster_core_figures core = shared(5, 1, bad);
    assert_int_equal(core.cores, 0);
    assert_int_equal(core.one_machine, 0);
}

static void this_process_may_use_a_core(void **state)
{
    (void)state;
    struct muster_core_description first = muster_core_describe();
    assert_true(first.cores >= 1 && first.online >= first.cores);
    struct muster_core_description again = muster_core_describe();
    assert_true(first.core_set == again.core_set && first.machine == again.machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_mutual_and_every_level_has_some),
        cmocka_unit_test(the_work_does_not_grow_with_the_job),
        cmocka_unit_test(where_ranks_share_cores_few_are_active_at_once),
        cmocka_unit_test(where_ranks_have_cores_all_of_a_host_share_its_uplink),
        cmocka_unit_test(more_ranks_than_cores_share_the_cores),
        cmocka_unit_test(ranks_bound_to_cores_of_their_own_share_none),
        cmocka_unit_test(impossible_descriptions_are_ignored),
        cmocka_unit_test(this_process_may_use_a_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
