/* The time from kill -9 of workers to the next allreduce of the others: of one, also one that has
 * forked children, which live on; of several at once, or one after the other; around a Join; while
 * the server is away. The times are printed. Asserted is that the others go on, with correct
 * results, and that no death is found by the end of a lease or of a suspicion only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/schedules.h"
#include "tests/support/workers.h"
#include "worker/base/clock.h"
#include "worker/base/statistics.h"

enum {
    ROUNDS = 7,
    SEVERAL_ROUNDS = 5,
    AFTER_MS = 50,
    WAIT_MS = 60000,
    HIDDEN_MS = 1500, /* a death whose connections stay open is noticed after 2 s at the earliest */
};

static struct test_service service;
static struct test_workers workers;
static bool alive[WORKERS_MAX];
static uint64_t seed;

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

/* The time of this worker's first allreduce after that time in a generation of this size or a
 * smaller one. */
static int64_t next_after(uint32_t index, uint32_t size, int64_t after_ns)
{
    for (unsigned skip = 0;; skip++) {
        char line[128];
        uint32_t seen_size = 0;
        int64_t at_ns = 0;
        assert_true(test_workers_line(&workers, index, "first ", skip, WAIT_MS, line, sizeof line));
        assert_int_equal(sscanf(line, "first generation=%*u size=%" SCNu32 " at_ns=%" SCNd64,
                                &seen_size, &at_ns),
                         2);
        if (at_ns > after_ns && seen_size <= size) {
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

static void finish_all(void)
{
    test_workers_finish(&workers);
    for (uint32_t i = 0; i < workers.count; i++) {
        if (alive[i]) {
            assert_int_equal(test_workers_wait(&workers, i, WAIT_MS), 0);
        }
    }
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
    finish_all();
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

/* Not held up by what is noticed after 2 s, or at the end of a lease. */
static void print_and_check(const char *what, double *times_ns, uint32_t count)
{
    double median_ns = muster_statistics_median_high(times_ns, count);
    print_message("recovery after %s: median %.0f ms of %u (min %.0f, max %.0f)\n", what,
                  median_ns / 1e6, count, times_ns[0] / 1e6, times_ns[count - 1] / 1e6);
    assert_true(median_ns < HIDDEN_MS * 1e6);
}

/* Kills this many of those that live, one right after the other. */
static void kill_some(uint32_t victims)
{
    for (uint32_t i = 0; i < workers.count && victims > 0; i++) {
        if (alive[i]) {
            test_workers_signal(&workers, i, SIGKILL);
            alive[i] = false;
            victims--;
        }
    }
}

static void replace(uint32_t victims)
{
    for (uint32_t i = 0; i < victims; i++) {
        start_one();
    }
}

static void kill_at_once(uint32_t victims, const char *what)
{
    double times_ns[SEVERAL_ROUNDS];
    uint64_t generation = 0;
    workers.target_size = 2 + victims;
    replace(2 + victims);
    (void)all_first_after(2 + victims, 0, &generation);
    for (uint32_t round = 0; round < SEVERAL_ROUNDS; round++) {
        int64_t killed_ns = muster_clock_ns();
        kill_some(victims);
        times_ns[round] = (double)(all_first_after(2, generation, &generation) - killed_ns);
        replace(victims);
        (void)all_first_after(2 + victims, generation, &generation);
    }
    finish_all();
    print_and_check(what, times_ns, SEVERAL_ROUNDS);
}

static void two_that_die_at_once_are_found_at_once(void **state)
{
    (void)state;
    kill_at_once(2, "kill -9 of two of four");
}

static void three_that_die_at_once_are_found_at_once(void **state)
{
    (void)state;
    kill_at_once(3, "kill -9 of three of five");
}

static void pause_up_to(uint32_t most_ms)
{
    (void)poll(NULL, 0, (int)test_random_below(&seed, most_ms + 1));
}

static void a_second_death_soon_after_the_first_is_found_at_once(void **state)
{
    (void)state;
    double times_ns[SEVERAL_ROUNDS];
    uint64_t generation = 0;
    replace(4);
    (void)all_first_after(4, 0, &generation);
    for (uint32_t round = 0; round < SEVERAL_ROUNDS; round++) {
        kill_some(1);
        pause_up_to(AFTER_MS);
        int64_t killed_ns = muster_clock_ns();
        kill_some(1);
        times_ns[round] = (double)(all_first_after(2, generation, &generation) - killed_ns);
        replace(2);
        (void)all_first_after(4, generation, &generation);
    }
    finish_all();
    print_and_check("a second kill -9 within 50 ms", times_ns, SEVERAL_ROUNDS);
}

/* A newcomer starts, and one of the others dies before, while or after it is let in. The time until
 * the next allreduce without the dead one, with or without the newcomer. */
static void a_death_around_a_join_is_found_at_once(void **state)
{
    (void)state;
    double times_ns[SEVERAL_ROUNDS];
    uint64_t generation = 0;
    workers.target_size = 5;
    replace(5);
    (void)all_first_after(5, 0, &generation);
    kill_some(1);
    (void)all_first_after(4, generation, &generation);
    for (uint32_t round = 0; round < SEVERAL_ROUNDS; round++) {
        uint32_t newcomer = workers.count;
        start_one();
        pause_up_to(AFTER_MS);
        int64_t killed_ns = muster_clock_ns();
        kill_some(1);
        int64_t last_ns = 0;
        for (uint32_t i = 0; i < newcomer; i++) {
            int64_t at_ns = alive[i] ? next_after(i, 4, killed_ns) : 0;
            last_ns = at_ns > last_ns ? at_ns : last_ns;
        }
        times_ns[round] = (double)(last_ns - killed_ns);
        (void)all_first_after(4, generation, &generation);
    }
    finish_all();
    print_and_check("kill -9 of one around a join", times_ns, SEVERAL_ROUNDS);
}

static void a_death_while_the_server_is_away_is_found_when_it_is_back(void **state)
{
    (void)state;
    double times_ns[SEVERAL_ROUNDS];
    uint64_t generation = 0;
    replace(4);
    (void)all_first_after(4, 0, &generation);
    for (uint32_t round = 0; round < SEVERAL_ROUNDS; round++) {
        test_service_kill(&service);
        kill_some(1);
        int64_t starts_ns = muster_clock_ns();
        assert_true(test_service_restart(&service, NULL));
        times_ns[round] = (double)(all_first_after(3, generation, &generation) - starts_ns);
        replace(1);
        (void)all_first_after(4, generation, &generation);
    }
    finish_all();
    print_and_check("kill -9 of one while the server is away, from its start", times_ns,
                    SEVERAL_ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_a_death_the_others_go_on, begin, end),
        cmocka_unit_test_setup_teardown(children_of_a_dead_worker_do_not_hide_its_death, begin,
                                        end),
        cmocka_unit_test_setup_teardown(two_that_die_at_once_are_found_at_once, begin, end),
        cmocka_unit_test_setup_teardown(three_that_die_at_once_are_found_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_second_death_soon_after_the_first_is_found_at_once, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_death_around_a_join_is_found_at_once, begin, end),
        cmocka_unit_test_setup_teardown(a_death_while_the_server_is_away_is_found_when_it_is_back,
                                        begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
