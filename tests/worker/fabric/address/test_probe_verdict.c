/* The verdict about a member from the answers of its addresses: all sets of answers. */
#include "worker/fabric/address/probe_verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>

enum { ADDRESSES = 5 };

static bool has(const enum muster_probe_dial *dials, uint32_t count, enum muster_probe_dial dial)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        found = found || dials[i] == dial;
    }
    return found;
}

/* The rules one by one, instead of their order. */
static void check(const enum muster_probe_dial *dials, uint32_t count)
{
    enum muster_probe_verdict now = muster_probe_decide(dials, count, false);
    enum muster_probe_verdict end = muster_probe_decide(dials, count, true);
    bool accepted = has(dials, count, MUSTER_DIAL_ACCEPTED);
    bool pending = has(dials, count, MUSTER_DIAL_PENDING);
    bool refused = has(dials, count, MUSTER_DIAL_REFUSED);
    bool failed = has(dials, count, MUSTER_DIAL_FAILED);
    bool silent = pending || has(dials, count, MUSTER_DIAL_UNREACHABLE);

    assert_true((end == MUSTER_PROBE_THERE) == accepted);
    assert_true((end == MUSTER_PROBE_GONE) == (refused && !accepted && !failed));
    assert_true((end == MUSTER_PROBE_CUT_OFF) == (silent && !accepted && !failed && !refused));
    assert_true(end != MUSTER_PROBE_PENDING);
    assert_true(now == (pending && !accepted ? MUSTER_PROBE_PENDING : end));
}

static void all_sets_of_answers_have_the_right_verdict(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= ADDRESSES; count++) {
        uint32_t sets = 1;
        for (uint32_t i = 0; i < count; i++) {
            sets *= MUSTER_DIAL_KINDS;
        }
        for (uint32_t set = 0; set < sets; set++) {
            enum muster_probe_dial dials[ADDRESSES];
            uint32_t rest = set;
            for (uint32_t i = 0; i < count; i++) {
                dials[i] = (enum muster_probe_dial)(rest % MUSTER_DIAL_KINDS);
                rest /= MUSTER_DIAL_KINDS;
            }
            check(dials, count);
        }
    }
}

/* A verdict before the time is over is final: no answer that comes later changes it. */
static void an_early_verdict_is_final(void **state)
{
    (void)state;
    for (int first = 0; first < MUSTER_DIAL_KINDS; first++) {
        enum muster_probe_dial dials[] = {(enum muster_probe_dial)first, MUSTER_DIAL_PENDING};
        enum muster_probe_verdict early = muster_probe_decide(dials, 2, false);
        for (int late = 0; early != MUSTER_PROBE_PENDING && late < MUSTER_DIAL_KINDS; late++) {
            dials[1] = (enum muster_probe_dial)late;
            assert_int_equal(muster_probe_decide(dials, 2, true), early);
        }
    }
}

static void errors_of_connect_are_answers(void **state)
{
    (void)state;
    static const struct {
        int error;
        enum muster_probe_dial dial;
    } expected[] = {
        {0, MUSTER_DIAL_ACCEPTED},
        {EINPROGRESS, MUSTER_DIAL_PENDING},
        {ECONNREFUSED, MUSTER_DIAL_REFUSED},
        {EHOSTUNREACH, MUSTER_DIAL_UNREACHABLE},
        {ENETUNREACH, MUSTER_DIAL_UNREACHABLE},
        {ETIMEDOUT, MUSTER_DIAL_UNREACHABLE},
        {EPERM, MUSTER_DIAL_UNREACHABLE},
        {EAFNOSUPPORT, MUSTER_DIAL_SKIPPED},
        {EADDRNOTAVAIL, MUSTER_DIAL_SKIPPED},
        {EMFILE, MUSTER_DIAL_FAILED},
        {ENFILE, MUSTER_DIAL_FAILED},
        {ENOMEM, MUSTER_DIAL_FAILED},
        {ENOBUFS, MUSTER_DIAL_FAILED},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(muster_probe_dial_of(expected[i].error), expected[i].dial);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sets_of_answers_have_the_right_verdict),
        cmocka_unit_test(an_early_verdict_is_final),
        cmocka_unit_test(errors_of_connect_are_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
