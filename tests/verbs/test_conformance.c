/* Links over RDMA: the suite, on this machine's device, or in a guest with two; there also from one
 * to the other, over their network. */
#include "tests/conformance/conformance.h"
#include "tests/support/guest.h"

#include <stdlib.h>

static const char *const devices[] = {"rxe0", "rxe1"};

static void take_turns(uint32_t rank, struct fabric_wish *wish)
{
    if (wish != NULL) {
        wish->options.verbs_device = devices[rank % 2];
    }
}

int main(int count, char **arguments)
{
    static const struct rig_transport transport = {.name = "verbs", .transports = "verbs"};
    static const struct rig_transport network = {
        .name = "verbs between two devices", .transports = "verbs", .prepare = take_turns};
    (void)count;
    guest_need_rdma(arguments[0]);
    int failed = muster_conformance_run(&transport);
    if (getenv("MUSTER_VERBS_GUEST") != NULL) {
        failed += muster_conformance_run(&network);
    }
    return failed;
}
