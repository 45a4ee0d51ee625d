/* The suite over the toy transport. */
#include "tests/conformance/conformance.h"

int main(void)
{
    const struct rig_transport transport = {.name = "a toy over UNIX sockets",
                                            .transports = "unix"};
    return muster_conformance_run(&transport);
}
