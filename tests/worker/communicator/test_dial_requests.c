/* Requests to be dialled as bytes: there and back, and what is refused. That they arrive is what
 * tests/worker/session/test_neighbours.c is about. */
#include "worker/communicator/dial_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/schedules.h"

enum { SIZE = 1000, ROUNDS = 3000 };

static struct muster_dial_request any_request(uint64_t *seed)
{
    struct muster_dial_request request = {.to = (uint32_t)test_random(seed) % SIZE,
                                          .from = (uint32_t)test_random(seed) % SIZE,
                                          .hops = (uint32_t)test_random(seed) % 64};
    muster_random_uuid(request.peer.member);
    (void)snprintf(request.peer.host, sizeof request.peer.host, "host-%u",
                   (unsigned)test_random(seed));
    request.peer.address_count = (uint32_t)test_random(seed) % (MUSTER_ADDRESSES_MAX + 1);
    for (uint32_t i = 0; i < request.peer.address_count; i++) {
        (void)snprintf(request.peer.addresses[i], MUSTER_ADDRESS_SIZE, "tcp://10.0.0.%u:%0*u", i,
                       (int)(1 + test_random(seed) % 100), 1);
    }
    return request;
}

static void a_request_survives_the_trip(void **state)
{
    unsigned char bytes[MUSTER_DIAL_REQUEST_MOST];
    uint64_t seed = test_seed();
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const struct muster_dial_request request = any_request(&seed);
        struct muster_dial_request back;
        size_t size_bytes = muster_dial_request_encode(&request, bytes);
        assert_true(size_bytes <= sizeof bytes);
        assert_int_equal(muster_dial_request_decode(bytes, size_bytes, SIZE, &back), MUSTER_OK);
        assert_memory_equal(&back, &request, sizeof back);
    }
}

/* Read from memory of exactly that size, so that a sanitizer sees what is read behind it. */
static void any_bytes_are_read_or_refused(void **state)
{
    unsigned char bytes[MUSTER_DIAL_REQUEST_MOST];
    uint64_t seed = test_seed();
    unsigned refused = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const struct muster_dial_request request = any_request(&seed);
        struct muster_dial_request back;
        size_t size_bytes = muster_dial_request_encode(&request, bytes);
        bytes[test_random(&seed) % size_bytes] ^= (unsigned char)(1U << test_random(&seed) % 8);
        size_bytes = test_random(&seed) % 2 == 0 ? size_bytes : test_random(&seed) % size_bytes;
        unsigned char *exact = malloc(size_bytes + 1);
        assert_non_null(exact);
        memcpy(exact, bytes, size_bytes);
        exact = realloc(exact, size_bytes > 0 ? size_bytes : 1);
        assert_non_null(exact);
        if (muster_dial_request_decode(exact, size_bytes, SIZE, &back) == MUSTER_OK) {
            assert_true(back.to < SIZE && back.from < SIZE && back.hops < 64);
            assert_true(back.peer.address_count <= MUSTER_ADDRESSES_MAX);
        } else {
            refused++;
        }
        free(exact);
    }
    assert_true(refused > ROUNDS / 2);
}

static void a_rank_that_does_not_exist_is_refused(void **state)
{
    unsigned char bytes[MUSTER_DIAL_REQUEST_MOST];
    uint64_t seed = test_seed();
    struct muster_dial_request request = any_request(&seed);
    struct muster_dial_request back;
    (void)state;
    request.from = SIZE;
    request.to = 3;
    request.hops = 2;
    size_t size_bytes = muster_dial_request_encode(&request, bytes);
    assert_int_equal(muster_dial_request_decode(bytes, size_bytes, SIZE, &back), MUSTER_INVALID);
    assert_string_equal(
        muster_last_error(),
        "a request to be dialled goes from rank 1000 to rank 3 of 1000, after 2 hops");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_survives_the_trip),
        cmocka_unit_test(any_bytes_are_read_or_refused),
        cmocka_unit_test(a_rank_that_does_not_exist_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
