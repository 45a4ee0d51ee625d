/* Random faults where the members are threads and the links are shared memory. */
#include "tests/faults/faults.h"

int main(void)
{
    static const struct fault_transport shm = {.name = "shm", .transport = GROUP_SHM};
    return faults_main(&shm, 60);
}
