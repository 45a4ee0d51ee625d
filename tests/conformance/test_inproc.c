#include "tests/conformance/conformance.h"

int main(void)
{
    const struct rig_transport inproc = {.name = "inproc", .transports = "inproc"};
    return muster_conformance_run(&inproc);
}
