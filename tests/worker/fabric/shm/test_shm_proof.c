/* How two members prove that they share memory, what follows if the proof fails, and descriptors.
 */
#include "tests/conformance/rig.h"
#include "worker/base/cleanup.h"
#include "worker/fabric/shm/shm.h"
#include "worker/memory/shared_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { REGION_BYTES = 1 << 16, TAG = 7 };

static const struct rig_transport both = {.name = "shared memory, then tcp",
                                          .transports = "shm,tcp"};
static const struct rig_transport memory_only = {.name = "shared memory", .transports = "shm"};

static char *expect_shares(struct rig *rig, uint32_t rank, void *user)
{
    const bool *expected = user;
    bool shares = !*expected;
    RIG_EXPECT(muster_fabric_shares_memory(rig->fabrics[rank], rig->generation, 1 - rank,
                                           muster_clock_after_ms(RIG_TIMEOUT_MS),
                                           &shares) == MUSTER_OK);
    RIG_EXPECT(shares == *expected);
    return NULL;
}

static void expect_exchange(struct rig *rig, bool shares)
{
    rig_run(rig, rig_exchange, NULL);
    rig_run(rig, expect_shares, &shares);
}

static void test_members_of_a_host_share_memory_before_tcp(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &both, 2);
    assert_int_equal(rig.peers[0].address_count, 2);
    assert_memory_equal(rig.peers[0].addresses[0], "shm://", 6);
    expect_exchange(&rig, true);
    rig_finish(&rig);
}

/* Begins a generation with a changed shm address of rank 1. */
static void expect_tcp_after(void (*change)(struct muster_shm_address *address))
{
    struct rig rig;
    struct muster_shm_address address;
    rig_init(&rig, &both, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(muster_shm_address_parse(rig.peers[i].addresses[0], &address));
        change(&address);
        muster_shm_address_print(&address, rig.peers[i].addresses[0]);
    }
    rig_begin(&rig);
    expect_exchange(&rig, false);
    rig_finish(&rig);
}

static void boot_again(struct muster_shm_address *address)
{
    address->boot[0] = address->boot[0] == 'a' ? 'b' : 'a';
}

static void change_network(struct muster_shm_address *address)
{
    address->network++;
}

static void change_name(struct muster_shm_address *address)
{
    address->name[7] = 'z'; /* not in a UUID */
}

static void test_other_boots_networks_and_names_fall_back_to_tcp(void **state)
{
    (void)state;
    expect_tcp_after(boot_again);
    expect_tcp_after(change_network);
    expect_tcp_after(change_name);
}

static void test_a_member_that_cannot_be_reached_by_memory_agrees_on_tcp(void **state)
{
    (void)state;
    struct rig rig;
    struct muster_shm_address address;
    rig_init(&rig, &both, 2);
    assert_true(muster_shm_address_parse(rig.peers[1].addresses[0], &address));
    change_name(&address);
    muster_shm_address_print(&address, rig.peers[1].addresses[0]);
    rig_begin(&rig);
    bool shares[2];
    rig_run(&rig, rig_exchange, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(muster_fabric_shares_memory(rig.fabrics[i], rig.generation, 1 - i,
                                                     muster_clock_after_ms(RIG_TIMEOUT_MS),
                                                     &shares[i]),
                         MUSTER_OK);
    }
    assert_int_equal(shares[0], shares[1]);
    rig_finish(&rig);
}

static void test_invalid_addresses_are_refused(void **state)
{
    (void)state;
    struct muster_shm_address address;
    static const char *const bad[] = {
        "",
        "shm://",
        "shm://a/b/c",
        "shm://0/1/",
        "tcp://127.0.0.1:1",
        "shm://0-1/1/name/more",
        "shm://0-1/1/0123456789012345678901234567890123456789012345678901234567890123",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(muster_shm_address_parse(bad[i], &address));
    }
    assert_true(muster_shm_address_parse("shm://0-1/17/muster-x", &address));
    assert_int_equal(address.network, 17);
}

/* Descriptors -------------------------------------------------------------------------------- */

static char *pass_memory(struct rig *rig, uint32_t rank, void *user)
{
    (void)user;
    struct muster_fabric *fabric = rig->fabrics[rank];
    int64_t deadline_ns = muster_clock_after_ms(RIG_TIMEOUT_MS);
    AUTO_CLOSE int fd = -1;
    void *base = NULL;
    if (rank == 0) {
        RIG_EXPECT(muster_shared_memory_create("test", REGION_BYTES, &fd) == MUSTER_OK);
        RIG_EXPECT(muster_shared_memory_map(fd, REGION_BYTES, &base) == MUSTER_OK);
        rig_fill(base, REGION_BYTES, TAG);
        RIG_EXPECT(muster_fabric_send_descriptor(fabric, rig->generation, 1, TAG, fd,
                                                 deadline_ns) == MUSTER_OK);
    } else {
        RIG_EXPECT(muster_fabric_receive_descriptor(fabric, rig->generation, 0, TAG, deadline_ns,
                                                    &fd) == MUSTER_OK);
        RIG_EXPECT(muster_shared_memory_check(fd, REGION_BYTES + 1) == MUSTER_INVALID);
        RIG_EXPECT(muster_shared_memory_check(fd, REGION_BYTES) == MUSTER_OK);
        RIG_EXPECT(muster_shared_memory_map(fd, REGION_BYTES, &base) == MUSTER_OK);
        RIG_EXPECT(rig_filled(base, REGION_BYTES, TAG));
    }
    munmap(base, REGION_BYTES);
    return NULL;
}

static void test_a_descriptor_is_sent(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, &both, 2);
    rig_run(&rig, pass_memory, NULL);
    rig_begin(&rig);
    rig_run(&rig, pass_memory, NULL); /* the same tag in the next generation */
    rig_finish(&rig);
}

static void test_waiting_for_a_descriptor_ends_at_the_deadline(void **state)
{
    (void)state;
    struct rig rig;
    int fd = -1;
    rig_init(&rig, &memory_only, 2);
    expect_exchange(&rig, true);
    assert_int_equal(muster_fabric_receive_descriptor(rig.fabrics[0], rig.generation, 1, TAG,
                                                      muster_clock_after_ms(10), &fd),
                     MUSTER_RETRY);
    muster_fabric_kill(rig.fabrics[1]);
    assert_int_equal(muster_fabric_receive_descriptor(rig.fabrics[0], rig.generation, 1, TAG,
                                                      muster_clock_after_ms(RIG_TIMEOUT_MS), &fd),
                     MUSTER_REJOIN);
    assert_int_equal(fd, -1);
    rig_finish(&rig);
}

static void test_descriptors_are_not_sent_over_tcp(void **state)
{
    (void)state;
    static const struct rig_transport tcp = {.name = "tcp", .transports = "tcp"};
    struct rig rig;
    rig_init(&rig, &tcp, 2);
    expect_exchange(&rig, false);
    assert_int_equal(muster_fabric_send_descriptor(rig.fabrics[0], rig.generation, 1, TAG, 0,
                                                   muster_clock_after_ms(RIG_TIMEOUT_MS)),
                     MUSTER_INVALID);
    rig_finish(&rig);
}

static void test_memory_that_can_shrink_is_refused(void **state)
{
    (void)state;
    AUTO_CLOSE int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, REGION_BYTES), 0);
    assert_int_equal(muster_shared_memory_check(fd, REGION_BYTES), MUSTER_INVALID);
    assert_int_equal(muster_shared_memory_check(STDIN_FILENO, REGION_BYTES), MUSTER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_of_a_host_share_memory_before_tcp),
        cmocka_unit_test(test_other_boots_networks_and_names_fall_back_to_tcp),
        cmocka_unit_test(test_a_member_that_cannot_be_reached_by_memory_agrees_on_tcp),
        cmocka_unit_test(test_invalid_addresses_are_refused),
        cmocka_unit_test(test_a_descriptor_is_sent),
        cmocka_unit_test(test_waiting_for_a_descriptor_ends_at_the_deadline),
        cmocka_unit_test(test_descriptors_are_not_sent_over_tcp),
        cmocka_unit_test(test_memory_that_can_shrink_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
