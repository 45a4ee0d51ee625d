/* The time from kill -9 of one of four workers to the next allreduce of the three others, also of
 * workers that have forked children, which live on. The times are printed. Asserted is that the
 * others go on, with correct results, and that living children do not delay that by seconds. */
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

enum {
    ROUNDS = 7,
    WAIT_MS = 60000,
    HIDDEN_MS = 1500, /* a death whose connections stay open is noticed after 2 s at the earliest */
};

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

static pid_t child_of(uint32_t index)
{
    char line[64];
    int child = 0;
    assert_true(test_workers_line(&workers, index, "child ", 0, WAIT_MS, line, sizeof line));
    assert_int_equal(sscanf(line, "child %d", &child), 1);
    return child;
}

/* Kills one after the other, and starts a new one for each. Returns the median time to recover. */
static double kill_in_turn(bool with_children)
{
    double times_ns[ROUNDS];
    uint64_t generation = 0;
    for (int i = 0; i < 4; i++) {
        start_one();
    }
    (void)all_first_after(4, 0, &generation);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t victim = round; /* the oldest one, often rank 0 */
        pid_t child = with_children ? child_of(victim) : 0;
        int64_t killed_ns = muster_clock_ns();
        test_workers_signal(&workers, victim, SIGKILL);
        alive[victim] = false;
        times_ns[round] = (double)(all_first_after(3, generation, &generation) - killed_ns);
        assert_int_equal(test_workers_wait(&workers, victim, WAIT_MS), -SIGKILL);
        if (with_children) {
            assert_int_equal(kill(child, SIGKILL), 0); /* it was alive until now */
        }
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
    double median_ns = muster_statistics_median_high(times_ns, ROUNDS);
    print_message("recovery after kill -9%s: median %.0f ms of %d (min %.0f, max %.0f)\n",
                  with_children ? " of parents of children that live" : "", median_ns / 1e6, ROUNDS,
                  times_ns[0] / 1e6, times_ns[ROUNDS - 1] / 1e6);
    return median_ns;
}

static void after_a_death_the_others_go_on(void **state)
{
    (void)state;
    (void)kill_in_turn(false);
}

static void children_of_a_dead_worker_do_not_hide_its_death(void **state)
{
    (void)state;
    assert_int_equal(setenv("CONTRIBUTIONS_CHILD", "1", 1), 0);
    double median_ns = kill_in_turn(true);
    assert_int_equal(unsetenv("CONTRIBUTIONS_CHILD"), 0);
    assert_true(median_ns < HIDDEN_MS * 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_a_death_the_others_go_on, begin, end),
        cmocka_unit_test_setup_teardown(children_of_a_dead_worker_do_not_hide_its_death, begin,
                                        end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
