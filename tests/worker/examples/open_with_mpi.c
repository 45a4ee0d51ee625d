/* A communicator among the processes of mpirun: the exchange is MPI_Allgather. Prints one line for
 * each rank; test_open_with_mpi.sh builds and runs it. */
#include <limits.h>
#include <mpi.h>
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

static int exchange(const void *mine, void *all, size_t size_bytes, void *user_data)
{
    (void)user_data;
    if (size_bytes > INT_MAX) {
        return 1;
    }
    return MPI_Allgather(mine, (int)size_bytes, MPI_BYTE, all, (int)size_bytes, MPI_BYTE,
                         MPI_COMM_WORLD);
}

/* Each rank contributes its rank of MPI; both libraries must find the same. */
static int compare(muster_session *session, int rank, int size)
{
    int *found = calloc((size_t)size, sizeof *found);
    int *expected = calloc((size_t)size, sizeof *expected);
    int same = found != NULL && expected != NULL;
    if (same && muster_allgather(session, MUSTER_GLOBAL, &rank, found, 1, MUSTER_INT32, NULL) !=
                    MUSTER_OK) {
        fprintf(stderr, "open_with_mpi: %s\n", muster_last_error());
        same = 0;
    }
    same = same && MPI_Allgather(&rank, 1, MPI_INT, expected, 1, MPI_INT, MPI_COMM_WORLD) == 0;
    for (int i = 0; same && i < size; i++) {
        same = found[i] == expected[i];
    }
    free(found);
    free(expected);
    return same;
}

int main(int argc, char **argv)
{
    muster_session *session = NULL;
    int rank = 0;
    int size = 0;
    int same = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (muster_open_with(NULL, (uint32_t)rank, (uint32_t)size, exchange, NULL, &session) ==
        MUSTER_OK) {
        same = compare(session, rank, size);
        printf("rank %u of %u: %s\n", muster_rank(session, MUSTER_GLOBAL),
               muster_size(session, MUSTER_GLOBAL), same ? "the same as MPI" : "not as MPI");
    } else {
        fprintf(stderr, "open_with_mpi: %s\n", muster_last_error());
    }
    muster_close(session);
    MPI_Finalize();
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
