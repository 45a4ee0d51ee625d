/* Who gives way to whom, decided without sockets; and that the counts are exact after any sequence.
 * MUSTER_SEED repeats a run. */
#include "rendezvous/http/admission.h"
#include "tests/support/schedules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CROWD = 8, ROUNDS = 200, STEPS = 400 };

static struct muster_admitted *open_one(struct muster_admission *admission, const char *address,
                                        struct muster_admitted *connection)
{
    struct muster_admitted *victim = NULL;
    assert_true(muster_admission_open(admission, address, connection, &victim));
    return victim;
}

static void the_stranger_that_was_idle_for_longest_gives_way(void **state)
{
    (void)state;
    struct muster_admission admission = {.limits = {.connections = 3}};
    struct muster_admitted one[CROWD];
    for (unsigned i = 0; i < 3; i++) {
        assert_null(open_one(&admission, "10.0.0.1", &one[i]));
    }
    muster_admission_set_busy(&admission, &one[0], true);
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[3]), &one[1]);
    muster_admission_set_busy(&admission, &one[0], false); /* now the youngest */
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[4]), &one[2]);
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[5]), &one[3]);
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[6]), &one[0]);
    for (unsigned i = 0; i < 7; i++) {
        muster_admission_close(&admission, &one[i]);
    }
    assert_null(admission.addresses);
}

static void nobody_busy_or_trusted_gives_way(void **state)
{
    (void)state;
    struct muster_admission admission = {.limits = {.connections = 2}};
    struct muster_admitted one[CROWD];
    struct muster_admitted *victim = NULL;
    (void)open_one(&admission, "10.0.0.1", &one[0]);
    (void)open_one(&admission, "10.0.0.2", &one[1]);
    muster_admission_set_busy(&admission, &one[0], true);
    muster_admission_set_trusted(&admission, &one[1], true);
    assert_false(muster_admission_open(&admission, "10.0.0.3", &one[2], &victim));
    assert_null(victim);
    muster_admission_close(&admission, &one[2]); /* counts nothing twice */
    muster_admission_set_trusted(&admission, &one[1], false);
    assert_ptr_equal(open_one(&admission, "10.0.0.3", &one[2]), &one[1]);
    for (unsigned i = 0; i < 3; i++) {
        muster_admission_close(&admission, &one[i]);
    }
    assert_null(admission.addresses);
}

static void an_address_with_a_trusted_connection_gives_way_last(void **state)
{
    (void)state;
    struct muster_admission admission = {.limits = {.connections = 4}};
    struct muster_admitted one[CROWD];
    (void)open_one(&admission, "10.0.0.1", &one[0]);
    (void)open_one(&admission, "10.0.0.1", &one[1]);
    muster_admission_set_trusted(&admission, &one[0], true);
    (void)open_one(&admission, "10.0.0.2", &one[2]);
    (void)open_one(&admission, "10.0.0.2", &one[3]);
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[4]), &one[2]);
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[5]), &one[3]);
    assert_ptr_equal(open_one(&admission, "10.0.0.2", &one[6]), &one[1]);
    for (unsigned i = 0; i < 7; i++) {
        muster_admission_close(&admission, &one[i]);
    }
    assert_null(admission.addresses);
}

static void an_address_has_a_limit_of_its_own(void **state)
{
    (void)state;
    struct muster_admission admission = {
        .limits = {.connections = 100, .connections_per_address = 2}};
    struct muster_admitted one[CROWD];
    assert_null(open_one(&admission, "10.0.0.2", &one[0]));
    assert_null(open_one(&admission, "10.0.0.1", &one[1]));
    assert_null(open_one(&admission, "10.0.0.1", &one[2]));
    assert_ptr_equal(open_one(&admission, "10.0.0.1", &one[3]), &one[1]);
    assert_null(open_one(&admission, "10.0.0.2", &one[4]));
    for (unsigned i = 0; i < 5; i++) {
        muster_admission_close(&admission, &one[i]);
    }
    assert_null(admission.addresses);
}

static void bodies_have_bounds_by_address_and_in_all(void **state)
{
    (void)state;
    enum { PIECE = MUSTER_BODIES_ADDRESS_MAX_BYTES / 4 };
    struct muster_admission admission = {.limits = {.connections = 100}};
    struct muster_admitted one[CROWD];
    char address[CROWD][16];
    unsigned kept = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        (void)snprintf(address[i], sizeof address[i], "10.0.0.%u", i);
        (void)open_one(&admission, address[i], &one[i]);
        while (muster_admission_take_body(&admission, &one[i], PIECE)) {
            kept++;
        }
    }
    assert_int_equal(kept, MUSTER_BODIES_STRANGERS_MAX_BYTES / PIECE);
    muster_admission_set_trusted(&admission, &one[CROWD - 1], true);
    while (muster_admission_take_body(&admission, &one[CROWD - 1], PIECE)) {
        kept++;
    }
    assert_int_equal(kept, MUSTER_BODIES_ALL_MAX_BYTES / PIECE);
    for (unsigned i = 0; i < CROWD; i++) {
        muster_admission_give_body(&admission, &one[i], one[i].body_bytes);
        muster_admission_close(&admission, &one[i]);
    }
    assert_int_equal(admission.body_bytes, 0);
    assert_int_equal(admission.strangers_body_bytes, 0);
}

static void addresses_are_named_as_they_count(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"10.1.2.3", "10.1.2.3"},
        {"::ffff:10.1.2.3", "10.1.2.3"},
        {"::1", "::1"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"2001:db8:1111:2222:ffff:ffff:ffff:ffff", "2001:db8:1111:2222::/64"},
        {"fe80::1", "fe80::/64"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        char text[MUSTER_ADDRESS_TEXT_SIZE];
        bool is_four = inet_pton(AF_INET, cases[i][0], &four.sin_addr) == 1;
        assert_true(is_four || inet_pton(AF_INET6, cases[i][0], &six.sin6_addr) == 1);
        muster_admission_name(
            is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six, text);
        assert_string_equal(text, cases[i][1]);
    }
}

/* Any sequence of calls, and a plain count beside it. */
static void any_sequence_keeps_the_limits_and_the_counts(void **state)
{
    (void)state;
    enum { SLOTS = 24, LIMIT = 12, OWN = 5 };
    uint64_t dice = test_seed();
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct muster_admission admission = {
            .limits = {.connections = LIMIT, .connections_per_address = OWN}};
        struct muster_admitted one[SLOTS];
        bool is_open[SLOTS] = {false};
        for (unsigned step = 0; step < STEPS; step++) {
            unsigned slot = test_random_below(&dice, SLOTS);
            char address[16];
            struct muster_admitted *victim = NULL;
            (void)snprintf(address, sizeof address, "10.0.0.%u", test_random_below(&dice, 4));
            uint32_t what = test_random_below(&dice, 6);
            if (!is_open[slot]) {
                is_open[slot] = muster_admission_open(&admission, address, &one[slot], &victim);
                assert_true(is_open[slot] || victim == NULL);
                assert_true(victim == NULL || (!victim->busy && !victim->trusted));
            } else if (what == 0) {
                muster_admission_give_body(&admission, &one[slot], one[slot].body_bytes);
                muster_admission_close(&admission, &one[slot]);
                is_open[slot] = false;
            } else if (what <= 2) {
                muster_admission_set_busy(&admission, &one[slot], what == 1);
            } else if (what <= 4) {
                muster_admission_set_trusted(&admission, &one[slot], what == 3);
            } else {
                assert_true(muster_admission_take_body(&admission, &one[slot], 1000));
            }
            uint32_t open = 0;
            size_t bytes = 0, strangers = 0;
            for (unsigned i = 0; i < SLOTS; i++) {
                open += is_open[i] && !one[i].closing;
                bytes += is_open[i] ? one[i].body_bytes : 0;
                strangers += is_open[i] && !one[i].trusted ? one[i].body_bytes : 0;
            }
            assert_int_equal(admission.open, open);
            assert_true(open <= LIMIT);
            assert_int_equal(admission.body_bytes, bytes);
            assert_int_equal(admission.strangers_body_bytes, strangers);
        }
        for (unsigned i = 0; i < SLOTS; i++) {
            if (is_open[i]) {
                muster_admission_close(&admission, &one[i]);
            }
        }
        assert_null(admission.addresses);
        assert_null(admission.oldest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stranger_that_was_idle_for_longest_gives_way),
        cmocka_unit_test(nobody_busy_or_trusted_gives_way),
        cmocka_unit_test(an_address_with_a_trusted_connection_gives_way_last),
        cmocka_unit_test(an_address_has_a_limit_of_its_own),
        cmocka_unit_test(bodies_have_bounds_by_address_and_in_all),
        cmocka_unit_test(addresses_are_named_as_they_count),
        cmocka_unit_test(any_sequence_keeps_the_limits_and_the_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
