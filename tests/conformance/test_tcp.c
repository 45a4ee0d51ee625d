#include "tests/conformance/conformance.h"

int main(void)
{
    const struct rig_transport four = {.name = "tcp over IPv4", .listen = "127.0.0.1"};
    const struct rig_transport six = {.name = "tcp over IPv6", .listen = "::1"};
    int failed = muster_conformance_run(&four);
    return failed + muster_conformance_run(&six);
}
