/* Every algorithm, type and operation, on many shapes of jobs: results equal a reference. */
#include "tests/support/pattern.h"
#include "tests/support/sweep.h"
#include "tests/support/thinning.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Over 16 KiB a message waits for a grant, over 256 KiB it is sent in several pieces. */
enum { COUNT_LARGE = 35000 };

/* With a sanitizer the tests are many times slower, so they run with fewer numbers of ranks. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RANKS_STEP = 4, SMALL_MAX = 3 };
#else
enum { RANKS_STEP = 1, SMALL_MAX = 6 };
#endif

static void every_algorithm_is_right_on_1_to_17_ranks(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 3, 17, 1000};
    for (uint32_t ranks = 1; ranks <= 17; ranks++) {
        uint32_t hosts_max = ranks < 3 ? ranks : 3;
        for (uint32_t hosts = 1; hosts <= hosts_max; hosts++) {
            /* Large jobs take long: they run with one number of hosts and fewer counts. */
            bool large = ranks > SMALL_MAX;
            struct sweep sweep = {.counts = counts, .count_count = 5, .brief = ranks > 10};
            if (large && !sweep.brief) {
                sweep.counts = counts + ranks % 4;
                sweep.count_count = 2;
            }
            if (!large || hosts == 1 + ranks % 3) {
                sweep_even(ranks, hosts, &sweep);
            }
        }
    }
}

static void every_algorithm_is_right_over_each_transport_and_in_shared_memory(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 777, 0, 2500, 5};
    for (enum sweep_place place = SWEEP_TCP; place <= SWEEP_MEMORY; place++) {
        for (uint32_t ranks = 1; ranks <= 17; ranks += RANKS_STEP) {
            const struct sweep sweep = {
                .counts = counts, .count_count = 5, .brief = true, .place = place};
            uint32_t hosts = place == SWEEP_MEMORY ? 1 : 1 + (ranks + place) % 3;
            sweep_even(ranks, hosts < ranks ? hosts : ranks, &sweep);
        }
    }
}

static void every_algorithm_is_right_on_ragged_hosts(void **state)
{
    (void)state;
    static const struct sweep_shape shapes[] = {
        {2, {1, 2}}, {3, {3, 1, 4}}, {3, {1, 1, 5}}, {4, {2, 5, 1, 4}}, {2, {9, 8}},
    };
    static const uint64_t counts[] = {1, 1001};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct sweep sweep = {.counts = counts, .count_count = 2};
        const struct sweep with_memory = {
            .counts = counts, .count_count = 2, .brief = true, .place = SWEEP_MEMORY};
        sweep_shape(&shapes[i], &sweep);
        sweep_shape(&shapes[i], &with_memory);
    }
}

static void large_messages_arrive_whole(void **state)
{
    (void)state;
    static const struct sweep_shape shapes[] = {{1, {2}}, {2, {2, 1}}};
    static const uint64_t counts[] = {COUNT_LARGE};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (enum sweep_place place = SWEEP_INPROC; place <= SWEEP_TCP; place++) {
            const struct sweep sweep = {
                .counts = counts, .count_count = 1, .brief = true, .place = place};
            sweep_shape(&shapes[i], &sweep);
        }
    }
}

static void tcp_gives_the_same_results(void **state)
{
    (void)state;
    static const struct sweep_shape shapes[] = {{1, {1}}, {1, {2}}, {2, {2, 1}}, {3, {3, 1, 1}}};
    static const uint64_t counts[] = {0, 1, 1001};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct sweep sweep = {.counts = counts, .count_count = 3, .place = SWEEP_TCP};
        sweep_shape(&shapes[i], &sweep);
    }
}

/* Runs last: in the sweeps above together every pair of type and operation has occurred. */
static void the_sweeps_have_called_every_pair_of_type_and_operation(void **state)
{
    (void)state;
    for (enum sweep_place place = 0; place <= SWEEP_MEMORY; place++) {
        for (size_t pair = 0; pair < pattern_pairs(); pair++) {
            muster_type type;
            muster_op op;
            pattern_pair(pair, &type, &op);
            bool anywhere = false;
            for (unsigned i = MUSTER_ALLREDUCE; i < MUSTER_COLLECTIVE_END; i++) {
                bool reduces = muster_collective_reduces((enum muster_collective)i);
                anywhere = anywhere || (reduces && sweep_has_called(place, i, type, op));
                if (place == SWEEP_INPROC && reduces && TEST_ONE_OF == 1 &&
                    !sweep_has_called(place, i, type, op)) {
                    fail_msg("no %s was called with %s of %s", muster_collective_name(i),
                             muster_op_name(op), muster_type_name(type));
                }
            }
            if (!anywhere && RANKS_STEP == 1) {
                fail_msg("place %d: no collective was called with %s of %s", (int)place,
                         muster_op_name(op), muster_type_name(type));
            }
        }
    }
}

static void every_pair_of_type_and_operation_is_right(void **state)
{
    (void)state;
    static const enum group_transport transports[] = {GROUP_INPROC, GROUP_TCP, GROUP_MEMORY};
    for (size_t i = 0; i < 3; i++) {
        sweep_pairs(transports[i], 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_type_and_operation_is_right),
        cmocka_unit_test(every_algorithm_is_right_on_1_to_17_ranks),
        cmocka_unit_test(every_algorithm_is_right_on_ragged_hosts),
        cmocka_unit_test(large_messages_arrive_whole),
        cmocka_unit_test(tcp_gives_the_same_results),
        cmocka_unit_test(every_algorithm_is_right_over_each_transport_and_in_shared_memory),
        cmocka_unit_test(the_sweeps_have_called_every_pair_of_type_and_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
