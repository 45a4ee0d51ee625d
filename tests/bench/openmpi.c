/*
 * The same measurement as `muster bench allreduce --type float32 --op sum`, made by MPI. Built by
 * compare_openmpi, not by CMake: Muster does not need MPI.
 *
 *     openmpi ITERATIONS BYTES     prints the median, over the iterations, of the slowest rank's
 *                                  time in microseconds
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 5 };

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void measure(double *times, int iterations, const float *in, float *out, int count)
{
    for (int i = -WARM_UP; i < iterations; i++) {
        double start = MPI_Wtime();
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) {
            times[i] = (MPI_Wtime() - start) * 1e6;
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int iterations = argc == 3 ? atoi(argv[1]) : 0;
    int count = argc == 3 ? atoi(argv[2]) / (int)sizeof(float) : 0;
    if (iterations < 1 || count < 1) {
        (void)fprintf(stderr, "usage: openmpi ITERATIONS BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    float *in = calloc((size_t)count, sizeof *in);
    float *out = calloc((size_t)count, sizeof *out);
    double *times = calloc((size_t)iterations, sizeof *times);
    double *slowest = calloc((size_t)iterations, sizeof *slowest);
    if (in == NULL || out == NULL || times == NULL || slowest == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    measure(times, iterations, in, out, count);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(slowest, (size_t)iterations, sizeof *slowest, compare);
        printf("%.2f\n", slowest[(iterations - 1) / 2]);
    }
    free(in);
    free(out);
    free(times);
    free(slowest);
    MPI_Finalize();
    return 0;
}
