/* Random faults with links over RDMA: on this machine's device, or in a guest with one. */
#include "tests/faults/faults.h"
#include "tests/support/guest.h"

int main(int count, char **arguments)
{
    static const struct fault_transport verbs = {.name = "verbs", .transport = GROUP_VERBS};
    (void)count;
    guest_need_rdma(arguments[0]);
    return faults_main(&verbs, 20);
}
