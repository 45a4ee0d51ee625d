/* The suite over one transport, named by its row in a registry: conformance/NAME. */
#include "tests/conformance/conformance.h"

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "inproc";
    const struct rig_transport transport = {.name = name, .transports = name};
    return muster_conformance_run(&transport);
}
