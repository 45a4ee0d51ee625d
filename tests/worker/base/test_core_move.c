/* A thread that moves to another core keeps its affinity, whatever others do to it meanwhile. */
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

static void who_moves_keeps_its_affinity(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t after;
    if (sched_getaffinity(0, sizeof before, &before) != 0 || CPU_COUNT(&before) < 2) {
        skip();
    }
    for (uint32_t i = 0; i < 20; i++) {
        (void)muster_core_move(i); /* it may be there already */
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

static void who_is_pinned_stays(void **state)
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

/* Moving while others change things ------------------------------------------------------------ */

/* The kernel's part is played here, where it is to be a machine with more cores, or is to be
 * changed between two calls. Each thread has an affinity that was set for it; what it may use is
 * what the control group leaves of that, or all of the group's if nothing is left (cpuset(7)). */
static struct {
    bool played;
    uint64_t group; /* cores, a bit each */
    uint64_t far;   /* those of them on another NUMA node */
    uint64_t ever;  /* that the mover was allowed at some time since it was cleared */
    int calls;      /* that the mover has made */
    int moment;     /* before this one something happens; -1: nothing */
    bool looks;     /* only calls that look count */
    void (*happens)(void);
} kernel = {.moment = -1};
static _Thread_local uint64_t wish = UINT64_MAX;
static _Thread_local unsigned place;
static _Thread_local bool is_mover;

static uint64_t allowed(void)
{
    return (wish & kernel.group) != 0 ? wish & kernel.group : kernel.group;
}

static void settle(void)
{
    for (place = (allowed() >> place & 1) != 0 ? place : 0; (allowed() >> place & 1) == 0;) {
        place++;
    }
}

static void count_call(bool looks)
{
    if (is_mover && (looks || !kernel.looks) && kernel.calls++ == kernel.moment) {
        kernel.happens();
        if (kernel.played) {
            settle();
        }
    }
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    count_call(true);
    memset(set, 0, size);
    if (!kernel.played) {
        return syscall(SYS_sched_getaffinity, pid, size, set) > 0 ? 0 : -1;
    }
    const uint64_t cores = allowed();
    memcpy(set, &cores, sizeof cores);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    count_call(false);
    if (!kernel.played) {
        return (int)syscall(SYS_sched_setaffinity, pid, size, set);
    }
    uint64_t cores;
    memcpy(&cores, set, sizeof cores);
    if ((cores & kernel.group) == 0) {
        errno = EINVAL;
        return -1;
    }
    wish = cores;
    kernel.ever |= is_mover ? allowed() : 0;
    settle();
    return 0;
}

int getcpu(unsigned *cpu, unsigned *node)
{
    if (!kernel.played) {
        return (int)syscall(SYS_getcpu, cpu, node, NULL);
    }
    *cpu = place;
    *node = (kernel.far >> place & 1) != 0;
    return 0;
}

enum { GROUP = 0xf, ANOTHERS = 0x4, PAIR = 0x3 };

/* Moves from core 0 to core 1 of four, with this affinity; returns how many calls that took. */
static int move_with(uint64_t affinity, int moment, void (*happens)(void))
{
    kernel.group = GROUP;
    kernel.ever = 0;
    kernel.calls = 0;
    kernel.moment = moment;
    kernel.happens = happens;
    wish = affinity;
    place = 0;
    (void)muster_core_move(1);
    kernel.moment = -1;
    return kernel.calls;
}

static int play(void **state)
{
    (void)state;
    kernel.played = is_mover = true;
    return 0;
}

static int stop_playing(void **state)
{
    (void)state;
    kernel.played = is_mover = kernel.looks = false;
    kernel.far = 0;
    return 0;
}

static void an_affinity_that_was_set_is_not_widened_for_a_moment(void **state)
{
    (void)state;
    (void)move_with(PAIR, -1, NULL);
    assert_int_equal(place, 1);
    assert_int_equal(kernel.ever, PAIR);
    assert_int_equal(wish, PAIR);
}

static void an_affinity_that_nobody_set_is_not_set(void **state)
{
    (void)state;
    (void)move_with(UINT64_MAX, -1, NULL);
    assert_int_equal(place, 1);
    assert_true(wish == UINT64_MAX); /* it grows with its group */
}

static void who_would_leave_its_node_goes_back(void **state)
{
    (void)state;
    kernel.far = 0x2;
    (void)move_with(PAIR, -1, NULL);
    assert_int_equal(place, 0);
    assert_int_equal(wish, PAIR);
}

static void pin_elsewhere(void)
{
    wish = ANOTHERS;
}

static void what_somebody_else_sets_meanwhile_stays(void **state)
{
    (void)state;
    static const uint64_t affinities[] = {UINT64_MAX, PAIR};
    kernel.looks = true; /* what comes between a look and a change cannot be seen */
    for (int node = 0; node < 2; node++) {
        kernel.far = node == 0 ? 0 : 0x2;
        for (int i = 0; i < 2; i++) {
            int looks = move_with(affinities[i], -1, NULL);
            assert_in_range(looks, 3, 10);
            for (int moment = 0; moment < looks; moment++) {
                (void)move_with(affinities[i], moment, pin_elsewhere);
                assert_int_equal(wish, ANOTHERS);
            }
        }
    }
}

static void lose_core(void)
{
    kernel.group = GROUP - 0x2;
}

static void a_core_that_is_lost_meanwhile_costs_no_affinity(void **state)
{
    (void)state;
    static const uint64_t affinities[] = {UINT64_MAX, PAIR};
    for (int i = 0; i < 2; i++) {
        int calls = move_with(affinities[i], -1, NULL);
        assert_in_range(calls, 5, 20);
        for (int moment = 0; moment < calls; moment++) {
            (void)move_with(affinities[i], moment, lose_core);
            assert_true(wish == affinities[i]);
        }
    }
}

/* The kernel itself this time. */
static size_t first_core;
static void pin_really(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_core, &one);
    (void)syscall(SYS_sched_setaffinity, 0, sizeof one, &one);
}

static void what_somebody_else_really_sets_stays(void **state)
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
    kernel.happens = pin_really;
    kernel.looks = is_mover = true;
    for (int moment = 0; moment < 4; moment++) {
        for (uint32_t to = 0; to < 2; to++) { /* to one of them, as it is at the other */
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
        cmocka_unit_test(who_moves_keeps_its_affinity),
        cmocka_unit_test(who_is_pinned_stays),
        cmocka_unit_test_setup_teardown(an_affinity_that_was_set_is_not_widened_for_a_moment, play,
                                        stop_playing),
        cmocka_unit_test_setup_teardown(an_affinity_that_nobody_set_is_not_set, play, stop_playing),
        cmocka_unit_test_setup_teardown(who_would_leave_its_node_goes_back, play, stop_playing),
        cmocka_unit_test_setup_teardown(what_somebody_else_sets_meanwhile_stays, play,
                                        stop_playing),
        cmocka_unit_test_setup_teardown(a_core_that_is_lost_meanwhile_costs_no_affinity, play,
                                        stop_playing),
        cmocka_unit_test_setup_teardown(what_somebody_else_really_sets_stays, NULL, stop_playing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
