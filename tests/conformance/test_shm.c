/* Links through shared memory: the suite. */
#include "tests/conformance/conformance.h"

int main(void)
{
    const struct rig_transport transport = {.name = "shared memory", .transports = "shm"};
    return muster_conformance_run(&transport);
}
