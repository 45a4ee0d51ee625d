/* Links over RDMA with simulated devices: the suite, and paths that break under traffic in both
 * directions, with acknowledgements that are late or missing. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/fault_injector.h"
#include "tests/support/verbs_pretend.h"
#include "worker/fabric/verbs/verbs_settings.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    CONNECTIONS = 4,
    TIMES = 12,
    WITHDRAWALS = 20,
    LARGE_BYTES = 3 << 20,
    STEPS = 200,
    SKIPPED = 77,
};

static const struct rig_transport two_devices = {
    .name = "verbs, 4 paths by two devices",
    .transports = "verbs",
    .options = {.verbs_device = "pretend0,pretend1", .verbs_connections = CONNECTIONS}};

/* NOLINTNEXTLINE(readability-non-const-parameter): other functions of this type change it */
static uint32_t break_pairs(uint32_t count, unsigned *seed)
{
    (void)seed;
    return verbs_pretend_break(count);
}

static void frames_of_broken_queue_pairs_are_sent_by_others(void **state)
{
    (void)state;
    fault_injector_run(&(struct fault_injection){
        .transport = &two_devices, .connections = CONNECTIONS, .times = TIMES, .cut = break_pairs});
    assert_int_equal(verbs_pretend_violations(), 0);
}

static void frames_of_closed_paths_are_sent_by_others(void **state)
{
    (void)state;
    fault_injector_run(&(struct fault_injection){.transport = &two_devices,
                                                 .connections = CONNECTIONS,
                                                 .times = TIMES,
                                                 .cut = fault_injector_shut_down});
    assert_int_equal(verbs_pretend_violations(), 0);
}

/* Withdrawing ---------------------------------------------------------------------------------- */

static pthread_barrier_t both;
static uint32_t broken; /* of paths */

/* Whether each lost path is open again, at both ends. */
static bool all_are_open(const struct rig *rig)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct muster_fabric_figures figures = muster_fabric_figures(rig->fabrics[i]);
        if (figures.connections_lost != broken ||
            figures.connections_opened != CONNECTIONS - 1 + broken) {
            return false;
        }
    }
    return true;
}

static void *map_large(void)
{
    void *memory =
        mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Rank 1 withdraws a message in its middle, while a path breaks, and unmaps its memory at once;
 * another message arrives. */
static char *withdraw_in_the_middle(struct rig *rig, uint32_t rank, void *user)
{
    unsigned *seed = user;
    unsigned char *kept = malloc(LARGE_BYTES);
    for (uint64_t i = 1; i <= WITHDRAWALS; i++) {
        struct rig_counter counter = {.left = 1};
        struct rig_counter beside = {.left = 1};
        void *memory = map_large();
        RIG_EXPECT(memory != NULL && kept != NULL);
        rig_fill(memory, LARGE_BYTES, 2 * i);
        rig_fill(kept, LARGE_BYTES, rank == 1 ? i : 0);
        struct muster_transfer large = rank == 1 ? rig_send(rig, 0, 2 * i, memory, LARGE_BYTES)
                                                 : rig_receive(rig, 1, 2 * i, memory, LARGE_BYTES);
        struct muster_transfer other = rank == 1
                                           ? rig_send(rig, 0, 2 * i + 1, kept, LARGE_BYTES)
                                           : rig_receive(rig, 1, 2 * i + 1, kept, LARGE_BYTES);
        rig_post(rig, rank, &counter, &large);
        rig_post(rig, rank, &beside, &other);
        if (rank == 1) {
            uint64_t until = verbs_pretend_steps() + (uint64_t)rand_r(seed) % STEPS;
            while (verbs_pretend_steps() < until && !beside.finished) {
                rig_progress(rig, rank, 1);
            }
            broken += verbs_pretend_break(all_are_open(rig) ? 1 : 0);
            muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 2 * i);
            (void)munmap(memory, LARGE_BYTES);
        }
        RIG_EXPECT(rig_wait(rig, rank, &beside) == MUSTER_OK);
        RIG_EXPECT(rig_filled(kept, LARGE_BYTES, i));
        (void)pthread_barrier_wait(&both);
        if (rank == 0) {
            muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 2 * i);
            (void)munmap(memory, LARGE_BYTES);
        }
    }
    free(kept);
    return NULL;
}

static void withdrawn_memory_is_not_read_and_other_messages_arrive(void **state)
{
    (void)state;
    struct rig rig;
    unsigned seed = (unsigned)muster_clock_ns();
    print_message("seed %u\n", seed);
    assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
    broken = 0;
    rig_init(&rig, &two_devices, 2);
    rig_run(&rig, withdraw_in_the_middle, &seed);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 0);
    rig_finish(&rig);
    (void)pthread_barrier_destroy(&both);
    assert_int_equal(verbs_pretend_violations(), 0);
}

/* The end -------------------------------------------------------------------------------------- */

/* Breaks all connections of an open link: the pending receive must fail with a text from the device
 * or about the closed connection. */
static char *lose_all(struct rig *rig, uint32_t rank, void *user)
{
    unsigned char byte = 0;
    struct rig_counter never = {.left = 1};
    char *error = rig_exchange(rig, rank, user);
    if (error != NULL) {
        return error;
    }
    struct muster_transfer receive = rig_receive(rig, 1 - rank, 3, &byte, 1);
    rig_post(rig, rank, &never, &receive);
    while (rank == 0 && !all_are_open(rig)) {
        rig_progress(rig, rank, 1);
    }
    if (rank == 0) {
        RIG_EXPECT(verbs_pretend_break(CONNECTIONS) == CONNECTIONS);
    }
    RIG_EXPECT(rig_wait(rig, rank, &never) == MUSTER_REJOIN);
    bool names_reason = strstr(never.reason, "RDMA device pretend") != NULL ||
                        strstr(never.reason, "it closed the connection without goodbye") != NULL;
    muster_fabric_withdraw(rig->fabrics[rank], rig->generation, 0, 3);
    return names_reason ? NULL : rig_error("%s", never.reason);
}

static void a_link_is_lost_with_its_last_path_and_the_devices_reason(void **state)
{
    (void)state;
    struct rig rig;
    broken = 0;
    rig_init(&rig, &two_devices, 2);
    rig_run(&rig, lose_all, NULL);
    assert_int_equal(muster_fabric_figures(rig.fabrics[0]).links_lost, 1);
    rig_finish(&rig);
}

/* What is asked for ---------------------------------------------------------------------------- */

static void refuse(const char *device, uint32_t connections, const char *words)
{
    const struct fabric_wish wish = {
        .transports = "verbs",
        .options = {.verbs_device = device, .verbs_connections = connections},
        .fabric.member = "00000000-0000-4000-8000-000000000001"};
    struct muster_fabric *fabric = NULL;
    assert_int_equal(fabrics_make(&wish, &fabric), MUSTER_INVALID);
    assert_non_null(strstr(muster_last_error(), words));
}

static void too_many_paths_and_unnamed_devices_are_refused(void **state)
{
    (void)state;
    refuse("pretend0", MUSTER_VERBS_CONNECTIONS_MAX + 1,
           "verbs_connections (MUSTER_VERBS_CONNECTIONS) 9: must be from 0 to 8");
    refuse("pretend0,,pretend1", 0, "a comma too many");
    refuse("pretend0,", 0, "a comma too many");
    refuse("pretend0,pretend9", 0, "there is no pretend9");
}

static void unless_rdma_is_required_the_usable_devices_suffice(void **state)
{
    (void)state;
    static const char *const devices[] = {"pretend0,pretend9", "pretend9,pretend1"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        const struct fabric_wish wish = {.options = {.verbs = 1, .verbs_device = devices[i]},
                                         .fabric.member = "00000000-0000-4000-8000-000000000001"};
        struct muster_fabric *fabric = NULL;
        assert_int_equal(fabrics_make(&wish, &fabric), MUSTER_OK);
        assert_int_equal(muster_fabric_address_count(fabric), 2); /* and TCP's */
        assert_non_null(strstr(muster_fabric_address(fabric, 0), "verbs://"));
        muster_fabric_destroy(fabric, 0);
    }
}

int main(void)
{
    const struct rig_transport suite = {
        .name = "verbs, pretended", .transports = "verbs", .options.verbs_connections = 3};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_broken_queue_pairs_are_sent_by_others),
        cmocka_unit_test(frames_of_closed_paths_are_sent_by_others),
        cmocka_unit_test(withdrawn_memory_is_not_read_and_other_messages_arrive),
        cmocka_unit_test(a_link_is_lost_with_its_last_path_and_the_devices_reason),
        cmocka_unit_test(too_many_paths_and_unnamed_devices_are_refused),
        cmocka_unit_test(unless_rdma_is_required_the_usable_devices_suffice),
    };
    const char *given = getenv("MUSTER_SEED");
    unsigned seed =
        given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)muster_clock_ns();
    printf("MUSTER_SEED=%u\n", seed);
    if (!verbs_pretend_start(seed)) {
        printf("SKIP: %s\n", muster_last_error());
        return SKIPPED;
    }
    int failed = muster_conformance_run(&suite);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    verbs_pretend_stop();
    return failed;
}
