/* What ping_pong.c and peer_ping_pong.c have in common: the sizes, the repetitions and the output.
 */
#ifndef MUSTER_TESTS_BENCH_PING_PONG_H
#define MUSTER_TESTS_BENCH_PING_PONG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/peer.h"

enum { PING_PONG_BYTES_MAX = 4 << 20, PING_PONG_TIMES_MAX = 20000 };

static const struct {
    size_t bytes;
    int times, warm_up;
} ping_pong_rows[] = {{4, 20000, 2000},
                      {64, 20000, 2000},
                      {1024, 20000, 2000},
                      {65536, 4000, 400},
                      {4194304, 200, 20}};

/* Sends the buffer and receives it back, or the other way round. */
typedef void (*ping_pong_turn)(void *user, char *data, size_t bytes);

/* Rank 0 prints the median of half the time of a turn, in microseconds, for each size. */
static inline void ping_pong_measure(int is_first, ping_pong_turn turn, void *user)
{
    char *data = malloc(PING_PONG_BYTES_MAX);
    double *times = malloc(PING_PONG_TIMES_MAX * sizeof *times);
    if (data == NULL || times == NULL) {
        abort();
    }
    memset(data, 1, PING_PONG_BYTES_MAX);
    for (size_t row = 0; row < sizeof ping_pong_rows / sizeof ping_pong_rows[0]; row++) {
        size_t bytes = ping_pong_rows[row].bytes;
        for (int i = -ping_pong_rows[row].warm_up; i < ping_pong_rows[row].times; i++) {
            double begin = peer_now_us();
            turn(user, data, bytes);
            if (i >= 0) {
                times[i] = (peer_now_us() - begin) / 2;
            }
        }
        size_t count = (size_t)ping_pong_rows[row].times;
        if (is_first) {
            (void)printf("%zu bytes: %.2f us\n", bytes, peer_median(times, count));
        }
    }
    free(times);
    free(data);
}

#endif
