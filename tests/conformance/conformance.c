/* Runs the suite's parts over one transport. */
#include "tests/conformance/conformance.h"

#include "tests/conformance/suite.h"

#include <string.h>

enum { TESTS_MAX = 64 };

const struct rig_transport *conformance_transport;

static size_t add(struct CMUnitTest *tests, size_t count, const struct CMUnitTest *more,
                  size_t more_count)
{
    for (size_t i = 0; i < more_count && count < TESTS_MAX; i++) {
        tests[count++] = more[i];
    }
    return count;
}

int muster_conformance_run(const struct rig_transport *transport)
{
    struct CMUnitTest tests[TESTS_MAX];
    size_t count = add(tests, 0, conformance_moving, conformance_moving_count);
    count = add(tests, count, conformance_ranges, conformance_ranges_count);
    count = add(tests, count, conformance_ending, conformance_ending_count);
    count = add(tests, count, conformance_members, conformance_members_count);
    count = add(tests, count, conformance_announced, conformance_announced_count);
    conformance_transport = transport;
    return _cmocka_run_group_tests(transport->name, tests, count, NULL, NULL);
}
