/* What programs that measure have in common: clocks, medians; and for those that tests/bench/peers
 * and verbs build, how long they run, and the line that they print. For C and C++. */
#ifndef MUSTER_TESTS_BENCH_PEER_H
#define MUSTER_TESTS_BENCH_PEER_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As in muster bench: one call (which is checked there), and five warm-up calls. */
enum { PEER_WARM_UP = 6, PEER_ITERATIONS_MIN = 3 };

static inline double peer_clock_us(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline double peer_now_us(void)
{
    return peer_clock_us(CLOCK_MONOTONIC);
}

enum { PEER_TENSORS_MAX = 4096 };

/* BYTES as programs get it: a number of bytes, for one buffer of float32, or "@FILE" with a list as
 * `muster bench step --list` prints it, for a call for each tensor. Returns how many buffers there
 * are, 0 if the file cannot be read; their elements are in `counts`. */
static inline size_t peer_read_counts(const char *text, size_t counts[PEER_TENSORS_MAX])
{
    char line[256];
    size_t found = 0;
    if (text[0] != '@') {
        counts[0] = (size_t)((atof(text) + sizeof(float) - 1) / sizeof(float));
        return 1;
    }
    FILE *file = fopen(text + 1, "r");
    while (file != NULL && found < PEER_TENSORS_MAX && fgets(line, sizeof line, file) != NULL) {
        counts[found++] = strtoul(line, NULL, 10);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* Fewer than `wanted` if the calls are so slow that they would take longer than the limit. */
static inline int peer_iterations(int wanted, double warm_us, double limit_s)
{
    double fitting = limit_s * 1e6 / (warm_us + 1);
    int most = fitting < PEER_ITERATIONS_MIN ? PEER_ITERATIONS_MIN : (int)fitting;
    return wanted < most ? wanted : most;
}

/* The peak memory of this process without its buffers; 0: not known. */
static inline double peer_memory_bytes(double buffers_bytes)
{
    char line[256];
    double peak = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "VmHWM: %lf kB", &peak) == 1) {
            break;
        }
    }
    if (status != NULL) {
        (void)fclose(status);
    }
    peak = peak * 1024 - buffers_bytes;
    return peak > 0 ? peak : 0;
}

static inline int peer_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts the values. */
static inline double peer_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, peer_compare);
    return values[count / 2];
}

/* The times are those of the slowest rank; the fields have the names of `muster bench --json`. */
static inline void peer_print(double *slowest_us, int iterations, double memory_bytes)
{
    qsort(slowest_us, (size_t)iterations, sizeof *slowest_us, peer_compare);
    int p99 = (99 * iterations + 99) / 100;
    printf(
        "{\"iterations\":%d,\"p50_us\":%.2f,\"p99_us\":%.2f,\"min_us\":%.2f,"
        "\"memory_bytes\":%.0f}\n",
        iterations, slowest_us[(iterations - 1) / 2], slowest_us[p99 - 1], slowest_us[0],
        memory_bytes);
    (void)fflush(stdout);
}

#endif
