/* TCP: the suite, over IPv4 and IPv6. */
#include "tests/conformance/conformance.h"

int main(void)
{
    const struct rig_transport four = {.name = "tcp over IPv4", .transports = "tcp"};
    const struct rig_transport six = {
        .name = "tcp over IPv6", .transports = "tcp", .options.listen = "::1"};
    int failed = muster_conformance_run(&four);
    return failed + muster_conformance_run(&six);
}
