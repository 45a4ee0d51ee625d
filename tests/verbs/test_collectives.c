/* All collectives over RDMA, by every algorithm that fits: within this machine's device, or in a
 * guest, and there also from one device to the other. */
#include "tests/support/guest.h"
#include "tests/support/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void sweep_hosts(enum sweep_place place, uint32_t ranks, const uint64_t *counts,
                        size_t count_count)
{
    const struct sweep sweep = {
        .counts = counts, .count_count = count_count, .brief = true, .place = place};
    uint32_t hosts = 1 + (ranks + place) % 3;
    sweep_even(ranks, hosts < ranks ? hosts : ranks, &sweep);
}

/* Elements of 1 to 8 bytes: messages around 16 KiB, and around a slot. Between devices fewer ranks
 * suffice. */
static void every_algorithm_is_right_on_2_to_8_ranks(void **state)
{
    const enum sweep_place *place = *state;
    static const uint64_t counts[] = {1, 777, 0, 5000, 5};
    const uint32_t most = *place == SWEEP_VERBS ? 8 : 4;
    for (uint32_t ranks = 2; ranks <= most; ranks++) {
        sweep_hosts(*place, ranks, counts, sizeof counts / sizeof counts[0]);
    }
}

static void messages_over_1_mib_are_right(void **state)
{
    const enum sweep_place *place = *state;
    static const uint64_t counts[] = {300000};
    sweep_hosts(*place, 2, counts, 1);
}

static void every_pair_of_type_and_operation_is_right(void **state)
{
    const enum sweep_place *place = *state;
    sweep_pairs(*place == SWEEP_VERBS ? GROUP_VERBS : GROUP_BETWEEN_DEVICES, 3);
}

static int sweep(enum sweep_place place)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_algorithm_is_right_on_2_to_8_ranks, &place),
        cmocka_unit_test_prestate(messages_over_1_mib_are_right, &place),
        cmocka_unit_test_prestate(every_pair_of_type_and_operation_is_right, &place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **arguments)
{
    (void)count;
    guest_need_rdma(arguments[0]);
    int failed = sweep(SWEEP_VERBS);
    if (getenv("MUSTER_VERBS_GUEST") != NULL) {
        failed += sweep(SWEEP_BETWEEN_DEVICES);
    }
    return failed;
}
