/* Small allreduces in flight at once beside the same in a row. Run by each worker of a job:
 *
 *     MUSTER_SHARED_MEMORY=0 muster run -n 4 -- build/release/tests/in_flight 161 64
 *
 * The arguments: how many allreduces, and the float32 elements of each. Rank 0 prints the medians
 * of the rounds, which take turns. */
#include "worker/muster.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 41, WARM_UP = 5 };

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static void must(muster_status status)
{
    if (status != MUSTER_OK) {
        (void)fprintf(stderr, "in_flight: %s\n", muster_last_error());
        exit(EXIT_FAILURE);
    }
}

static void run_in_a_row(muster_session *session, const float *in, float *out, size_t calls,
                         size_t count)
{
    for (size_t i = 0; i < calls; i++) {
        must(muster_allreduce(session, MUSTER_GLOBAL, in + i * count, out + i * count, count,
                              MUSTER_FLOAT32, MUSTER_SUM, NULL));
    }
}

static void run_at_once(muster_session *session, const float *in, float *out, size_t calls,
                        size_t count, muster_operation *operations)
{
    for (size_t i = 0; i < calls; i++) {
        must(muster_allreduce_start(session, MUSTER_GLOBAL, in + i * count, out + i * count, count,
                                    MUSTER_FLOAT32, MUSTER_SUM, NULL, &operations[i]));
    }
    for (size_t i = 0; i < calls; i++) {
        must(muster_wait(operations[i]));
    }
}

int main(int argc, char **argv)
{
    size_t calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 161;
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
    float *in = calloc(calls * count, sizeof *in);
    float *out = calloc(calls * count, sizeof *out);
    muster_operation *operations = calloc(calls, sizeof *operations);
    double row_us[ROUNDS];
    double once_us[ROUNDS];
    muster_session *session = NULL;
    if (in == NULL || out == NULL || operations == NULL) {
        return EXIT_FAILURE;
    }
    must(muster_open(NULL, &session));
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        must(muster_barrier(session, MUSTER_GLOBAL, NULL));
        double start = now_us();
        run_in_a_row(session, in, out, calls, count);
        double middle = now_us();
        must(muster_barrier(session, MUSTER_GLOBAL, NULL));
        double second = now_us();
        run_at_once(session, in, out, calls, count, operations);
        if (round >= 0) {
            row_us[round] = middle - start;
            once_us[round] = now_us() - second;
        }
    }
    if (muster_rank(session, MUSTER_GLOBAL) == 0) {
        double row = median(row_us);
        double once = median(once_us);
        (void)printf("%zu allreduces of %zu bytes: in a row %.0f us, at once %.0f us, ratio %.2f\n",
                     calls, count * sizeof *in, row, once, row / once);
    }
    muster_close(session);
    free(in);
    free(out);
    free(operations);
    return EXIT_SUCCESS;
}
