/* Links of several TCP connections: the suite, and connections that are cut. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/fault_injector.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { CONNECTIONS = 4, TIMES = 4 };

static void connections_that_are_cut_are_reopened_and_nothing_is_lost(void **state)
{
    (void)state;
    const struct rig_transport transport = {
        .name = "tcp", .transports = "tcp", .options.tcp_connections = CONNECTIONS};
    fault_injector_run(&(struct fault_injection){.transport = &transport,
                                                 .connections = CONNECTIONS,
                                                 .times = TIMES,
                                                 .cut = fault_injector_shut_down});
}

static char *wait_for_nothing(struct rig *rig, uint32_t rank, void *user)
{
    pthread_barrier_t *open = user;
    unsigned char byte = 0;
    struct rig_counter first = {.left = 2};
    struct rig_counter second = {.left = 1};
    struct muster_transfer send = rig_send(rig, 1 - rank, 1, &byte, 1);
    struct muster_transfer receive = rig_receive(rig, 1 - rank, 1, &byte, 1);
    struct muster_transfer never = rig_receive(rig, 1 - rank, 2, &byte, 1);
    rig_post(rig, rank, &first, &send);
    rig_post(rig, rank, &first, &receive);
    RIG_EXPECT(rig_wait(rig, rank, &first) == MUSTER_OK);
    (void)pthread_barrier_wait(open);
    if (rank == 0) {
        unsigned seed = 0;
        (void)fault_injector_shut_down(CONNECTIONS, &seed);
    }
    rig_post(rig, rank, &second, &never);
    RIG_EXPECT(rig_wait(rig, rank, &second) == MUSTER_REJOIN);
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 2);
    return NULL;
}

static void a_link_is_lost_with_its_last_connection(void **state)
{
    (void)state;
    const struct rig_transport transport = {
        .name = "tcp", .transports = "tcp", .options.tcp_connections = CONNECTIONS};
    struct rig rig;
    pthread_barrier_t open;
    assert_int_equal(pthread_barrier_init(&open, NULL, 2), 0);
    rig_init(&rig, &transport, 2);
    rig_run(&rig, wait_for_nothing, &open);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 1);
    rig_finish(&rig);
    (void)pthread_barrier_destroy(&open);
}

/* Drives both ranks until each has opened at least so many further connections, and lost so many.
 */
static bool await_figures(const struct rig *rig, uint32_t opened, uint32_t lost)
{
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    uint32_t reached = 0;
    while (reached < rig->count && muster_clock_ns() < deadline_ns) {
        reached = 0;
        for (uint32_t rank = 0; rank < rig->count; rank++) {
            rig_progress((struct rig *)rig, rank, 1);
            struct muster_fabric_figures figures = muster_fabric_figures(rig->fabrics[rank]);
            reached += figures.connections_opened >= opened && figures.connections_lost == lost;
        }
    }
    return reached == rig->count;
}

/* Connections are shut down just before each generation begins, so different ones may be missing.
 */
static void a_link_that_has_lost_connections_outlives_a_generation(void **state)
{
    (void)state;
    const struct rig_transport transport = {
        .name = "tcp", .transports = "tcp", .options.tcp_connections = CONNECTIONS};
    struct rig rig;
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    rig_init(&rig, &transport, 2);
    uint32_t lost = 0;
    for (uint32_t i = 0; i < TIMES; i++) {
        rig_run(&rig, rig_exchange, NULL);
        assert_true(await_figures(&rig, CONNECTIONS - 1 + lost, lost));
        lost += fault_injector_shut_down(CONNECTIONS - 1, &seed);
        assert_true(await_figures(&rig, 0, lost));
        rig_begin(&rig);
    }
    rig_run(&rig, rig_exchange, NULL);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
    rig_finish(&rig);
}

static void too_many_connections_are_refused(void **state)
{
    (void)state;
    struct muster_fabric *fabric = NULL;
    const struct fabric_wish wish = {.transports = "tcp",
                                     .options.tcp_connections = 17,
                                     .fabric.member = "00000000-0000-4000-8000-000000000001"};
    assert_int_equal(fabrics_make(&wish, &fabric), MUSTER_INVALID);
    assert_string_equal(muster_last_error(),
                        "tcp_connections (MUSTER_TCP_CONNECTIONS) 17: must be from 1 to 16");
}

int main(void)
{
    const struct rig_transport transport = {
        .name = "tcp, 3 connections", .transports = "tcp", .options.tcp_connections = 3};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_that_are_cut_are_reopened_and_nothing_is_lost),
        cmocka_unit_test(a_link_is_lost_with_its_last_connection),
        cmocka_unit_test(a_link_that_has_lost_connections_outlives_a_generation),
        cmocka_unit_test(too_many_connections_are_refused),
    };
    int failed = muster_conformance_run(&transport);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
