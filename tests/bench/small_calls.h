/* What small_calls.c and peer_small_calls.c have in common: the sizes, the repetitions and the
 * output. */
#ifndef MUSTER_TESTS_BENCH_SMALL_CALLS_H
#define MUSTER_TESTS_BENCH_SMALL_CALLS_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/peer.h"

enum {
    SMALL_CALLS_BATCH =
        20, /* calls between two readings of the clock, which takes a quarter of one */
    SMALL_CALLS_BATCHES = 10000,
    SMALL_CALLS_WARM_UP = 200, /* batches */
    SMALL_CALLS_BYTES_MAX = 16384,
};

static const size_t small_calls_bytes[] = {4, 64, 1024, 4096, SMALL_CALLS_BYTES_MAX};

/* One allreduce (sum) of float32 from `in` to `out`. */
typedef void (*small_call)(void *user, const float *in, float *out, size_t count);

/* Rank 0 prints the median time of a call, in microseconds, for each size. */
static inline void small_calls_measure(int is_first, small_call call, void *user)
{
    static float in[SMALL_CALLS_BYTES_MAX / sizeof(float)];
    static float out[SMALL_CALLS_BYTES_MAX / sizeof(float)];
    static double times[SMALL_CALLS_BATCHES];
    for (size_t row = 0; row < sizeof small_calls_bytes / sizeof small_calls_bytes[0]; row++) {
        size_t bytes = small_calls_bytes[row];
        for (int i = -SMALL_CALLS_WARM_UP; i < SMALL_CALLS_BATCHES; i++) {
            double begin = peer_now_us();
            for (int k = 0; k < SMALL_CALLS_BATCH; k++) {
                call(user, in, out, bytes / sizeof *in);
            }
            if (i >= 0) {
                times[i] = (peer_now_us() - begin) / SMALL_CALLS_BATCH;
            }
        }
        if (is_first) {
            (void)printf("%zu bytes: %.3f us\n", bytes, peer_median(times, SMALL_CALLS_BATCHES));
        }
    }
}

#endif
