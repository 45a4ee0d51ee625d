/* Introductions: what is encoded comes back, and no bytes do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "tests/support/schedules.h"
#include "worker/base/bytes.h"
#include "worker/communicator/introduction.h"

enum { SIZE = 6, ROUNDS = 20000 };

static struct muster_introduction make(uint32_t rank, const char *host, const char *rack)
{
    struct muster_introduction made = {.rank = rank, .size = SIZE, .order = 70 + rank};
    muster_introduction_set_algorithm(&made, "allreduce=ring");
    (void)snprintf(made.peer.member, sizeof made.peer.member,
                   "01234567-89ab-4def-8123-456789abcd%02u", rank);
    (void)snprintf(made.peer.host, sizeof made.peer.host, "%s", host);
    (void)snprintf(made.rack, sizeof made.rack, "%s", rack);
    memset(made.token, '7', sizeof made.token - 1);
    (void)snprintf(made.library, sizeof made.library, "%s", muster_version());
    (void)snprintf(made.peer.addresses[0], sizeof made.peer.addresses[0], "shm://a/b/c");
    (void)snprintf(made.peer.addresses[1], sizeof made.peer.addresses[0], "tcp://10.0.0.1:80");
    made.peer.address_count = 2;
    return made;
}

static void what_is_encoded_comes_back(void **state)
{
    (void)state;
    unsigned char bytes[MUSTER_INTRODUCTION_SIZE];
    struct muster_introduction sent = make(3, "a-host", "a-rack");
    struct muster_introduction found;
    sent.reproducible = true;
    muster_introduction_encode(&sent, bytes);
    assert_int_equal(muster_introduction_decode(bytes, 3, &found), MUSTER_OK);
    assert_memory_equal(&found, &sent, sizeof sent);
}

static void a_failure_comes_in_place_of_addresses(void **state)
{
    (void)state;
    unsigned char bytes[MUSTER_INTRODUCTION_SIZE];
    struct muster_introduction sent = make(3, "a-host", "");
    struct muster_introduction found;
    memset(sent.failure, 'x', sizeof sent.failure - 1);
    muster_introduction_encode(&sent, bytes);
    assert_int_equal(muster_introduction_decode(bytes, 3, &found), MUSTER_OK);
    assert_string_equal(found.failure, sent.failure);
    assert_int_equal(found.peer.address_count, 0);
}

static void addresses_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    unsigned char bytes[MUSTER_INTRODUCTION_SIZE];
    struct muster_introduction sent = make(0, "a-host", "");
    struct muster_introduction found;
    for (uint32_t i = 0; i < MUSTER_ADDRESSES_MAX; i++) {
        memset(sent.peer.addresses[i], 'a' + (int)i, MUSTER_ADDRESS_SIZE - 1);
    }
    sent.peer.address_count = MUSTER_ADDRESSES_MAX;
    muster_introduction_encode(&sent, bytes);
    assert_int_equal(muster_introduction_decode(bytes, 0, &found), MUSTER_OK);
    assert_in_range(found.peer.address_count, 13, MUSTER_ADDRESSES_MAX - 1);
    assert_string_equal(found.peer.addresses[12], sent.peer.addresses[12]);
}

/* With a checksum that fits, so that the bounds are what is tested. */
static void random_bytes_do_no_harm(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    unsigned char bytes[MUSTER_INTRODUCTION_SIZE];
    struct muster_introduction found;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct muster_introduction sent = make(1, "a-host", "a-rack");
        muster_introduction_encode(&sent, bytes);
        uint32_t changes = 1 + test_random_below(&random, 300);
        for (uint32_t i = 0; i < changes; i++) {
            uint32_t at = 16 + test_random_below(&random, MUSTER_INTRODUCTION_SIZE - 16);
            bytes[at] = (unsigned char)test_random(&random);
        }
        unsigned long sum = crc32(0, bytes, 12);
        sum = crc32(sum, bytes + 16, MUSTER_INTRODUCTION_SIZE - 16);
        muster_bytes_put(bytes + 12, sum, 4);
        if (muster_introduction_decode(bytes, 1, &found) == MUSTER_OK) {
            assert_in_range(found.peer.address_count, 0, MUSTER_ADDRESSES_MAX);
            assert_in_range(strlen(found.failure), 0, sizeof found.failure - 1);
        } else {
            assert_non_null(strstr(muster_last_error(), "rank 1: addresses that are too"));
        }
    }
}

static void members_are_placed_by_host_and_rack(void **state)
{
    (void)state;
    static const uint32_t expected[SIZE] = {0, 2, 4, 3, 1, 5};
    uint32_t callers[SIZE];
    struct muster_topology topology;
    const struct muster_introduction all[SIZE] = {
        make(0, "a", "left"), make(1, "b", "right"), make(2, "a", "left"),
        make(3, "c", "left"), make(4, "a", "left"),  make(5, "b", "right"),
    };
    assert_int_equal(muster_introductions_place(all, SIZE, callers, &topology), MUSTER_OK);
    assert_memory_equal(callers, expected, sizeof expected);
    assert_int_equal(topology.hosts, 3);
    assert_int_equal(topology.racks, 2);
    muster_topology_finish(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_comes_back),
        cmocka_unit_test(a_failure_comes_in_place_of_addresses),
        cmocka_unit_test(addresses_that_do_not_fit_are_left_out),
        cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(members_are_placed_by_host_and_rack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
