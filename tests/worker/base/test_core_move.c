/* A thread that moves to another core keeps its affinity, also if other threads or processes change
 * it meanwhile. */
#include "worker/base/core_move.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static void a_thread_that_moves_keeps_its_affinity(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t after;
    if (sched_getaffinity(0, sizeof before, &before) != 0 || CPU_COUNT(&before) < 2) {
        skip();
    }
    for (uint32_t i = 0; i < 20; i++) {
        (void)muster_core_move(i); /* false if it runs there already */
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

static void a_pinned_thread_stays(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) {
        skip();
    }
    int here = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET((size_t)here, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(muster_core_move(i));
        cpu_set_t after;
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&one, &after));
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* Moves while others interfere ----------------------------------------------------------------- */

/* A pretended kernel, of a machine with more cores, or one that is changed between two calls. Each
 * thread has requested an affinity. It may use what is both in that and in the control group, or
 * all of the group if that is nothing (cpuset(7)). */
static struct {
    bool pretended;
    uint64_t group;  /* cores, a bit each */
    uint64_t far;    /* cores on another NUMA node */
    uint64_t ever;   /* all cores that the mover was allowed to use since this was cleared */
    int calls;       /* calls that the mover has made */
    int moment;      /* interferes() runs before this call; -1: never */
    bool only_reads; /* only calls that read are counted */
    void (*interferes)(void);
} kernel = {.moment = -1};
static _Thread_local uint64_t requested = UINT64_MAX;
static _Thread_local unsigned place;
static _Thread_local bool is_mover;

static uint64_t allowed(void)
{
    return (requested & kernel.group) != 0 ? requested & kernel.group : kernel.group;
}

static void move_to_allowed(void)
{
    for (place = (allowed() >> place & 1) != 0 ? place : 0; (allowed() >> place & 1) == 0;) {
        place++;
    }
}

static void count_call(bool reads)
{
    if (is_mover && (reads || !kernel.only_reads) && kernel.calls++ == kernel.moment) {
        kernel.interferes();
        if (kernel.pretended) {
            move_to_allowed();
        }
    }
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    count_call(true);
    memset(set, 0, size);
    if (!kernel.pretended) {
        return syscall(SYS_sched_getaffinity, pid, size, set) > 0 ? 0 : -1;
    }
    const uint64_t cores = allowed();
    memcpy(set, &cores, sizeof cores);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    count_call(false);
    if (!kernel.pretended) {
        return (int)syscall(SYS_sched_setaffinity, pid, size, set);
    }
    uint64_t cores;
    memcpy(&cores, set, sizeof cores);
    if ((cores & kernel.group) == 0) {
        errno = EINVAL;
        return -1;
    }
    requested = cores;
    kernel.ever |= is_mover ? allowed() : 0;
    move_to_allowed();
    return 0;
}

int getcpu(unsigned *cpu, unsigned *node)
{
    if (!kernel.pretended) {
        return (int)syscall(SYS_getcpu, cpu, node, NULL);
    }
    *cpu = place;
    *node = (kernel.far >> place & 1) != 0;
    return 0;
}

enum { GROUP = 0xf, ANOTHERS = 0x4, PAIR = 0x3 };

/* Moves from core 0 to core 1 of four, with this affinity; returns how many calls that took. */
static int move_with(uint64_t affinity, int moment, void (*interferes)(void))
{
    kernel.group = GROUP;
    kernel.ever = 0;
    kernel.calls = 0;
    kernel.moment = moment;
    kernel.interferes = interferes;
    requested = affinity;
    place = 0;
    (void)muster_core_move(1);
    kernel.moment = -1;
    return kernel.calls;
}

static int begin_pretending(void **state)
{
    (void)state;
    kernel.pretended = is_mover = true;
    return 0;
}

static int stop_pretending(void **state)
{
    (void)state;
    kernel.pretended = is_mover = kernel.only_reads = false;
    kernel.far = 0;
    return 0;
}

static void an_affinity_that_was_set_is_not_widened_for_a_moment(void **state)
{
    (void)state;
    (void)move_with(PAIR, -1, NULL);
    assert_int_equal(place, 1);
    assert_int_equal(kernel.ever, PAIR);
    assert_int_equal(requested, PAIR);
}

static void an_affinity_that_was_not_set_stays_unset(void **state)
{
    (void)state;
    (void)move_with(UINT64_MAX, -1, NULL);
    assert_int_equal(place, 1);
    assert_true(requested == UINT64_MAX); /* so it grows with its group */
}

static void a_thread_that_would_leave_its_node_goes_back(void **state)
{
    (void)state;
    kernel.far = 0x2;
    (void)move_with(PAIR, -1, NULL);
    assert_int_equal(place, 0);
    assert_int_equal(requested, PAIR);
}

static void pin_elsewhere(void)
{
    requested = ANOTHERS;
}

static void an_affinity_that_others_set_meanwhile_stays(void **state)
{
    (void)state;
    static const uint64_t affinities[] = {UINT64_MAX, PAIR};
    kernel.only_reads = true; /* a change between a read and the write after it cannot be noticed */
    for (int node = 0; node < 2; node++) {
        kernel.far = node == 0 ? 0 : 0x2;
        for (int i = 0; i < 2; i++) {
            int reads = move_with(affinities[i], -1, NULL);
            assert_in_range(reads, 3, 10);
            for (int moment = 0; moment < reads; moment++) {
                (void)move_with(affinities[i], moment, pin_elsewhere);
                assert_int_equal(requested, ANOTHERS);
            }
        }
    }
}

static void lose_core(void)
{
    kernel.group = GROUP - 0x2;
}

static void a_core_that_is_lost_meanwhile_leaves_the_affinity(void **state)
{
    (void)state;
    static const uint64_t affinities[] = {UINT64_MAX, PAIR};
    for (int i = 0; i < 2; i++) {
        int calls = move_with(affinities[i], -1, NULL);
        assert_in_range(calls, 5, 20);
        for (int moment = 0; moment < calls; moment++) {
            (void)move_with(affinities[i], moment, lose_core);
            assert_true(requested == affinities[i]);
        }
    }
}

/* With the kernel itself. */
static size_t first_core;
static void pin_really(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_core, &one);
    (void)syscall(SYS_sched_setaffinity, 0, sizeof one, &one);
}

static void an_affinity_that_others_really_set_stays(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t after;
    if (sched_getaffinity(0, sizeof before, &before) != 0 || CPU_COUNT(&before) < 2) {
        skip();
    }
    while (!CPU_ISSET(first_core, &before)) {
        first_core++;
    }
    kernel.interferes = pin_really;
    kernel.only_reads = is_mover = true;
    for (int moment = 0; moment < 4; moment++) {
        for (uint32_t to = 0; to < 2;
             to++) { /* the thread is on one of them: the other one is a move */
            kernel.calls = 0;
            kernel.moment = moment;
            (void)muster_core_move(to);
            bool happened = kernel.calls > moment;
            kernel.moment = -1;
            assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
            assert_int_equal(CPU_COUNT(&after), happened ? 1 : CPU_COUNT(&before));
            assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_moves_keeps_its_affinity),
        cmocka_unit_test(a_pinned_thread_stays),
        cmocka_unit_test_setup_teardown(an_affinity_that_was_set_is_not_widened_for_a_moment,
                                        begin_pretending, stop_pretending),
        cmocka_unit_test_setup_teardown(an_affinity_that_was_not_set_stays_unset, begin_pretending,
                                        stop_pretending),
        cmocka_unit_test_setup_teardown(a_thread_that_would_leave_its_node_goes_back,
                                        begin_pretending, stop_pretending),
        cmocka_unit_test_setup_teardown(an_affinity_that_others_set_meanwhile_stays,
                                        begin_pretending, stop_pretending),
        cmocka_unit_test_setup_teardown(a_core_that_is_lost_meanwhile_leaves_the_affinity,
                                        begin_pretending, stop_pretending),
        cmocka_unit_test_setup_teardown(an_affinity_that_others_really_set_stays, NULL,
                                        stop_pretending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
