/* Links over RDMA of several queue pairs, on one device and on two: the suite, and paths that break
 * under traffic in both directions. tests/conformance/test_verbs_pretend.c has random faults of
 * simulated devices, which is faster. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/fault_injector.h"
#include "tests/support/guest.h"
#include "tests/support/verbs_spy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CONNECTIONS = 4, TIMES = 3 };

static const struct rig_transport one_device = {
    .name = "verbs, 3 paths by one device",
    .transports = "verbs",
    .options = {.verbs_device = "rxe0", .verbs_connections = 3}};
static const struct rig_transport two_devices = {
    .name = "verbs, 4 paths by two devices",
    .transports = "verbs",
    .options = {.verbs_device = "rxe0,rxe1", .verbs_connections = CONNECTIONS}};

/* At one end only: a second one might belong to the same path. */
static uint32_t break_pair(uint32_t count, unsigned *seed)
{
    (void)count;
    verbs_spy_break_pair((uint32_t)rand_r(seed) % verbs_spy_pairs());
    return 1;
}

static void frames_of_broken_queue_pairs_are_sent_by_others(void **state)
{
    (void)state;
    fault_injector_run(&(struct fault_injection){
        .transport = &two_devices, .connections = CONNECTIONS, .times = TIMES, .cut = break_pair});
    verbs_spy_expect_nothing_held();
}

static void frames_of_closed_paths_are_sent_by_others(void **state)
{
    (void)state;
    fault_injector_run(&(struct fault_injection){.transport = &two_devices,
                                                 .connections = CONNECTIONS,
                                                 .times = TIMES,
                                                 .cut = fault_injector_shut_down});
    verbs_spy_expect_nothing_held();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_broken_queue_pairs_are_sent_by_others),
        cmocka_unit_test(frames_of_closed_paths_are_sent_by_others),
    };
    (void)count;
    if (getenv("MUSTER_VERBS_GUEST") == NULL) {
        guest_enter(arguments[0], 2);
    }
    verbs_spy_start();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += muster_conformance_run(&one_device);
    return failed + muster_conformance_run(&two_devices);
}
