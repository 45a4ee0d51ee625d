/* Links over RDMA: the suite, on this machine's device, or in a guest that has two; there once more
 * from one to the other, over their network. */
#include "tests/conformance/conformance.h"
#include "tests/support/guest.h"

#include <stdlib.h>

static const char *const devices[] = {"rxe0", "rxe1"};

static void take_turns(uint32_t rank, struct muster_fabric_options *options)
{
    if (options != NULL) {
        options->verbs.device = devices[rank % 2];
    }
}

int main(int count, char **arguments)
{
    static const struct rig_transport transport = {
        .name = "verbs", .verbs = {.use = MUSTER_VERBS_REQUIRED, .gid = -1}};
    static const struct rig_transport network = {.name = "verbs between two devices",
                                                 .verbs = {.use = MUSTER_VERBS_REQUIRED, .gid = -1},
                                                 .prepare = take_turns};
    (void)count;
    guest_need_rdma(arguments[0]);
    int failed = muster_conformance_run(&transport);
    if (getenv("MUSTER_VERBS_GUEST") != NULL) {
        failed += muster_conformance_run(&network);
    }
    return failed;
}
