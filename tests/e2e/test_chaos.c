/* Workers start, are asked to leave, die and freeze in a random order, often before the last change
 * is over. Afterwards all that are left agree, to the bit, and every step was exact. The seed is
 * printed; MUSTER_SEED repeats it, as far as a race of processes can be repeated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/workers.h"
#include "worker/base/random.h"

enum { EVENTS = 14, LEAST = 2, MOST = 6, WAIT_MS = 90000 };

enum fate { LIVES, LEAVES, DIES };

static struct test_service service;
static struct test_workers workers;
static enum fate fates[WORKERS_MAX];
static bool frozen[WORKERS_MAX], was_frozen[WORKERS_MAX];
static unsigned short random_state[3];

static int begin(void **state)
{
    (void)state;
    static const char *const short_lease[] = {"--lease-ms=1500", "--hold-ms=300",
                                              "--suspect-ms=1000", NULL};
    const char *given = getenv("MUSTER_SEED");
    unsigned long seed = given != NULL ? strtoul(given, NULL, 10) : muster_random_below(UINT32_MAX);
    print_message("MUSTER_SEED=%lu\n", seed);
    random_state[0] = (unsigned short)seed;
    random_state[1] = (unsigned short)(seed >> 16);
    random_state[2] = 1;
    bool serves = test_workers_set_up(&workers, &service, short_lease, "chaos", "contributions");
    workers.min_size = LEAST;
    return serves ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return test_workers_tear_down(&workers);
}

static uint32_t below(uint32_t bound)
{
    return (uint32_t)((unsigned long)nrand48(random_state) % bound);
}

static uint32_t living(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < workers.count; i++) {
        count += fates[i] == LIVES && !frozen[i];
    }
    return count;
}

static uint32_t pick_living(void)
{
    uint32_t choice = below(living());
    for (uint32_t i = 0;; i++) {
        if (fates[i] == LIVES && !frozen[i] && choice-- == 0) {
            return i;
        }
    }
}

static void start_one(void)
{
    assert_true(test_workers_start(&workers, below(2) == 0 ? "host-a" : "host-b") >= 0);
}

static void wake_all(void)
{
    for (uint32_t i = 0; i < workers.count; i++) {
        if (frozen[i]) {
            test_workers_signal(&workers, i, SIGCONT);
            frozen[i] = false;
        }
    }
}

static void await_progress(void)
{
    assert_true(test_workers_progress(&workers, pick_living(), 1, WAIT_MS));
}

static void one_event(void)
{
    uint32_t kind = below(5);
    if (living() <= LEAST || (kind == 0 && living() < MOST)) {
        start_one();
        return;
    }
    uint32_t victim = pick_living();
    if (kind <= 1) {
        fates[victim] = DIES;
        test_workers_signal(&workers, victim, SIGKILL);
    } else if (kind == 2) {
        fates[victim] = LEAVES;
        test_workers_signal(&workers, victim, SIGTERM);
    } else if (kind == 3) {
        frozen[victim] = true;
        was_frozen[victim] = true;
        test_workers_signal(&workers, victim, SIGSTOP);
    } else {
        wake_all();
    }
}

static void await_first_steps(void)
{
    char line[128];
    for (uint32_t i = 0; i < workers.count; i++) {
        if (fates[i] == LIVES && !frozen[i]) {
            assert_true(test_workers_line(&workers, i, "first ", 0, WAIT_MS, line, sizeof line));
        }
    }
}

static void check_ends(void)
{
    char expected[128] = "";
    for (uint32_t i = 0; i < workers.count; i++) {
        char line[128] = "";
        int status = test_workers_wait(&workers, i, WAIT_MS);
        if (fates[i] == DIES) {
            assert_int_equal(status, -SIGKILL);
            continue;
        }
        if (fates[i] == LEAVES && (status == 3 || status == -SIGTERM)) {
            continue; /* SIGTERM killed it if it had not opened its session yet */
        }
        if (was_frozen[i] && status == 3) {
            continue; /* it continued after the work was done */
        }
        assert_int_equal(status, 0);
        assert_true(test_workers_line(&workers, i, "done ", 0, WAIT_MS, line, sizeof line));
        if (expected[0] == '\0') {
            memcpy(expected, line, sizeof expected);
        }
        assert_string_equal(line, expected);
    }
    print_message("%s", expected);
}

static void whatever_happens_the_survivors_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        start_one();
    }
    for (int i = 0; i < EVENTS; i++) {
        if (below(3) > 0) {
            await_first_steps();
            await_progress();
        }
        one_event();
    }
    wake_all();
    await_first_steps();
    assert_true(test_workers_wait_size(&workers, living(), 0, WAIT_MS) > 0);
    await_progress();
    test_workers_finish(&workers);
    check_ends();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whatever_happens_the_survivors_agree, begin, end),
    };
    if (!test_service_built()) {
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
