/* Small allreduces in flight at once beside the same in a row; and the last one of several that are
 * started together, with and without a higher priority. Run by each worker of a job:
 *
 *     MUSTER_SHARED_MEMORY=0 muster run -n 4 -- build/release/tests/in_flight 161 64
 *     MUSTER_SHARED_MEMORY=0 muster run -n 4 -- build/release/tests/in_flight urgent 16 1048576
 *
 * The arguments: how many allreduces, and the float32 elements of each. Rank 0 prints the medians
 * of the rounds, which take turns. */
#include "tests/bench/peer.h"
#include "worker/muster.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 41, WARM_UP = 5 };

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

/* The buffers of the allreduces, [calls * count] elements. */
struct buffers {
    size_t calls, count;
    float *in, *out;
    muster_operation *operations;
};

static void compare_with_a_row(muster_session *session, const struct buffers *buffers)
{
    double row_us[ROUNDS];
    double once_us[ROUNDS];
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        must(muster_barrier(session, MUSTER_GLOBAL, NULL));
        double start = peer_now_us();
        run_in_a_row(session, buffers->in, buffers->out, buffers->calls, buffers->count);
        double middle = peer_now_us();
        must(muster_barrier(session, MUSTER_GLOBAL, NULL));
        double second = peer_now_us();
        run_at_once(session, buffers->in, buffers->out, buffers->calls, buffers->count,
                    buffers->operations);
        if (round >= 0) {
            row_us[round] = middle - start;
            once_us[round] = peer_now_us() - second;
        }
    }
    if (muster_rank(session, MUSTER_GLOBAL) == 0) {
        double row = peer_median(row_us, ROUNDS);
        double once = peer_median(once_us, ROUNDS);
        (void)printf("%zu allreduces of %zu bytes: in a row %.0f us, at once %.0f us, ratio %.2f\n",
                     buffers->calls, buffers->count * sizeof(float), row, once, row / once);
    }
}

/* Starts all of them, the last one with this priority, and waits for it before the others. */
static void run_urgent(muster_session *session, const struct buffers *buffers, int32_t priority,
                       double *ret_last_us, double *ret_all_us)
{
    muster_call_options options;
    muster_call_options_init(&options);
    must(muster_barrier(session, MUSTER_GLOBAL, NULL));
    double start = peer_now_us();
    for (size_t i = 0; i < buffers->calls; i++) {
        options.priority = i + 1 < buffers->calls ? 0 : priority;
        must(muster_allreduce_start(session, MUSTER_GLOBAL, buffers->in + i * buffers->count,
                                    buffers->out + i * buffers->count, buffers->count,
                                    MUSTER_FLOAT32, MUSTER_SUM, &options, &buffers->operations[i]));
    }
    must(muster_wait(buffers->operations[buffers->calls - 1]));
    *ret_last_us = peer_now_us() - start;
    for (size_t i = 0; i + 1 < buffers->calls; i++) {
        must(muster_wait(buffers->operations[i]));
    }
    *ret_all_us = peer_now_us() - start;
}

static void compare_priorities(muster_session *session, const struct buffers *buffers)
{
    double last_us[2][ROUNDS];
    double all_us[2][ROUNDS];
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        for (int32_t priority = 0; priority < 2; priority++) {
            double last = 0;
            double all = 0;
            run_urgent(session, buffers, priority, &last, &all);
            if (round >= 0) {
                last_us[priority][round] = last;
                all_us[priority][round] = all;
            }
        }
    }
    if (muster_rank(session, MUSTER_GLOBAL) == 0) {
        (void)printf(
            "the last of %zu allreduces of %zu bytes: %.0f us, with a higher priority %.0f us; "
            "all together %.0f and %.0f us\n",
            buffers->calls, buffers->count * sizeof(float), peer_median(last_us[0], ROUNDS),
            peer_median(last_us[1], ROUNDS), peer_median(all_us[0], ROUNDS),
            peer_median(all_us[1], ROUNDS));
    }
}

int main(int argc, char **argv)
{
    bool urgent = argc > 1 && strcmp(argv[1], "urgent") == 0;
    char **sizes = argv + (urgent ? 1 : 0);
    int size_count = argc - (urgent ? 1 : 0);
    struct buffers buffers = {.calls = size_count > 1 ? strtoul(sizes[1], NULL, 10) : 161,
                              .count = size_count > 2 ? strtoul(sizes[2], NULL, 10) : 64};
    size_t elements = buffers.calls * buffers.count;
    muster_session *session = NULL;
    buffers.in = calloc(elements, sizeof *buffers.in);
    buffers.out = calloc(elements, sizeof *buffers.out);
    buffers.operations = calloc(buffers.calls, sizeof *buffers.operations);
    if (buffers.in == NULL || buffers.out == NULL || buffers.operations == NULL) {
        return EXIT_FAILURE;
    }
    must(muster_open(NULL, &session));
    if (urgent) {
        compare_priorities(session, &buffers);
    } else {
        compare_with_a_row(session, &buffers);
    }
    muster_close(session);
    free(buffers.in);
    free(buffers.out);
    free(buffers.operations);
    return EXIT_SUCCESS;
}
