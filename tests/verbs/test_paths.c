/* Links over RDMA of several queue pairs, on one device and on two: the suite, and paths that break
 * while messages go both ways. What chance can do to them without a device, and faster, is in
 * tests/conformance/test_verbs_pretend.c. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/saboteur.h"
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

/* One at one end: another might be of the same path. */
static uint32_t break_pair(uint32_t count, unsigned *seed)
{
    (void)count;
    verbs_spy_break_pair((uint32_t)rand_r(seed) % verbs_spy_pairs());
    return 1;
}

static void what_broken_queue_pairs_carried_goes_by_others(void **state)
{
    (void)state;
    saboteur_run(&(struct saboteur_wish){
        .transport = &two_devices, .connections = CONNECTIONS, .times = TIMES, .cut = break_pair});
    verbs_spy_expect_nothing_held();
}

static void what_paths_that_are_hung_up_carried_goes_by_others(void **state)
{
    (void)state;
    saboteur_run(&(struct saboteur_wish){.transport = &two_devices,
                                         .connections = CONNECTIONS,
                                         .times = TIMES,
                                         .cut = saboteur_shut_down});
    verbs_spy_expect_nothing_held();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_broken_queue_pairs_carried_goes_by_others),
        cmocka_unit_test(what_paths_that_are_hung_up_carried_goes_by_others),
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
