#include "tests/conformance/conformance.h"

#include "tests/conformance/suite.h"

#include <string.h>

enum { TESTS_MAX = 64 };

const struct rig_transport *conformance_transport;

int muster_conformance_run(const struct rig_transport *transport)
{
    static struct CMUnitTest tests[TESTS_MAX];
    conformance_transport = transport;
    size_t count = 0;
    for (size_t i = 0; i < conformance_moving_count; i++) {
        tests[count++] = conformance_moving[i];
    }
    return _cmocka_run_group_tests(transport->name, tests, count, NULL, NULL);
}
