/* Limits by rate, with a clock of the test. */
#include "rendezvous/http/rates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const int64_t second = 1000000000;
static const int64_t begin = 5000000000000;

/* How many of so many requests at this time are let in. */
static unsigned ask(struct muster_rates *rates, const char *address, int64_t now_ns, unsigned times)
{
    unsigned let_in = 0;
    uint32_t wait_ms = 0;
    for (unsigned i = 0; i < times; i++) {
        let_in += muster_rates_take(rates, address, now_ns, &wait_ms) ? 1 : 0;
    }
    return let_in;
}

static void an_address_has_a_burst_and_then_its_rate(void **state)
{
    (void)state;
    struct muster_rates rates = {.per_address = 20};
    assert_int_equal(ask(&rates, "10.0.0.1", begin, 300), 200);
    assert_int_equal(ask(&rates, "10.0.0.1", begin + second / 2, 300), 10);
    assert_int_equal(ask(&rates, "10.0.0.1", begin + second, 300), 10);
    assert_int_equal(ask(&rates, "10.0.0.2", begin + second, 300), 200);
    assert_int_equal(ask(&rates, "10.0.0.1", begin + 1000 * second, 300), 200);
    muster_rates_finish(&rates);
}

static void who_waits_as_long_as_told_is_let_in(void **state)
{
    (void)state;
    struct muster_rates rates = {.per_address = 7};
    uint32_t wait_ms = 0;
    (void)ask(&rates, "10.0.0.1", begin, 1000);
    for (int64_t i = 0, now_ns = begin; i < 50; i++) {
        assert_false(muster_rates_take(&rates, "10.0.0.1", now_ns, &wait_ms));
        assert_in_range(wait_ms, 1, 1000);
        now_ns += (int64_t)wait_ms * 1000000;
        assert_true(muster_rates_take(&rates, "10.0.0.1", now_ns, &wait_ms));
    }
    muster_rates_finish(&rates);
}

static void this_machine_has_no_limit_unless_one_is_given(void **state)
{
    (void)state;
    struct muster_rates rates = {0};
    uint32_t wait_ms = 0;
    assert_int_equal(ask(&rates, "127.0.0.1", begin, 100000), 100000);
    assert_int_equal(ask(&rates, "::1", begin, 100000), 100000);
    for (int i = 0; i < 100000; i++) {
        muster_rates_fail(&rates, "127.0.0.1", begin);
    }
    assert_true(muster_rates_may_fail(&rates, "127.0.0.1", begin, &wait_ms));
    assert_int_equal(rates.count, 0);
    assert_int_equal(ask(&rates, "10.0.0.1", begin, 100000), 10000);
    muster_rates_finish(&rates);
    rates = (struct muster_rates){.per_address = 5};
    assert_int_equal(ask(&rates, "127.0.0.1", begin, 100), 50);
    muster_rates_finish(&rates);
}

static void failures_run_out_sooner_and_by_address(void **state)
{
    (void)state;
    struct muster_rates rates = {.per_address = 20};
    uint32_t wait_ms = 0;
    for (int i = 0; i < 20; i++) {
        assert_true(muster_rates_may_fail(&rates, "10.0.0.1", begin, &wait_ms));
        muster_rates_fail(&rates, "10.0.0.1", begin);
    }
    assert_false(muster_rates_may_fail(&rates, "10.0.0.1", begin, &wait_ms));
    assert_int_equal(wait_ms, 500);
    assert_true(muster_rates_may_fail(&rates, "10.0.0.2", begin, &wait_ms));
    assert_true(muster_rates_may_fail(&rates, "10.0.0.1", begin + second / 2, &wait_ms));
    muster_rates_finish(&rates);
}

static void many_addresses_share_what_all_strangers_have(void **state)
{
    (void)state;
    struct muster_rates rates = {.per_address = 10};
    unsigned let_in = 0;
    char address[32];
    for (unsigned i = 0; i < 100; i++) {
        (void)snprintf(address, sizeof address, "10.0.1.%u", i);
        let_in += ask(&rates, address, begin, 100);
    }
    assert_int_equal(let_in, 1000); /* ten times one address */
    muster_rates_finish(&rates);
}

static void the_table_is_bounded_and_forgets_who_is_quiet(void **state)
{
    (void)state;
    struct muster_rates rates = {.per_address = 100000};
    char address[32];
    for (unsigned i = 0; i < 3 * MUSTER_RATES_ADDRESSES_MAX; i++) {
        (void)snprintf(address, sizeof address, "%u", i);
        (void)ask(&rates, address, begin, 1);
        assert_in_range(rates.count, 1, MUSTER_RATES_ADDRESSES_MAX);
    }
    assert_int_equal(rates.count, MUSTER_RATES_ADDRESSES_MAX);
    (void)ask(&rates, "one more", begin + 100 * second, 1);
    assert_int_equal(rates.count, 1);
    muster_rates_finish(&rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_a_burst_and_then_its_rate),
        cmocka_unit_test(who_waits_as_long_as_told_is_let_in),
        cmocka_unit_test(this_machine_has_no_limit_unless_one_is_given),
        cmocka_unit_test(failures_run_out_sooner_and_by_address),
        cmocka_unit_test(many_addresses_share_what_all_strangers_have),
        cmocka_unit_test(the_table_is_bounded_and_forgets_who_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
