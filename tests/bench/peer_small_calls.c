/* The measurement of small_calls.c with MPI. Not built by CMake, since Muster does not need MPI:
 *
 *     mpicc.openmpi -O2 -I . -o peer_small_calls tests/bench/peer_small_calls.c
 *     mpiexec.openmpi -n 2 --mca pml ob1 ./peer_small_calls */
#include <mpi.h>

#include "tests/bench/small_calls.h"

static void call(void *user, const float *in, float *out, size_t count)
{
    (void)user;
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    small_calls_measure(rank == 0, call, NULL);
    MPI_Finalize();
    return 0;
}
