/* muster bench: memory. Buffers that do not fit are refused before they are allocated: otherwise
 * the kernel would swap for a minute and then kill some process. */
#include "worker/cli/bench/bench_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/status.h"
#include "worker/cli/bench/bench_parts.h"

enum { KIB = 1024 };

static const double gib = 1024.0 * 1024 * 1024;

/* The value of the line "FIELD: N kB" in a file of /proc, in bytes; 0: there is no such line. */
static uint64_t read_proc_bytes(const char *path, const char *field)
{
    char line[128];
    uint64_t kib = 0;
    size_t length = strlen(field);
    FILE *file = fopen(path, "re");
    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, field, length) == 0 && line[length] == ':') {
            kib = strtoull(line + length + 1, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return kib < UINT64_MAX / KIB ? kib * KIB : UINT64_MAX;
}

uint64_t muster_bench_peak_bytes(void)
{
    return read_proc_bytes("/proc/self/status", "VmHWM");
}

uint64_t muster_bench_largest_bytes(const struct muster_bench_options *options)
{
    uint64_t largest_bytes = 0;
    for (size_t i = 0; i < options->size_count; i++) {
        uint64_t bytes;
        (void)muster_bench_count(options, options->sizes_bytes[i], &bytes);
        largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
    }
    return largest_bytes;
}

/* A lower bound for all ranks together: buffers of a single block are small and not counted. */
static double needed_bytes(const struct muster_bench_options *options)
{
    double largest_bytes = (double)muster_bench_largest_bytes(options);
    switch (options->collective) {
    case MUSTER_GATHER:
    case MUSTER_GATHERV:
    case MUSTER_SCATTER: /* the root's */
        return largest_bytes;
    case MUSTER_ALLREDUCE:
        return largest_bytes * options->ranks * (options->in_place ? 1 : 2);
    default:
        return largest_bytes * options->ranks;
    }
}

muster_status muster_bench_check_available(const char *option, uint32_t ranks, double needed_bytes)
{
    uint64_t available = read_proc_bytes("/proc/meminfo", "MemAvailable");
    if (available == 0 || needed_bytes <= (double)available) {
        return MUSTER_OK;
    }
    return muster_error_set(MUSTER_FATAL,
                            "%s: the buffers of %u ranks need at least %.1f GiB, and %.1f GiB "
                            "of memory are available",
                            option, ranks, needed_bytes / gib, (double)available / gib);
}

muster_status muster_bench_check_memory(const struct muster_bench_options *options)
{
    return muster_bench_check_available("--bytes", options->ranks, needed_bytes(options));
}
