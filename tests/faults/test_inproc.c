/* Random faults where the members are threads and the links are inproc. */
#include "tests/faults/faults.h"

int main(void)
{
    static const struct fault_transport inproc = {.name = "inproc", .transport = GROUP_INPROC};
    return faults_main(&inproc, 60);
}
