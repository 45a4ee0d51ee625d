/* Random faults where the members are threads and the links are TCP. */
#include "tests/faults/faults.h"

int main(void)
{
    static const struct fault_transport tcp = {
        .name = "tcp", .transport = GROUP_TCP, .has_port = true};
    return faults_main(&tcp, 60);
}
