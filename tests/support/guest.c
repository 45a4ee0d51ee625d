#include "tests/support/guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/fabric/fabric.h"

static bool has_device(void)
{
    const struct muster_fabric_options options = {
        .member = "00000000-0000-4000-8000-000000000001",
        .verbs = {.use = MUSTER_VERBS_REQUIRED, .gid = -1}};
    struct muster_fabric *fabric = NULL;
    if (muster_fabric_create(&options, &fabric) != MUSTER_OK) {
        printf("%s\n", muster_last_error());
        return false;
    }
    muster_fabric_destroy(fabric, 0);
    return true;
}

void guest_need_rdma(const char *program)
{
    const char *source = getenv("MUSTER_SOURCE");
    char script[512];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (has_device() || getenv("MUSTER_VERBS_GUEST") != NULL) {
        return;
    }
    (void)snprintf(script, sizeof script, "%s/tests/verbs/run", source != NULL ? source : ".");
    (void)execl(script, script, "--devices", "2", "--", program, (char *)NULL);
    perror(script);
    _exit(EXIT_FAILURE);
}
