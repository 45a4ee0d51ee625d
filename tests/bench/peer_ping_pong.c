/* The measurement of ping_pong.c with MPI. Not built by CMake, since Muster does not need MPI:
 *
 *     mpicc.openmpi -O2 -I . -o peer_ping_pong tests/bench/peer_ping_pong.c
 *     mpiexec.openmpi -n 2 --mca pml ob1 ./peer_ping_pong           shared memory
 *     ... --mca btl self,tcp --mca btl_tcp_if_include lo ...        TCP */
#include <mpi.h>

#include "tests/bench/ping_pong.h"

static void turn(void *user, char *data, size_t bytes)
{
    int rank = *(int *)user;
    if (rank == 0) {
        MPI_Send(data, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    }
    if (rank < 2) {
        MPI_Recv(data, (int)bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 1) {
        MPI_Send(data, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ping_pong_measure(rank == 0, turn, &rank);
    MPI_Finalize();
    return 0;
}
