/* The time from kill -9 of one of four workers to the next allreduce of the three others. It is
 * printed and not asserted; asserted is that they go on, with correct results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/workers.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"

enum { ROUNDS = 7, WAIT_MS = 60000 };

static struct test_service service;
static struct test_workers workers;
static bool alive[WORKERS_MAX];

static int begin(void **state)
{
    (void)state;
    bool serves = test_workers_set_up(&workers, &service, NULL, "recovery", "contributions");
    workers.min_size = 2;
    workers.target_size = 4;
    return serves ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
}

static void start_one(void)
{
    int index = test_workers_start(&workers, workers.count % 2 == 0 ? "host-a" : "host-b");
    assert_true(index >= 0);
    alive[index] = true;
}

/* The time of this worker's first allreduce in a generation of this size after that one. */
static int64_t first_after(uint32_t index, uint32_t size, uint64_t after, uint64_t *ret_generation)
{
    for (unsigned skip = 0;; skip++) {
        char line[128];
        uint64_t generation = 0;
        uint32_t seen_size = 0;
        int64_t at_ns = 0;
        assert_true(test_workers_line(&workers, index, "first ", skip, WAIT_MS, line, sizeof line));
        assert_int_equal(sscanf(line,
                                "first generation=%" SCNu64 " size=%" SCNu32 " at_ns=%" SCNd64,
                                &generation, &seen_size, &at_ns),
                         3);
        if (generation > after && seen_size == size) {
            *ret_generation = generation;
            return at_ns;
        }
    }
}

/* The latest of the workers that live. */
static int64_t all_first_after(uint32_t size, uint64_t after, uint64_t *ret_generation)
{
    int64_t last_ns = 0;
    for (uint32_t i = 0; i < workers.count; i++) {
        if (alive[i]) {
            int64_t at_ns = first_after(i, size, after, ret_generation);
            last_ns = at_ns > last_ns ? at_ns : last_ns;
        }
    }
    return last_ns;
}

static void after_a_death_the_others_go_on(void **state)
{
    (void)state;
    double times_ns[ROUNDS];
    uint64_t generation = 0;
    for (int i = 0; i < 4; i++) {
        start_one();
    }
    (void)all_first_after(4, 0, &generation);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t victim = round; /* the oldest one, often rank 0 */
        int64_t killed_ns = muster_clock_ns();
        test_workers_signal(&workers, victim, SIGKILL);
        alive[victim] = false;
        times_ns[round] = (double)(all_first_after(3, generation, &generation) - killed_ns);
        assert_int_equal(test_workers_wait(&workers, victim, WAIT_MS), -SIGKILL);
        start_one();
        (void)all_first_after(4, generation, &generation);
    }
    test_workers_finish(&workers);
    for (uint32_t i = 0; i < workers.count; i++) {
        if (alive[i]) {
            assert_int_equal(test_workers_wait(&workers, i, WAIT_MS), 0);
        }
    }
    print_message("generations: %" PRIu64 ", at least %d\n", generation, 1 + 2 * ROUNDS);
    double median_ns = muster_statistics_median_high(times_ns, ROUNDS); /* sorts them */
    print_message("recovery after kill -9: median %.0f ms of %d (min %.0f, max %.0f)\n",
                  median_ns / 1e6, ROUNDS, times_ns[0] / 1e6, times_ns[ROUNDS - 1] / 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_a_death_the_others_go_on, begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
